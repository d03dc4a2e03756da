"""The alerts, evaluated by Prometheus's own rule tester over series that are written out here."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.infra.programs import REPOSITORY, program
from tests.infra.test_dashboards import OWN

RULES = REPOSITORY / "infra" / "compose" / "alerts.yml"
RUN = 'run="0123abcd", user="anna"'
OWNER = {"run": "0123abcd", "user": "anna"}


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """`values` in the tester's notation, one per minute: `0x60` is 0 and 60 times more."""
    own = "".join(f', {key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{RUN}{own}}}", "values": values}


def shards(left: str, done: str, lost: str = "0x90") -> list[dict[str, str]]:
    values = {"left": left, "done": done, "lost": lost}
    return [series("ray_desa_run_shards", text, state=state) for state, text in values.items()]


STORE = "ray_desa_run_store_bytes"
QUIET, BUSY = shards("7x90", "3x90"), shards("90-1x90", "0+1x90")
FULL_NODE = [{"series": 'ray_node_disk_utilization_percentage{instance="a"}', "values": "95x90"}]
CASES = {
    "no shard was done": ("SweepStalled", QUIET, OWNER),
    "shards are done": ("SweepStalled", BUSY, None),
    "it waits for others": ("SweepStalled", [*QUIET, series("ray_desa_run_waits", "1x90")], None),
    "the run is over": ("SweepStalled", shards("7x20", "3x20"), None),
    "three were lost": ("ShardsFail", shards("7x90", "0+1x90", "0x80 1 2 3x20"), OWNER),
    "three were lost long ago": ("ShardsFail", shards("7x90", "0+1x90", "0 1 2 3x90"), None),
    "a node's disk is full": ("NodeDiskFull", FULL_NODE, {"instance": "a"}),
    "the store's disk is full": (
        "StoreDiskFull",
        [series(STORE, "4x90", state="free"), series(STORE, "100x90", state="total")],
        OWNER,
    ),
    "the store has room": (
        "StoreDiskFull",
        [series(STORE, "6x90", state="free"), series(STORE, "100x90", state="total")],
        None,
    ),
}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rules() -> list[dict]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


def test_each_alert_fires_when_it_should_and_only_then(tmp_path):
    kept = {rule["alert"]: rule for rule in rules()}
    tests = []
    for alert, given, labels in CASES.values():
        expected = [] if labels is None else [{"exp_labels": kept[alert]["labels"] | labels}]
        check = {"eval_time": "85m", "alertname": alert, "exp_alerts": expected}
        tests.append({"interval": "1m", "input_series": given, "alert_rule_test": [check]})
    assert {alert for alert, _, labels in CASES.values() if labels is not None} == kept.keys()
    bare = [{key: value for key, value in rule.items() if key != "annotations"} for rule in rules()]
    (tmp_path / "bare.yml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": bare}]}))
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["bare.yml"], "tests": tests}))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_its_configuration_with_the_alerts():
    done = promtool("check", "config", RULES.parent / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alerts_ask_for_series_that_exist_and_say_what_to_do(rule):
    assert rule["annotations"].keys() == {"summary", "action"}
    names = {word for word in OWN if word in rule["expr"]}
    assert names or "ray_node_disk_utilization_percentage" in rule["expr"]
