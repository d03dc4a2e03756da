"""Runs the missing stages of a plan, in parallel if the backend computes several at once.

The calling thread decides everything: what may start, what is done, what failed. A stage runs in a
thread of its own, which mostly waits for its shards. Of each pool several stages are begun: their
shards are one queue for its workers. A stage that fails takes
only those with it that need it. A stage that lost the whole cluster has not failed: it begins
again, with its stored shards, once the backend has started another.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from desa_ray.errors import DesaError
from desa_ray.pipeline.backend import Backend, LostCluster
from desa_ray.pipeline.execute import StageListener, ready, run_stage, schedule
from desa_ray.pipeline.stage import Stage

POLL_S = 0.5
# Begun at once per pool: their shards are one queue, so that no worker waits while a stage is laid
# out, ends or is being finished.
STAGES_PER_POOL = 8

OnStageDone = Callable[[Stage, DesaError | None], None]


def run_graph(
    todo: Sequence[Stage],
    backend: Backend,
    progress: StageListener,
    on_stage_done: OnStageDone,
    on_start: Callable[[], None] = lambda: None,
) -> None:
    """Compute the stages; `on_stage_done(stage, error)` is called as each is stored or has failed.

    `on_start` is called once before those. The calls come one after the other: where stages run in
    parallel, from a thread of their own. The backend is closed when no stage needs it any more,
    while the last calls are still going on. An interrupt (or an error that is no DesaError, of a
    stage or a call) stops all stages and is raised.
    """
    if not any(stage.work.pool for stage in todo) or backend.max_parallel_stages == 1:
        # No workers: no cluster either
        on_start()
        _run_in_turn(todo, backend, progress, on_stage_done)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="desa-callbacks") as callbacks:
        threads = STAGES_PER_POOL * backend.max_parallel_stages
        with ThreadPoolExecutor(threads, thread_name_prefix="desa-stage") as pool:
            run = _ParallelRun(todo, backend, progress, on_stage_done, callbacks, pool)
            run.call(on_start)
            try:
                run.to_the_end()
            except BaseException:
                backend.stop()
                callbacks.shutdown(wait=False, cancel_futures=True)
                raise


def _run_in_turn(
    todo: Sequence[Stage], backend: Backend, progress: StageListener, on_stage_done: OnStageDone
) -> None:
    broken: dict[str, DesaError] = {}
    for stage in schedule(todo):
        error = _inherited(stage, broken)
        if error is None:
            try:
                run_stage(stage, backend, progress)
            except DesaError as failure:
                error = failure
        if error is not None:
            broken[stage.key.digest] = error
        on_stage_done(stage, error)


@dataclass
class _ParallelRun:
    """The stages that are left, those that run, and those that failed."""

    todo: Sequence[Stage]
    backend: Backend
    progress: StageListener
    on_stage_done: OnStageDone
    callbacks: ThreadPoolExecutor
    threads: ThreadPoolExecutor
    remaining: dict[str, Stage] = field(init=False)
    running: dict[Future[None], Stage] = field(default_factory=dict)
    broken: dict[str, DesaError] = field(default_factory=dict)
    called: deque[Future[None]] = field(default_factory=deque)
    loss: LostCluster | None = None
    behind: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.remaining = {stage.key.digest: stage for stage in self.todo}
        self.behind = followers(self.todo)

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        """Have a callback called after those before it."""
        self.called.append(self.callbacks.submit(function, *arguments))

    def to_the_end(self) -> None:
        """Compute all stages; returns when the last callback is through."""
        while self.remaining:
            if self.loss is not None and not self.running:
                self._recover(self.loss)
            if self.loss is None:
                self._start()
            while self.called and self.called[0].done():
                self.called.popleft().result()
            finished, _ = wait(self.running, timeout=POLL_S, return_when=FIRST_COMPLETED)
            for future in finished:
                self._take(future)
        self.backend.close()
        while self.called:
            self.called.popleft().result()

    def _start(self) -> None:
        left = (stage.work.pool for stage in self.remaining.values())
        self.backend.expect(frozenset(pool.name for pool in left if pool))
        for stage in self._startable():
            error = _inherited(stage, self.broken)
            if error is not None:
                self._done(stage, error)
            else:
                future = self.threads.submit(run_stage, stage, self.backend, self.progress)
                self.running[future] = stage

    def _startable(self) -> list[Stage]:
        """Ready stages that may start now: cheap work first, then those with the longest chains
        behind them, then in the order of the plan.
        """
        begun = {stage.key.digest for stage in self.running.values()}
        busy = Counter(_pool_name(stage) for stage in self.running.values())
        waiting = [stage for stage in ready(self.remaining) if stage.key.digest not in begun]
        waiting.sort(
            key=lambda stage: (stage.work.pool is not None, -self.behind[stage.key.digest])
        )
        chosen: list[Stage] = []
        for stage in waiting:
            pool_name = _pool_name(stage)
            full = busy[pool_name] >= STAGES_PER_POOL
            if full or (not busy[pool_name] and len(busy) >= self.backend.max_parallel_stages):
                continue
            busy[pool_name] += 1
            chosen.append(stage)
        return chosen

    def _take(self, future: Future[None]) -> None:
        stage = self.running.pop(future)
        try:
            future.result()
        except LostCluster as loss:
            self.loss = loss
        except DesaError as failure:
            self._done(stage, failure)
        else:
            self._done(stage, None)

    def _done(self, stage: Stage, error: DesaError | None) -> None:
        if error is not None:
            self.broken[stage.key.digest] = error
        del self.remaining[stage.key.digest]
        self.call(self.on_stage_done, stage, error)

    def _recover(self, loss: LostCluster) -> None:
        try:
            self.backend.recover(loss)
            self.loss = None
        except DesaError as failure:
            for stage in list(self.remaining.values()):
                self._done(stage, failure)


def followers(todo: Sequence[Stage]) -> dict[str, int]:
    """By key: how many stages the longest chain of those has that wait for a stage, one for the
    other.
    """
    behind = dict.fromkeys((stage.key.digest for stage in todo), 0)
    for stage in reversed(list(schedule(todo))):  # users before their inputs
        for source in stage.inputs.values():
            if source.key.digest in behind:
                longest = max(behind[source.key.digest], behind[stage.key.digest] + 1)
                behind[source.key.digest] = longest
    return behind


def _pool_name(stage: Stage) -> str:
    """What stages queue for: their pool, or nothing but themselves."""
    return stage.work.pool.name if stage.work.pool else stage.key.digest


def _inherited(stage: Stage, broken: dict[str, DesaError]) -> DesaError | None:
    """The error of an input that failed."""
    for source in stage.inputs.values():
        if source.key.digest in broken:
            return broken[source.key.digest]
    return None
