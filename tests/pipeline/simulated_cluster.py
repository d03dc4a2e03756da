"""A simulated cluster: the real scheduler and supervisor over made-up workers and a clock of their
own.

Time passes only where nothing is left to decide: before the clock goes on, every stage that was
begun has handed in its shards, and every stage that ended was seen by the scheduler. What happens
at one moment has the order in which stages were begun, whichever thread was first: the scheduler
begins stages once all that ended at that moment were seen, and the supervisor takes in together
what they hand in. So a run of hours takes seconds, and two runs of one plan give the same times.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest.mock import patch

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError
from desa_ray.pipeline import scheduler
from desa_ray.pipeline.execute import Quiet
from desa_ray.pipeline.packing import Node
from desa_ray.pipeline.shard_queue import Policy
from desa_ray.pipeline.stage import Pool, Stage, Task
from desa_ray.pipeline.supervisor import Supervisor
from tests.pipeline.simulated_nodes import Busy, Gate, OwnNodes, SimulatedTransport


class _Supervisor(Supervisor):
    """Says when a stage has handed in its shards, and when its last shard is done."""

    def __init__(
        self,
        gate: Gate,
        transport: "SimulatedTransport",
        *arguments: Any,
        **more: Any,
    ):
        self.gate = gate
        transport.supervisor = self
        super().__init__(transport, *arguments, clock=transport.clock, **more)

    def has_news(self) -> bool:
        """Whether all stages that were begun have handed in their shards."""
        return not self._inbox.empty() and self.gate.open <= 2 * self._inbox.qsize()

    def compute(
        self,
        pool: Pool,
        tasks: Sequence[Task],
        on_start: Callable[[], None],
        on_done: Callable[[Task], None],
    ) -> int:
        left = count(len(tasks) - 1, -1)

        def done(task: Task) -> None:
            on_done(task)
            if next(left) == 0:
                self.gate.last_shard()

        self.gate.add(1)  # `_take_in` takes both back
        return super().compute(pool, tasks, on_start, done)

    def _take_in(self, *, wait_s: float | None) -> bool:
        before = len(self._queue.stages())
        if wait_s != 0:
            self.gate.wait(self.has_news)
        elif not self.has_news() and not self.gate.over:
            return True
        open_ = super()._take_in(wait_s=wait_s)
        come = self._queue.stages()[before:]
        come.sort(key=lambda stage: self.gate.begun.index(stage.open[0].stage.key.digest))
        for stage in come:  # to the end of the queue again, in the order of their beginning
            self._queue.remove(stage)
            self._queue.add(stage)
        self.gate.add(-2 * len(come))
        return open_


class _Threads:
    """An executor that counts what it was given."""

    def __init__(self, executor: ThreadPoolExecutor, gate: Gate):
        self.executor, self.gate = executor, gate

    def submit(self, function: Callable[..., Any], stage: Stage, *arguments: Any) -> Future[Any]:
        self.gate.begun.append(stage.key.digest)
        self.gate.add(1)
        return self.executor.submit(function, stage, *arguments)


class _Run(scheduler._ParallelRun):
    """The scheduler's own run; it says when the end of a stage was seen and its followers begun."""

    gate: Gate
    taken: int = 1  # the beginning counts as one
    seen: int = 0  # stages with shards that ended

    def _take(self, future: Future[None]) -> None:
        self.seen += self.running[future].work.pool is not None
        super()._take(future)
        self.taken += 1
        if not self.remaining:
            self.gate.end()

    def _start(self) -> None:
        self.gate.until_quiet()
        if self.seen < self.gate.ended:
            return
        super()._start()
        self.gate.add(-self.taken)
        self.taken = 0


@dataclass(frozen=True)
class Outcome:
    """Seconds of a simulated run, and what it used."""

    makespan_s: float
    busy: Busy

    @property
    def gpu_seconds(self) -> float:
        """GPU-seconds inside engines, loads included."""
        return sum(pool.gpus * (stop - start) for pool, start, stop in self.busy.spans)

    def utilisation(self, gpus: int, steps: int = 10) -> list[float]:
        """Share of the GPUs that is inside an engine call, in each tenth of the run."""
        width = self.makespan_s / steps
        found: list[float] = []
        for step in range(steps):
            start, stop = step * width, (step + 1) * width
            inside = [
                pool.gpus * max(0.0, min(stop, end) - max(start, begin))
                for pool, begin, end in self.busy.spans
            ]
            found.append(sum(inside) / (gpus * width))
        return found


def simulate(
    todo: Sequence[Stage],
    nodes: Mapping[str, Node],
    limits: ClusterConfig,
    *,
    load_s: Mapping[str, float],
    policy: Policy,
    max_parallel_stages: int,
) -> Outcome:
    """Run stages of `Timed` work to their end.

    Args:
        load_s: seconds until an engine is loaded, by pool.
    """
    gate = Gate()
    transport = SimulatedTransport(nodes, gate, load_s)
    supervisor = _Supervisor(
        gate,
        transport,
        OwnNodes(nodes),
        limits,
        max_parallel_stages=max_parallel_stages,
        policy=policy,
    )
    errors: list[DesaError] = []

    def told(stage: Stage, error: DesaError | None) -> None:
        errors.extend([error] if error else [])

    threads = scheduler.STAGES_PER_POOL * max_parallel_stages
    with (
        patch.object(scheduler, "run_stage", run_timed),
        ThreadPoolExecutor(1) as callbacks,
        ThreadPoolExecutor(threads) as executor,
    ):
        counted: Any = _Threads(executor, gate)
        run = _Run(todo, supervisor, Quiet(), told, callbacks, counted)
        run.gate = gate
        run.to_the_end()
    if errors:
        raise errors[0]
    return Outcome(transport.now, transport.busy)


def run_timed(stage: Stage, backend: Any, progress: Any) -> None:
    """`execute.run_stage` for work that only takes time."""
    layout = stage.work.layout(stage)
    tasks = [Task(stage, shard) for shard in stage.work.shards(layout)]
    if stage.work.pool is not None:
        backend.compute(stage.work.pool, tasks, lambda: None, lambda task: None)
