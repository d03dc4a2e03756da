"""Sweeps as users launch them: shared work is done once, MLflow shows parent and children, a
failure stays alone.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from mlflow.tracking import MlflowClient

from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.prepare import prepare
from desa_ray.experiment.run import plan
from desa_ray.experiment.sweep import Sweep
from desa_ray.jobs.cli.settings import spec_of
from desa_ray.store.artifacts import Store
from desa_ray.tracking.sweeps import SweepLog, SweepRun
from tests.desa_fixtures import METHODS, dataset, run_desa, summaries

pytestmark = pytest.mark.long


def _stages(home: Path) -> Counter:
    return Counter(path.parent.parent.name for path in (home / "store").glob("*/*/manifest.json"))


def _hashes(cells: list[dict]) -> dict:
    return {
        (c["method"], c["encoder"], c["kappa"]): c["artifacts"]["records.parquet"] for c in cells
    }


def _logged(home: Path, experiment: str) -> tuple[list, list]:
    """Parents and children of an experiment."""
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    found = client.get_experiment_by_name(f"desa/{experiment}")
    assert found is not None
    runs = client.search_runs([found.experiment_id])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    return parents, [run for run in runs if "mlflow.parentRunId" in run.data.tags]


def test_another_kappa_generates_encodes_indexes_and_ranks(demo_slice, warm_home, desa, tmp_path):
    """Another kappa generates encodes indexes and ranks nothing."""
    before = _stages(warm_home)
    desa(
        "run", "-m", METHODS, "fusion.kappa=2,20,60,100", *dataset(demo_slice), "cluster=serial",
        "tracking.experiment=kappa",
    )  # fmt: skip
    after = _stages(warm_home)
    assert set((after - before).keys()) == {"fusion"}
    cells = summaries(tmp_path)
    assert len(cells) == 20
    (parent,), children = _logged(warm_home, "kappa")
    assert parent.info.status == "FINISHED"
    assert "fusion.kappa" in parent.info.run_name or "kappa" in parent.info.run_name
    assert parent.data.params["kappa"] == "2, 20, 60, 100"
    assert "system/cpu_utilization_percentage" in parent.data.metrics
    assert len(children) == 20
    assert {child.data.tags["mlflow.parentRunId"] for child in children} == {parent.info.run_id}
    for child in children:
        assert child.info.status == "FINISHED"
        # What the compare view sorts and plots must be numbers.
        assert {"kappa", "corpus_docs", "ndcg_at_10", "recall_at_20"} <= child.data.metrics.keys()
    assert {child.data.metrics["kappa"] for child in children} == {2, 20, 60, 100}
    client = MlflowClient(f"sqlite:///{warm_home / 'mlflow.db'}")
    artifacts = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert artifacts == {"summary.json", "depths.svg", "kappa.svg", "pareto.svg"}
    by_id = {child.info.run_id: child.data.tags["sha256.records.parquet"] for child in children}
    assert all(
        by_id[cell["mlflow_run_id"]] == cell["artifacts"]["records.parquet"] for cell in cells
    )


def test_the_same_sweep_again_logs_nothing_twice(demo_slice, warm_home, desa, tmp_path):
    command = ["run", "-m", "method=bm25,original", *dataset(demo_slice), "cluster=serial"]
    for _ in range(2):
        desa(*command, "tracking.experiment=again")
    (parent,), children = _logged(warm_home, "again")
    assert parent.info.status == "FINISHED"
    assert len(children) == 2
    assert {cell["mlflow_run_id"] for cell in summaries(tmp_path)} == {
        child.info.run_id for child in children
    }


def test_a_failing_cell_fails_alone(demo_slice, warm_home, desa, tmp_path):
    """Damaged recorded texts of one method: the others finish, the summary and MLflow say which
    failed and why.
    """
    # The ranking of one operator is damaged; its cells cannot be fused anew.
    victim = _damage_a_ranking(warm_home, "residual")
    done = desa(
        "run", "-m", METHODS, "fusion.kappa=7", *dataset(demo_slice), "cluster=serial",
        "tracking.experiment=failing", check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert victim in done.stderr
    (sweep,) = tmp_path.glob("outputs/sweeps/*/*/summary.json")
    summary = json.loads(sweep.read_text())
    assert {cell["method"] for cell in summary["cells"]} == {"original", "shared", "sparse_only"}
    names = [failed["cell"].split("/")[1] for failed in summary["failed"]]
    assert names == ["dense_only", "desa"]
    assert all(victim in failed["error"] for failed in summary["failed"])
    (parent,), children = _logged(warm_home, "failing")
    assert parent.info.status == "FAILED"
    assert parent.data.metrics["cells_failed"] == 2
    statuses = {child.data.params["method"]: child.info.status for child in children}
    assert statuses == {
        "original": "FINISHED",
        "shared": "FINISHED",
        "sparse_only": "FINISHED",
        "dense_only": "FAILED",
        "desa": "FAILED",
    }
    assert all(
        victim in child.data.tags["desa.error"]
        for child in children
        if child.info.status == "FAILED"
    )


def _damage_a_ranking(home: Path, operator: str) -> str:
    """Flip a bit in a stored ranking of this dense operator (its first draw); returns the damaged
    file's name.
    """
    for manifest in sorted((home / "store" / "ranking").glob("*/manifest.json")):
        if f'"operator":"{operator}"' in manifest.read_text().replace(" ", ""):
            part = sorted(path for path in manifest.parent.glob("*-*.*") if path.suffix != ".json")[
                0
            ]
            data = bytearray(part.read_bytes())
            data[len(data) // 2] ^= 1
            part.chmod(0o644)
            part.write_bytes(data)
            return part.name
    raise AssertionError(f"no ranking of {operator}")


def test_a_failing_cell_whose_failure_cannot_be_logged(
    demo_slice, warm_home, tmp_path, monkeypatch
):
    """A failing cell whose failure cannot be logged tells both."""
    monkeypatch.setenv("DESA_HOME", str(warm_home))
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        composed = compose("config", ["method=original", "fusion.kappa=7", *dataset(demo_slice)])
    specs = [spec_of(composed, tmp_path / "out")]
    store = Store(str(warm_home / "store"))
    cells = plan(prepare([specs[0].config], store, warm_home))
    run = SweepRun("unlogged", "a" * 64, "a sweep", True, {}, {})
    log = SweepLog(run, uri=f"sqlite:///{warm_home / 'mlflow.db'}", home=warm_home, sample_s=0)
    sweep = Sweep(specs, cells, log, tmp_path / "summary.json", print)
    shutil.rmtree(log.outbox.folder)
    log.outbox.folder.write_text("the disk plays up")
    sweep.on_stage_done(cells[0].fused[0], DesaError("the shard was bad"))
    with pytest.raises(Problems) as told:
        sweep.raise_failures()
    lines = str(told.value).splitlines()
    assert lines[0] == "the shard was bad"
    assert "a log entry cannot be written: Not a directory" in lines[1]
    failed = json.loads((tmp_path / "summary.json").read_text())["failed"]
    assert failed[0]["error"] == str(told.value)
    assert log.watchdog is not None
    log.watchdog.dismiss()


@pytest.mark.slow
def test_an_encoder_sweep_compares_two_encoders(small_slice, desa, tmp_path):
    desa(
        "run", "-m", "encoder=minilm_l6,minilm_l3", "method=original,desa",
        *dataset(small_slice), "draws=1",
        "cluster=serial", "tracking.experiment=encoders",
    )  # fmt: skip
    cells = summaries(tmp_path)
    assert [(cell["encoder"], cell["method"]) for cell in cells] == [
        (encoder, method)
        for encoder in ("minilm_l6", "minilm_l3")
        for method in ("original", "desa")
    ]
    assert _stages(tmp_path / "home")["vectors"] == 2
    assert _stages(tmp_path / "home")["postings"] == 1
    (parent,), children = _logged(tmp_path / "home", "encoders")
    assert "encoder" in parent.info.run_name
    assert {child.data.params["encoder"] for child in children} == {"minilm_l6", "minilm_l3"}


@pytest.mark.slow
def test_three_sweeps_at_once_on_one_new_store_and_database(small_slice, tmp_path):
    """They find the same stages missing at the same time, and share a tracking store that none of
    them finds made.
    """
    command = [*dataset(small_slice), "draws=1", "cluster=serial", "cluster.shard_documents=10"]
    starts = {"a": "fusion.kappa=20,60", "b": "fusion.kappa=60,20", "c": "fusion.kappa=60,100"}
    processes = []
    for name, kappas in starts.items():
        (tmp_path / name).mkdir()
        environment = {**os.environ, "DESA_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
        line = [
            sys.executable,
            "-m",
            "desa_ray.jobs",
            "run",
            "-m",
            "method=desa",
            kappas,
            *command,
        ]
        log = (tmp_path / name / "log").open("w")
        processes.append(
            subprocess.Popen(line, cwd=tmp_path / name, env=environment, stdout=log, stderr=log)
        )
    for name, process in zip(starts, processes, strict=True):
        assert process.wait(500) == 0, (tmp_path / name / "log").read_text()
    found = {name: _hashes(summaries(tmp_path / name)) for name in starts}
    alone = run_desa(
        tmp_path, tmp_path / "alone", "run", "-m", "method=desa",
        "fusion.kappa=20,60,100", *command,
        "tracking.enabled=false",
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    expected = _hashes(summaries(tmp_path))
    for hashes in found.values():
        assert hashes == {cell: expected[cell] for cell in hashes}
    # The store they made is whole: read again, byte for byte, it needs nothing.
    shutil.rmtree(tmp_path / "outputs")
    again = run_desa(
        tmp_path, tmp_path / "home", "run", "-m", "method=desa",
        "fusion.kappa=20,60,100", *command,
        "store.repair=true", "tracking.enabled=false",
    )  # fmt: skip
    assert "0 stages to compute" in again.stderr
    parents, children = _logged(tmp_path / "home", "default")
    # A and b are the same sweep
    assert sorted(parent.info.status for parent in parents) == ["FINISHED"] * 2
    assert len(children) == 4
