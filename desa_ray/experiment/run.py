"""Runs cells as one graph: the union of their missing stages, each once, on one session.

Stages run in an order that keeps a loaded model at work; a cell is written and logged as soon as
its last stage is stored, so an interrupted sweep keeps what it has and the rerun continues from
there. A plan without misses starts neither Ray nor any engine.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from desa_ray.cluster.metrics import CountingProgress
from desa_ray.cluster.run_series import RunSeries, this_user
from desa_ray.config import RunConfig
from desa_ray.counting import counting
from desa_ray.engines.gpu_engines import CPU
from desa_ray.errors import DesaError, counted
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.devices import Place, check_scorers, with_engines, with_shares
from desa_ray.experiment.finish import collection_notes
from desa_ray.experiment.lazy_backend import LazyBackend
from desa_ray.experiment.listener import Listener
from desa_ray.experiment.log import logged, sweep_digest
from desa_ray.experiment.places import home, store_root
from desa_ray.experiment.prepare import Prepared, prepare
from desa_ray.experiment.spec import CellSpec
from desa_ray.experiment.sweep import Sweep
from desa_ray.locks import OUTBOX, check_locks
from desa_ray.pipeline.estimates import plan_stages
from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.feasible import check_feasible
from desa_ray.pipeline.machine import this_machine
from desa_ray.pipeline.scheduler import run_graph
from desa_ray.pipeline.stage import Stage, ancestors
from desa_ray.store.artifacts import Store
from desa_ray.store.leases import Lease


def open_store(config: RunConfig) -> Store:
    """The store of a run, made and checked for writing and locks before anything else; so is the
    log's folder.
    """
    own = config.store
    store = Store(store_root(own), repair=own.repair, copies=own.copies)
    store.check_writable()
    if config.tracking.enabled:
        with suppress(OSError):  # the log itself says why it cannot be created
            home().mkdir(parents=True, exist_ok=True)
        if os.access(home(), os.W_OK):
            check_locks(OUTBOX, home())
    return store


def plan(prepared: Sequence[Prepared], earlier: Sequence[Mapping[str, Any]] = ()) -> list[Cell]:
    """The cells of prepared configurations, on the devices that there are; writes nothing.

    Args:
        earlier: the summaries of earlier batches of the same sweep.

    Raises:
        DesaError: a GPU is asked for that is not there, or a cluster that has to be asked does not
            answer.
    """
    if not prepared:
        return []
    place = Place(prepared[0].config.cluster)
    with prepared[0].collection.documents.store.snapshot():
        resolved = with_engines(prepared, place, _engines(earlier))
        if not place.known:  # everything may be stored: the cluster is not used then
            rankings: dict[tuple[str, ...], Stage] = {}
            cells = [Builder(own, rankings).cell() for own in counting(resolved, "planning cells")]
            if not missing([target for cell in cells for target in cell.targets]):
                return cells
        shared, rankings = [with_shares(own, place.devices) for own in resolved], {}
        cells = [Builder(own, rankings).cell() for own in counting(shared, "planning cells")]
        check_scorers(cells, place)
        return cells


def _engines(summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What encoded the cells of these summaries, by the encoder's name."""
    known = [own for own in summaries if own.get("encoder")]
    return {own["encoder"].partition("+local-")[0]: own.get("engine", CPU) for own in known}


def run_cells(
    specs: Sequence[CellSpec],
    *,
    summary: Path | None,
    listener: Listener,
    earlier: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Run all cells and return their summaries; `summary` is the sweep's file, if there is one, and
    `earlier` what earlier batches of the same sweep returned.

    Cells of one call share the first one's store, cluster and tracking settings. A cell that fails
    fails alone: the others finish, and the errors are raised together at the end.
    """
    first = _shared_settings(specs)
    store = open_store(first)
    with ExitStack() as around:
        # Nothing is cleaned up now
        lease = around.enter_context(Lease.acquire(store.files, f"run-{uuid4().hex[:12]}"))
        cells = plan(prepare([spec.config for spec in specs], store, home()), earlier)
        needed = list(ancestors([target for cell in cells for target in cell.targets]))
        # From here on, only these are left alone
        lease.refer([stage.key.digest for stage in needed])
        with store.snapshot():
            todo = missing([target for cell in cells for target in cell.targets])
            check_feasible(todo, first.cluster)
        _announce(cells, todo, first, store, listener)
        digest = sweep_digest(first, cells, parent=summary is not None)
        series = RunSeries(digest[:8], this_user(), store.files.local, stages=len(todo))
        backend = LazyBackend(first, store, ExitStack(), listener.note, series)
        around.callback(backend.close)
        # Ray and MLflow take seconds each to come up. Ray sets signal handlers, so it has the main
        # thread.
        with ThreadPoolExecutor(1, thread_name_prefix="desa-log") as aside:
            opening = aside.submit(
                around.enter_context, logged(first, cells, summary, listener.note)
            )
            backend.begin(todo)
            log = opening.result()
        sweep = Sweep(specs, cells, log, summary, listener.note, earlier)
        open_keys = {stage.key.digest for stage in todo}
        reused = [stage for stage in needed if stage.key.digest not in open_keys]
        progress = CountingProgress(listener, store, reused, sweep.on_stage_begun, series.add)
        with ExitStack() as stack:
            stack.callback(listener.close)
            stack.callback(sweep.close)
            stack.callback(backend.close)
            if todo and first.cluster.kind == "existing":
                stack.enter_context(series)
            if todo:
                backend.require((spec.config for spec in specs), todo)
            run_graph(todo, backend, progress, sweep.on_stage_done, on_start=sweep.finish_ready)
        summaries = sweep.summaries()
        listener.finished(sweep.rows(), first.evaluation.measures)
        sweep.draw()
        sweep.raise_failures()
    return summaries


def _shared_settings(specs: Sequence[CellSpec]) -> RunConfig:
    """The first cell's configuration; all cells have its store, cluster and tracking."""
    first = specs[0].config
    for spec in specs[1:]:
        for part in ("store", "cluster", "tracking"):
            if getattr(spec.config, part) != getattr(first, part):
                what = f"a sweep can use only one {part}"
                raise DesaError(what, where=part, hint="run two sweeps")
    return first


def _announce(
    cells: Sequence[Cell], todo: list[Stage], config: RunConfig, store: Store, listener: Listener
) -> None:
    """Tell what validation counted, and what will be computed."""
    for line in dict.fromkeys(line for cell in cells for line in collection_notes(cell)):
        listener.note(line)
    for line in dict.fromkeys(line for cell in cells for line in cell.devices):
        listener.note(line)
    listener.note(f"{counted(len(cells), 'cell')}, {counted(len(todo), 'stage')} to compute")
    listener.planned(todo, lambda: plan_stages(store, todo, config.cluster, this_machine()))
    if not todo and config.cluster.kind == "existing":
        listener.note("everything is stored: the cluster is not used")
