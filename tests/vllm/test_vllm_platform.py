"""Generation through the platform: SmolLM2 on vLLM in a Ray actor, killed in the middle, then DESA
on its text.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from desa_ray.engines.smollm2 import smollm2_folder

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.xdist_group("platform")]
THREE = ["dataset=demo_small", "dataset.queries=[need-02,need-06,need-12]"]
SHORT = ["generator=smollm2", "decoding.max_tokens=200"]
COMMON = [*THREE, *SHORT, "draws=2", "cluster.cpus=2"]


def _environment(home: Path, model_home: Path) -> dict[str, str]:
    (home / "models").mkdir(parents=True, exist_ok=True)
    for model in model_home.glob("[!.]*"):  # converted once for all tests; locks are its own
        link = home / "models" / model.name
        if not link.exists():
            link.symlink_to(model)
    return {**os.environ, "DESA_HOME": str(home), "HF_HUB_OFFLINE": "1"}


def _desa(folder: Path, home: Path, model_home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "desa_ray.jobs", *arguments],
        cwd=folder,
        env=_environment(home, model_home),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _rows(path: Path) -> dict[tuple[str, int], tuple]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = {
        (row["query_id"], row["draw"]): (tuple(row["texts"]), row.get("fallback", False))
        for row in rows
    }
    assert len(found) == len(rows), "a query and draw occurs twice"
    return found


@pytest.fixture(scope="module")
def generated(model_home, tmp_path_factory) -> Path:
    """A folder where 3 queries x 2 draws were generated although the engine was killed after the
    first shard, or the first rows.
    """
    smollm2_folder(model_home)  # converted once for all tests, not once per folder of theirs
    folder = tmp_path_factory.mktemp("generated")
    home = folder / "home"
    command = [
        sys.executable,
        "-m",
        "desa_ray.jobs",
        "generate",
        *COMMON,
        "cluster.shard_generations=2",
        "export=exported",
    ]
    with (folder / "log").open("w") as log:
        environment = _environment(home, model_home)
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 900
        kept = ("*/part-*.json", "*/rows-*.json")
        while not any(list((home / "store" / "generation").glob(one)) for one in kept):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        actors = [
            p
            for p in psutil.Process(process.pid).children(recursive=True)
            if p.name().startswith("ray::_Actor")
        ]
        assert actors
        for actor in actors:
            os.kill(actor.pid, signal.SIGKILL)
        assert process.wait(1200) == 0, (folder / "log").read_text()
    return folder


def test_every_query_and_draw_is_there_once_although_the_engine(generated):
    """Every query and draw is there once although the engine was killed."""
    rows = _rows(generated / "exported" / "references.jsonl")
    assert len(rows) == 3 * 2
    assert all(len(texts) == (0 if fallback else 5) for texts, fallback in rows.values())


def test_text_does_not_depend_on_shards_or_on_the_kill(generated, model_home, tmp_path):
    arguments = ["generate", *THREE, *SHORT, "draws=1", "cluster=serial", "export=exported"]
    _desa(tmp_path, tmp_path / "home", model_home, *arguments)
    alone = _rows(tmp_path / "exported" / "references.jsonl")
    killed = _rows(generated / "exported" / "references.jsonl")
    assert alone == {key: row for key, row in killed.items() if key[1] == 0}


def test_desa_runs_on_the_generated_text_into_mlflow(generated, model_home):
    """Desa runs on the generated text into mlflow and generates nothing again."""
    from mlflow.tracking import MlflowClient

    home = generated / "home"
    parts = {path: path.read_bytes() for path in (home / "store" / "generation").glob("*/part-*")}
    _desa(generated, home, model_home, "run", *COMMON, "method=desa")
    assert {
        path: path.read_bytes() for path in (home / "store" / "generation").glob("*/part-*")
    } == parts
    (cell,) = json.loads(next(generated.glob("outputs/*/*/summary.json")).read_text())["cells"]
    assert (cell["generator"], cell["n_queries"], cell["draws"]) == ("smollm2", 3, 2)
    manifests = [
        json.loads(path.read_text())
        for path in (home / "store" / "generation").glob("*/manifest.json")
    ]
    assert (
        sum(_count(manifest, "retries") + _count(manifest, "fallbacks") for manifest in manifests)
        > 0
    )
    assert cell["fallbacks"] == sum(_count(manifest, "fallbacks") for manifest in manifests)
    run = MlflowClient(f"sqlite:///{home / 'mlflow.db'}").get_run(cell["mlflow_run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["fallbacks"] == cell["fallbacks"]


def test_an_export_replays_elsewhere_with_the_same_numbers(generated, model_home, tmp_path):
    recorded = [
        "generator=recorded",
        f"generator.folder={generated / 'exported'}",
        f"store.root={generated}/home/store",
    ]
    arguments = [
        "run",
        *THREE,
        "draws=2",
        "cluster=serial",
        "tracking.enabled=false",
        "method=desa",
    ]
    _desa(tmp_path, tmp_path / "home", model_home, *arguments, *recorded)
    (replayed,) = json.loads(next(tmp_path.glob("outputs/*/*/summary.json")).read_text())["cells"]
    (live,) = json.loads(next(generated.glob("outputs/*/*/summary.json")).read_text())["cells"]
    assert replayed["metrics"] == live["metrics"]
    assert replayed["fallbacks"] == live["fallbacks"]


def _count(manifest: dict, name: str) -> int:
    return manifest["counts"][name]
