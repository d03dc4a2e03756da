"""Runs cells as one graph: the union of their missing stages, each once, on one session.

Stages run in an order that keeps a loaded model at work; a cell is written and logged as soon as its last stage is
stored, so an interrupted sweep keeps what it has and the rerun goes on from there. A plan without misses starts neither
Ray nor any engine.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from desa_ray.cluster.metrics import CountingProgress
from desa_ray.config import RunConfig
from desa_ray.core.evaluation import metric_name
from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.build import Builder, Cell
from desa_ray.pipeline.concurrent import run_graph
from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.feasible import check_feasible
from desa_ray.pipeline.stage import Stage, ancestors
from desa_ray.store.artifacts import Store
from desa_ray.store.leases import Lease
from desa_ray.terminal import screen
from desa_ray.tracking.entries import now_ms
from jobs.console import ConsoleProgress, cells_table, counted, note
from jobs.finishing import finish_cell, log_failure, noticed
from jobs.lazy_executor import LazyExecutor
from jobs.outputs import write_json
from jobs.settings import Order, home, store_root
from jobs.sweep_log import logged

if TYPE_CHECKING:
    from desa_ray.tracking.sweeps import SweepLog


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


def run_cells(orders: Sequence[Order], *, summary: Path | None) -> list[dict[str, Any]]:
    """Run all orders and return their summaries; `summary` is the sweep's file, if there is one.

    Orders of one call share the first one's store, cluster and tracking settings. A cell that fails fails alone: the
    others finish, and the errors are raised together at the end.
    """
    first = orders[0].config
    for order in orders[1:]:
        for part in ("store", "cluster", "tracking"):
            if getattr(order.config, part) != getattr(first, part):
                raise DesaError(f"one sweep uses one {part}", where=part, mend="run two sweeps")
    store = open_store(first)
    with ExitStack() as around:
        lease = around.enter_context(Lease.acquire(store.files, f"run-{uuid4().hex[:12]}"))  # nothing is cleaned up now
        cells = plan(store, orders)
        lease.refer(used(cells))  # from here on, only these are left alone
        todo = missing([target for cell in cells for target in cell.targets])
        check_feasible(todo, first.cluster)
        for line in dict.fromkeys(line for cell in cells for line in noticed(cell)):
            note(line)
        note(f"{counted(len(cells), 'cell')}, {counted(len(todo), 'stage')} to compute")
        if not todo and first.cluster.kind == "existing":
            note("everything is stored: the cluster is not used")
        executor = LazyExecutor(first, store, ExitStack())
        around.callback(executor.close)
        # Ray and MLflow take seconds each to come up. Ray sets signal handlers, so it has the main thread.
        with ThreadPoolExecutor(1, thread_name_prefix="desa-log") as aside:
            opening = aside.submit(around.enter_context, logged(first, cells, summary))
            executor.begin(todo)
            log = opening.result()
        sweep = _Sweep(store, orders, cells, log, summary)
        console = ConsoleProgress()
        open_keys = {stage.key.digest for stage in todo}
        needed = ancestors([target for cell in cells for target in cell.targets])
        progress = CountingProgress(console, store, [stage for stage in needed if stage.key.digest not in open_keys])
        with ExitStack() as stack:
            stack.callback(console.close)
            stack.callback(executor.close)
            if todo:
                executor.require((order.config for order in orders), todo)
            run_graph(todo, executor, progress, sweep.settled, first=sweep.finish_ready)
        if shown := sweep.shown():
            extra = [metric_name(measure) for measure in first.evaluation.measures]
            screen(160).print(cells_table(shown, extra))
        sweep.raise_failures()
    return shown


def used(cells: Sequence[Cell]) -> list[str]:
    """Digests of the keys of everything the cells read or make."""
    return [stage.key.digest for stage in ancestors([target for cell in cells for target in cell.targets])]


class _Sweep:
    """The books of a sweep: which cells still need which stages, what they gave, and what failed them."""

    def __init__(
        self,
        store: Store,
        orders: Sequence[Order],
        cells: Sequence[Cell],
        log: "SweepLog | None",
        summary: Path | None,
    ):
        self.store, self.orders, self.cells, self.log, self.summary = store, orders, cells, log, summary
        self.started_ms = now_ms()
        self.needs = [{stage.key.digest for stage in missing(cell.targets)} for cell in cells]
        # A stage that several cells share counts as computed for the first of them.
        self.fresh = [len(own - set().union(*self.needs[:number])) for number, own in enumerate(self.needs)]
        self.computed: set[str] = set()
        self.broken: dict[str, DesaError] = {}
        self.entries: dict[int, dict[str, Any]] = {}
        self.failures: dict[int, DesaError] = {}

    def settled(self, stage: Stage, error: DesaError | None) -> None:
        """Note that a stage is stored or has failed; finish what is complete."""
        if error is not None:
            self.broken[stage.key.digest] = error
        else:
            self.computed.add(stage.key.digest)
        self.finish_ready()

    def finish_ready(self) -> None:
        """Write and log the cells whose stages are all stored; note the cells that cannot be any more."""
        for number, (order, cell) in enumerate(zip(self.orders, self.cells, strict=True)):
            if number in self.entries or number in self.failures:
                continue
            if lost := self.needs[number] & self.broken.keys():
                self._fail(number, self.broken[next(iter(lost))])
            elif self.needs[number] <= self.computed:
                try:
                    self.entries[number] = finish_cell(
                        self.store, order, cell, self.fresh[number], self.log, self.started_ms
                    )
                except (DesaError, OSError) as error:
                    self._fail(number, error if isinstance(error, DesaError) else _not_written(error, order.folder))
            else:
                continue
            self._write()

    def _fail(self, number: int, error: DesaError) -> None:
        self.failures[number] = error
        if self.log is not None:
            try:
                log_failure(self.log, self.cells[number], error, self.started_ms)
            except DesaError as unlogged:  # the other cells go on all the same
                self.failures[number] = Problems([error, unlogged])

    def _name(self, number: int) -> str:
        config = self.orders[number].config
        return f"cell {number} ({config.dataset.name} {config.method.name} kappa {config.fusion.kappa})"

    def _write(self) -> None:
        if self.summary is None:
            return
        failed = [{"cell": self._name(number), "error": str(error)} for number, error in sorted(self.failures.items())]
        write_json(self.summary, {"cells": self.shown(), **({"failed": failed} if failed else {})})

    def shown(self) -> list[dict[str, Any]]:
        return [self.entries[number] for number in sorted(self.entries)]

    def raise_failures(self) -> None:
        """One error for a single cell; for a sweep, one line a failed cell."""
        if len(self.cells) == 1 and self.failures:
            raise self.failures[0]
        if self.failures:
            raise Problems(self._named(number, error) for number, error in sorted(self.failures.items()))

    def _named(self, number: int, error: DesaError) -> DesaError:
        named = DesaError(str(error), where=f"failed: {self._name(number)}")
        named.exit_code = error.exit_code
        return named


def _not_written(error: OSError, folder: Path) -> DesaError:
    what = f"its files cannot be written: {error.strerror or error}"
    return DesaError(what, where=str(folder), mend="free the disk or mend the folder, then rerun: only this is redone")
