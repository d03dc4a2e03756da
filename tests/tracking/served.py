"""Sweeps logged to a real MLflow server through a proxy, and what the server has of them in the
end.
"""

from pathlib import Path

from mlflow.entities import ViewType
from mlflow.tracking import MlflowClient

from desa_ray.tracking.left_behind import left_behind, resend
from desa_ray.tracking.runs import Tracker
from desa_ray.tracking.sweeps import SweepLog, SweepRun
from tests.tracking.entries_made_up import made_cell
from tests.tracking.lossy_proxy import LossyProxy

CELLS = ["one", "two", "three"]


def logged(proxy: LossyProxy, folder: Path, experiment: str, *, parent: bool = True) -> None:
    """A sweep of three cells, or a run of one, logged to its end."""
    run = SweepRun(experiment, "a" * 64, "a sweep", parent, {"kappa": "2"}, {"commit": "c0ffee"})
    log = SweepLog(run, uri=proxy.url, home=folder, sample_s=0)
    for name in CELLS if parent else CELLS[:1]:
        log.cell(made_cell(folder / "out", name))
    log.end("FINISHED", {"cells": 3.0}, [], [])
    for _ in range(100):
        boxes = list(left_behind(folder / "outbox", proxy.url))
        if not boxes:
            return
        for box in left_behind(folder / "outbox", proxy.url):
            resend(box, lambda: Tracker(proxy.url, folder / "mlartifacts"))
    raise AssertionError("entries still wait")


def check(port: int, experiment: str, names: list[str], *, trash: int = 0) -> None:
    """One whole run per name, and nothing beside them but so much in the trash."""
    client = MlflowClient(f"http://127.0.0.1:{port}")
    found = client.get_experiment_by_name(f"desa/{experiment}")
    assert found is not None
    runs = client.search_runs([found.experiment_id])
    assert sorted(run.info.run_name for run in runs) == sorted(names)
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        if run.info.run_name in CELLS:
            assert run.data.params == {"kappa": "60"}
            assert run.data.metrics["draws/ndcg_at_10"] == 0.75
            assert run.data.tags["sha256.records.parquet"] == "records"
            assert [file.path for file in client.list_artifacts(run.info.run_id)] == [
                f"{run.info.run_name}.txt"
            ]
    deleted = client.search_runs([found.experiment_id], run_view_type=ViewType.DELETED_ONLY)
    assert len(deleted) <= trash
    parents = {run.info.run_id for run in runs if run.info.run_name == "a sweep"}
    children = [
        run.data.tags.get("mlflow.parentRunId") for run in runs if run.info.run_name in CELLS
    ]
    assert len(parents) <= 1
    assert set(children) == (parents or {None})
