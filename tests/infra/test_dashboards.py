"""The dashboards: every expression parses, and every metric in them exists."""

import json
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from desa_ray.cluster.metrics import COUNTERS, HISTOGRAM
from desa_ray.cluster.run_series import GAUGES, OWNER
from tests.infra.panels import FOLDER, expressions
from tests.infra.programs import program

# vLLM's production metrics, from its documentation (usage, production metrics, V1).
VLLM = {
    *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    *("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    *("vllm:time_to_first_token_seconds_bucket", "vllm:e2e_request_latency_seconds_bucket"),
}
OWN = {f"ray_desa_{name}_total": labels for name, (_, labels) in COUNTERS.items()}
OWN[f"ray_desa_{HISTOGRAM}_bucket"] = ("le", "stage")
OWN |= {f"ray_desa_{name}": (*OWNER, *labels) for name, (_, labels) in GAUGES.items()}


def test_every_expression_parses(tmp_path):
    promtool = program("promtool")
    rules = [
        {"record": f"panel:{number}", "expr": one.filled("1m")}
        for number, one in enumerate(expressions())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_a_broken_expression_does_not_parse(tmp_path):
    file = tmp_path / "rules.yml"
    file.write_text(
        yaml.safe_dump(
            {"groups": [{"name": "x", "rules": [{"record": "a:b", "expr": "sum(rate(x))"}]}]}
        )
    )
    assert subprocess.run(
        [program("promtool"), "check", "rules", file], capture_output=True, check=False
    ).returncode


def test_our_metrics_are_all_drawn_with_the_labels_they_have():
    drawn = {
        metric for one in expressions() for metric in one.metrics if metric.startswith("ray_desa_")
    }
    assert drawn == OWN.keys()
    for one in expressions():
        own = {label for metric in one.metrics & OWN.keys() for label in OWN[metric]}
        if own or one.metrics & OWN.keys():
            used = {
                label
                for group in re.findall(r"by \(([^)]*)\)", one.text)
                for label in group.split(", ")
            }
            used |= set(re.findall(r"[{,]\s*(\w+)=", one.text))
            assert used <= own, one


def test_the_metrics_of_ray_and_vllm_exist():
    spec = find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / "dashboard/modules/reporter/reporter_agent.py").read_text()
    for metric in {metric for one in expressions() for metric in one.metrics} - OWN.keys():
        if metric.startswith("vllm:"):
            assert metric in VLLM
        elif metric.startswith("ray_node_"):
            assert f'"{metric.removeprefix("ray_")}"' in source


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_panels_do_not_overlap_and_go_through_the_chosen_source(file):
    board = json.loads(file.read_text())
    assert board["uid"] == file.stem
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource"]
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
