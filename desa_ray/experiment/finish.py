"""What happens to a finished cell: its files are written, then the run is logged.

Files come first, so that nothing is lost while the tracking server is down.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from desa_ray.errors import DesaError
from desa_ray.experiment.build import Cell
from desa_ray.experiment.cell_files import (
    manifest,
    write_json,
    write_records,
    write_runs,
)
from desa_ray.experiment.fusing import fused_methods, kappa_of
from desa_ray.experiment.records import cell_records, cell_runs, labels, result_config
from desa_ray.experiment.spec import CellSpec, flat
from desa_ray.experiment.summary import cell_summary, per_draw
from desa_ray.files import sha256_file
from desa_ray.pipeline.provenance import provenance
from desa_ray.pipeline.stage import ancestors
from desa_ray.printable import printable
from desa_ray.store.makers import described, distinct
from desa_ray.tracking.entries import CellRun, now_ms
from desa_ray.types import sha256_json

LABELS = ("dataset", "method", "generator", "encoder", "kappa", "n_refs", "corpus_docs")
NUMERIC = ("n_refs", "corpus_docs", "draws", "n_queries", "fallbacks")
PER_DRAW = ("ndcg_at_10", "recall_at_20", "depth_dense", "depth_sparse", "sparse_support")

if TYPE_CHECKING:
    from desa_ray.tracking.sweeps import SweepLog


def finish_cell(
    spec: CellSpec,
    cell: Cell,
    computed: int,
    log: "SweepLog | None",
    started_ms: int,
    name: str,
) -> dict[str, Any]:
    """Write a computed cell's files and log it as `name`; returns its summary."""
    records = cell_records(cell)
    entry = cell_summary(cell, records)
    measures = cell.fused[0].params["measures"]
    spec.folder.mkdir(parents=True, exist_ok=True)
    files = [
        write_records(spec.folder / "records.parquet", records),
        write_json(
            spec.folder / "manifest.json", manifest(cell, spec.plain, cell.recording_counts)
        ),
        *write_runs(spec.folder, cell_runs(cell)),
    ]
    entry["mlflow_run_id"] = None
    entry["artifacts"] = {path.name: sha256_file(path) for path in files}
    stages = sum(1 for _ in ancestors(cell.targets))
    entry["stages"] = {"reused": stages - computed, "computed": computed}
    write_json(spec.folder / "summary.json", {"cells": [entry]})
    if log is not None:
        draws = per_draw(records, measures)
        kappa = kappa_of(cell.config.fusion, fused_methods(cell.config))
        numbers = _numbers(entry) | ({} if kappa is None else {"kappa": float(kappa)})
        run = CellRun(
            cell=cell_digest(cell),
            name=name,
            # MLflow's compare view begins with the first params by name: the labels come before all
            # other settings.
            params={own: entry[own] for own in LABELS} | flat(result_config(cell), "settings."),
            metrics={**entry["metrics"], **numbers},
            per_draw=[_headline(own) for own in draws] if len(draws) > 1 else [],
            tags=_tags(cell, entry),
            artifacts=files,
            started_ms=started_ms,
            ended_ms=now_ms(),
            inputs=[_data_set(cell)],
        )
        entry["mlflow_run_id"] = log.cell(run)
        write_json(spec.folder / "summary.json", {"cells": [entry]})
    return entry


def log_failure(log: "SweepLog", cell: Cell, error: DesaError, started_ms: int, name: str) -> None:
    """Log a cell that failed: what it was to be, and why it is not."""
    run = CellRun(
        cell=cell_digest(cell),
        name=name,
        params=labels(cell),
        metrics={},
        per_draw=[],
        tags={},
        artifacts=[],
        started_ms=started_ms,
        ended_ms=now_ms(),
        error=str(error),
    )
    log.cell(run)


def cell_digest(cell: Cell) -> str:
    """Hex digest of what a cell is: its labels and the stages it reads; the same in
    every attempt.
    """
    return sha256_json([labels(cell), [stage.key.digest for stage in cell.targets]])


def collection_notes(cell: Cell) -> list[str]:
    """What validation counted in a cell's inputs, one line each."""
    counts = {**cell.collection.counts, **cell.recording_counts}
    sizes = ("documents", "queries", "qrels", "source_files")
    name = cell.config.dataset.name
    found = {what: count for what, count in counts.items() if count and what not in sizes}
    return [f"{name}: {what.replace('_', ' ')}: {count}" for what, count in found.items()]


def _makers(cell: Cell) -> list[dict[str, Any]]:
    """Who generated the cell's texts, each process once; nobody where they were recorded."""
    stages = [stage for stage in ancestors(cell.targets) if stage.name == "generation"]
    found = [stage.artifact.manifest()["meta"] for stage in stages if stage.artifact.exists()]
    return distinct(maker for meta in found for maker in meta.get("makers", ()))


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """What is logged as a metric beside the measures, so that the UI can sort and plot by it."""
    numbers = {own: entry[own] for own in NUMERIC}
    return numbers | {
        name: value for name, value in entry.items() if name.startswith("fallback_pct_of")
    }


def _tags(cell: Cell, entry: Mapping[str, Any]) -> dict[str, str]:
    """Hashes and keys of what went in and came out, and who made it with which code."""
    inputs = cell.fused[0].inputs.items()
    content = {role: stage.params["content"] for role, stage in inputs if "content" in stage.params}
    made, stages, makers = provenance(), entry["stages"], _makers(cell)
    return {
        **{f"sha256.{role}": value for role, value in content.items()},
        **{f"sha256.{name}": value for name, value in entry["artifacts"].items()},
        **{f"key.fusion.draw{draw}": stage.key.digest for draw, stage in enumerate(cell.fused)},
        **({"key.reference": cell.reference.key.digest} if cell.reference else {}),
        "desa.stages": f"{stages['reused']} reused, {stages['computed']} computed",
        "desa.reused": str(not stages["computed"]).lower(),
        "commit": str(made["commit"]),
        "dirty": str(made["dirty"]),
        "environment_sha256": made["environment"],
        **({"generated_by": "; ".join(map(described, makers))} if makers else {}),
    }


def _headline(metrics: dict[str, float | None]) -> dict[str, float | None]:
    """What is logged of single draws; records.parquet has everything."""
    return {name: value for name, value in metrics.items() if name in PER_DRAW}


def _data_set(cell: Cell) -> dict[str, Any]:
    """The collection by the hash of its documents, queries and judgments."""
    config, inputs = cell.config.dataset, cell.fused[0].inputs
    content = [inputs[role].params["content"] for role in ("corpus", "queries", "qrels")]
    return {
        "name": printable(config.name)[:500],
        "digest": sha256_json(content),
        "source": printable(config.path or config.name)[:10_000],
        "counts": {own: cell.collection.counts[own] for own in ("documents", "queries", "qrels")},
    }
