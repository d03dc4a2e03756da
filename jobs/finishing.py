"""What happens to a finished cell: its files are written, then the run is logged.

Files come first, so that nothing is lost when the tracking server is away.
"""

from pathlib import Path
from typing import Any

from desa_ray.pipeline.graph import Cell
from desa_ray.pipeline.provenance import provenance
from desa_ray.pipeline.records import cell_records, cell_runs, cell_summary, per_draw, result_config
from desa_ray.pipeline.stage import ancestors
from desa_ray.store.artifacts import Store
from jobs.outputs import manifest, sha256_file, write_json, write_records, write_runs
from jobs.settings import Order, flat


def finish_cell(store: Store, order: Order, cell: Cell, computed: int, tracker: Any) -> dict[str, Any]:
    """Write a computed cell's files and log it; returns its summary."""
    records = cell_records(store, cell)
    entry = cell_summary(cell, records)
    measures = cell.fused[0].params["measures"]
    order.folder.mkdir(parents=True, exist_ok=True)
    files = [
        write_records(order.folder / "records.parquet", records),
        write_json(order.folder / "manifest.json", manifest(store, cell, order.plain, cell.recording_counts)),
        *write_runs(order.folder, cell.config.method.name, cell_runs(store, cell)),
    ]
    entry["mlflow_run_id"] = None
    entry["artifacts"] = {path.name: sha256_file(path) for path in files}
    stages = sum(1 for _ in ancestors(cell.targets))
    entry["stages"] = {"reused": stages - computed, "computed": computed}
    if tracker is not None:
        entry["mlflow_run_id"] = _log(tracker, cell, entry, per_draw(records, measures), files)
    write_json(order.folder / "summary.json", {"cells": [entry]})
    return entry


def noticed(cell: Cell) -> list[str]:
    """What validation counted in a cell's inputs, a line each."""
    counts = {**cell.collection.counts, **cell.recording_counts}
    sizes = ("documents", "queries", "qrels", "source_files")
    name = cell.config.dataset.name
    return [
        f"{name}: {what.replace('_', ' ')}: {count}" for what, count in counts.items() if count and what not in sizes
    ]


def _log(tracker: Any, cell: Cell, entry: dict[str, Any], draws: list, files: list[Path]) -> str:
    from desa_ray.tracking.runs import CellRun

    labels = {
        name: entry[name] for name in ("dataset", "method", "generator", "encoder", "kappa", "n_refs", "corpus_docs")
    }
    numeric = {name: entry[name] for name in ("n_refs", "corpus_docs", "draws", "n_queries", "fallbacks")}
    numeric["kappa"] = float(cell.config.fusion.kappa)
    fusion = cell.fused[0]
    content = {role: stage.params["content"] for role, stage in fusion.inputs.items() if "content" in stage.params}
    made = provenance()
    tags = {
        **{f"sha256.{role}": value for role, value in content.items()},
        **{f"sha256.{name}": value for name, value in entry["artifacts"].items()},
        **{f"key.fusion.draw{draw}": stage.key.digest for draw, stage in enumerate(cell.fused)},
        "commit": str(made["commit"]),
        "dirty": str(made["dirty"]),
        "environment_sha256": made["environment"],
    }
    run = CellRun(
        name=f"{entry['dataset']}/{entry['method']}/k{entry['kappa']}",
        params=labels | flat(result_config(cell)),
        metrics={**entry["metrics"], **numeric},
        per_draw=draws if len(draws) > 1 else [],
        tags=tags,
        artifacts=files,
    )
    return tracker.log(cell.config.tracking.experiment, run)
