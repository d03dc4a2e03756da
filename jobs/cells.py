"""Runs cells: plans all of them first, then one after another on one session, everything shared through the store.

Each finished cell is written and logged before the next starts, so an interrupted sweep keeps what it has; the rerun
finds those stages in the store. A plan without misses starts neither Ray nor any engine.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from desa_ray.config import RunConfig
from desa_ray.core.metrics import metric_name
from desa_ray.errors import DesaError, Problems
from desa_ray.pipeline.execute import execute, missing
from desa_ray.pipeline.executor import Executor, SerialExecutor
from desa_ray.pipeline.graph import Builder, Cell
from desa_ray.pipeline.records import cell_records, cell_runs, cell_summary, per_draw, result_config
from desa_ray.store.artifacts import Store
from jobs.console import ConsoleProgress, cells_table, note
from jobs.outputs import manifest, sha256_file, write_json, write_records, write_runs
from jobs.settings import Order, flat, home, store_root, tracking_uri


def open_store(config: RunConfig) -> Store:
    """The store of a run, made and checked for writing before anything else."""
    store = Store(store_root(config.store), repair=config.store.repair)
    store.check_writable()
    return store


def plan(store: Store, orders: Sequence[Order]) -> list[Cell]:
    """All cells of all orders; raises every problem of every order at once."""
    cells, problems = [], []
    for order in orders:
        try:
            cells.append(Builder(order.config, store, home()).cell())
        except Problems as found:
            problems += [problem for problem in found.problems if str(problem) not in map(str, problems)]
    if problems:
        raise Problems(problems)
    return cells


class LazyExecutor:
    """Starts the session the configuration asks for at the first task, so that a plan of hits starts nothing."""

    def __init__(self, config: RunConfig, store: Store, stack: ExitStack):
        self.config, self.store, self.stack = config.cluster, store, stack
        self.executor: Executor | None = None

    def map(self, pool, tasks, done) -> None:
        if self.executor is None:
            self.executor = self._start()
        self.executor.map(pool, tasks, done)

    def _start(self) -> Executor:
        if self.config.kind == "serial":
            executor: Executor = SerialExecutor(self.store.files.root)
        else:
            from desa_ray.cluster.executor import RayExecutor
            from desa_ray.cluster.session import session

            self.stack.enter_context(session(self.config))
            executor = RayExecutor(self.store.files.root, self.config)
        self.stack.callback(executor.close)
        return executor

    def close(self) -> None:
        self.stack.close()


def run_cells(orders: Sequence[Order], *, summary: Path | None) -> list[dict[str, Any]]:
    """Run all orders and return their summaries; `summary` is the sweep's file, if there is one.

    Orders of one call share the first one's store, cluster and tracking settings.
    """
    first = orders[0].config
    for order in orders[1:]:
        for part in ("store", "cluster", "tracking"):
            if getattr(order.config, part) != getattr(first, part):
                raise DesaError(f"one sweep uses one {part}", where=part, mend="run two sweeps")
    store = open_store(first)
    cells = plan(store, orders)
    tracker = _tracker(first)
    todo = missing(store, [target for cell in cells for target in cell.targets])
    note(f"{len(cells)} cells, {len(todo)} stages to compute")
    entries: list[dict[str, Any]] = []
    progress = ConsoleProgress()
    with ExitStack() as stack:
        stack.callback(progress.close)
        executor = LazyExecutor(first, store, stack.enter_context(ExitStack()))
        for order, cell in zip(orders, cells, strict=True):
            entries.append(_run_cell(store, order, cell, executor, progress, tracker))
            if summary is not None:
                write_json(summary, {"cells": entries})
    extra = [metric_name(measure) for measure in first.evaluation.measures]
    Console(width=None if Console().is_terminal else 160).print(cells_table(entries, extra))
    return entries


def _tracker(config: RunConfig):
    if not config.tracking.enabled:
        return None
    from desa_ray.tracking.runs import Tracker

    uri = tracking_uri(config.tracking)
    home().mkdir(parents=True, exist_ok=True)
    tracker = Tracker(uri, home() / "mlartifacts")
    write_json(home() / "last_tracking.json", {"uri": uri})
    return tracker


def _run_cell(
    store: Store, order: Order, cell: Cell, executor: Executor, progress: ConsoleProgress, tracker: Any
) -> dict[str, Any]:
    started = time.perf_counter()
    outcome = execute(store, cell.targets, executor, progress)
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
    entry["stages"] = {"reused": len(outcome.reused), "computed": len(outcome.computed)}
    if tracker is not None:
        entry["mlflow_run_id"] = _log(tracker, cell, entry, per_draw(records, measures), files, started)
    write_json(order.folder / "summary.json", {"cells": [entry]})
    for name, count in {**cell.collection.counts, **cell.recording_counts}.items():
        if count and name not in ("documents", "queries", "qrels"):
            note(f"{cell.config.dataset.name}: {name.replace('_', ' ')}: {count}")
    return entry


def _log(tracker: Any, cell: Cell, entry: dict[str, Any], draws: list, files: list[Path], started: float) -> str:
    from desa_ray.tracking.runs import CellRun

    labels = {
        name: entry[name] for name in ("dataset", "method", "generator", "encoder", "kappa", "n_refs", "corpus_docs")
    }
    numeric = {name: entry[name] for name in ("n_refs", "corpus_docs", "draws", "n_queries", "fallbacks")}
    numeric["kappa"] = float(cell.config.fusion.kappa)
    fusion = cell.fused[0]
    content = {role: stage.params["content"] for role, stage in fusion.inputs.items() if "content" in stage.params}
    from desa_ray.pipeline.provenance import provenance

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
        metrics={**entry["metrics"], **numeric, "seconds": time.perf_counter() - started},
        per_draw=draws if len(draws) > 1 else [],
        tags=tags,
        artifacts=files,
    )
    return tracker.log(cell.config.experiment, run)
