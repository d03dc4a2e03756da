"""Made-up sweeps and cells for the tests of the log, and what MLflow has of them."""

from pathlib import Path

from mlflow.tracking import MlflowClient

from desa_ray.tracking.entries import CellRun
from desa_ray.tracking.sweeps import SweepLog, SweepRun

SWEEP = "a" * 64


def made_sweep(sweep: str = SWEEP, *, parent: bool = True) -> SweepRun:
    return SweepRun("tested", sweep, "a sweep", parent, {"kappa": "2, 60"}, {"commit": "c0ffee"})


def open_log(uri: str, home: Path, **options) -> SweepLog:
    return SweepLog(made_sweep(), uri=uri, home=home, sample_s=0, **options)


def made_cell(folder: Path, name: str, text: str = "records", error: str | None = None) -> CellRun:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.txt"
    path.write_text(text)
    return CellRun(
        cell=name * 8,
        name=name,
        params={"kappa": 60},
        metrics={"ndcg_at_10": 0.5, "nothing": None, "odd": float("nan")},
        per_draw=[{"ndcg_at_10": 0.25}, {"ndcg_at_10": 0.75}],
        tags={} if error else {"sha256.records.parquet": text},
        artifacts=[] if error else [path],
        started_ms=1_000,
        ended_ms=2_000,
        error=error,
    )


def runs_in(uri: str) -> dict[str, list]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("desa/tested")
    found: dict[str, list] = {}
    for run in client.search_runs([experiment.experiment_id]) if experiment else []:
        found.setdefault(run.info.run_name, []).append(run)
    return found
