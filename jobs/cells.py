"""Runs cells as one graph: the union of their missing stages, each once, on one session.

Stages run in an order that keeps a loaded model at work; a cell is written and logged as soon as its last stage is
stored, so an interrupted sweep keeps what it has and the rerun goes on from there. A plan without misses starts neither
Ray nor any engine.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from desa_ray.cluster.metrics import CountingProgress
from desa_ray.config import RunConfig
from desa_ray.core.metrics import metric_name
from desa_ray.errors import DesaError, Problems
from desa_ray.pipeline.execute import Progress, missing, run_stage, schedule
from desa_ray.pipeline.executor import Executor, SerialExecutor
from desa_ray.pipeline.graph import Builder, Cell
from desa_ray.pipeline.stage import Stage, ancestors
from desa_ray.store.artifacts import Store
from jobs.console import ConsoleProgress, cells_table, note
from jobs.finishing import finish_cell, noticed
from jobs.outputs import write_json
from jobs.settings import Order, home, store_root, tracking_uri


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
        self._started().map(pool, tasks, done)

    def workers_for(self, pool, tasks: int) -> int:
        return self._started().workers_for(pool, tasks)

    def _started(self) -> Executor:
        if self.executor is None:
            self.executor = self._start()
        return self.executor

    def require(self, configs: Iterable[RunConfig], todo: Sequence[Stage]) -> None:
        """Join a running cluster now, and refuse it where a node lacks what they need, or none holds a worker."""
        if self.config.kind == "existing" and self.executor is None:
            from desa_ray.cluster.preflight import check_nodes, needs_of
            from desa_ray.cluster.resources import check_pools

            self.executor = self._start()
            check_pools([stage.work.pool for stage in todo if stage.work.pool is not None])
            check_nodes(needs_of(configs, home=home(), store_root=self.store.files.root))

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

    Orders of one call share the first one's store, cluster and tracking settings. A cell that fails fails alone: the
    others finish, and the errors are raised together at the end.
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
    for line in dict.fromkeys(line for cell in cells for line in noticed(cell)):
        note(line)
    note(f"{len(cells)} cells, {len(todo)} stages to compute")
    if not todo and first.cluster.kind == "existing":
        note("everything is stored: the cluster is not used")
    sweep = _Sweep(store, orders, cells, tracker, summary)
    console = ConsoleProgress()
    open_keys = {stage.key.digest for stage in todo}
    needed = ancestors([target for cell in cells for target in cell.targets])
    progress = CountingProgress(console, store, [stage for stage in needed if stage.key.digest not in open_keys])
    with ExitStack() as stack:
        stack.callback(console.close)
        executor = LazyExecutor(first, store, stack.enter_context(ExitStack()))
        if todo:
            executor.require((order.config for order in orders), todo)
        sweep.finish_ready()
        for stage in schedule(todo):
            sweep.run(stage, executor, progress)
    if shown := sweep.shown():
        extra = [metric_name(measure) for measure in first.evaluation.measures]
        Console(width=None if Console().is_terminal else 160).print(cells_table(shown, extra))
    sweep.raise_failures()
    return shown


class _Sweep:
    """The books of a sweep: which cells still need which stages, what they gave, and what failed them."""

    def __init__(
        self, store: Store, orders: Sequence[Order], cells: Sequence[Cell], tracker: Any, summary: Path | None
    ):
        self.store, self.orders, self.cells, self.tracker, self.summary = store, orders, cells, tracker, summary
        self.needs = [{stage.key.digest for stage in missing(store, cell.targets)} for cell in cells]
        # A stage that several cells share counts as computed for the first of them.
        self.fresh = [len(own - set().union(*self.needs[:number])) for number, own in enumerate(self.needs)]
        self.computed: set[str] = set()
        self.broken: dict[str, DesaError] = {}
        self.entries: dict[int, dict[str, Any]] = {}
        self.failures: dict[int, DesaError] = {}

    def run(self, stage: Stage, executor: Executor, progress: Progress) -> None:
        """Compute one stage, or mark it broken where it or one of its inputs fails; then finish what is complete."""
        error = next((self.broken[s.key.digest] for s in stage.inputs.values() if s.key.digest in self.broken), None)
        if error is None:
            try:
                run_stage(self.store, stage, executor, progress)
            except DesaError as failure:
                error = failure
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
                self.failures[number] = self.broken[next(iter(lost))]
            elif self.needs[number] <= self.computed:
                try:
                    self.entries[number] = finish_cell(self.store, order, cell, self.fresh[number], self.tracker)
                except DesaError as error:
                    self.failures[number] = error
            else:
                continue
            self._write()

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
            raise Problems(
                DesaError(str(error), where=f"failed: {self._name(number)}")
                for number, error in sorted(self.failures.items())
            )


def _tracker(config: RunConfig):
    if not config.tracking.enabled:
        return None
    from desa_ray.tracking.runs import Tracker

    uri = tracking_uri(config.tracking)
    home().mkdir(parents=True, exist_ok=True)
    tracker = Tracker(uri, home() / "mlartifacts")
    write_json(home() / "last_tracking.json", {"uri": uri})
    return tracker
