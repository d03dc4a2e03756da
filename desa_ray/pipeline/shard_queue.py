"""The queue of shards that a supervisor hands out: items of any number of stages, and a policy that
picks the next.

Every stage that is being computed is one entry: its open shards, those in flight, and how it ended.
What is handed out next is the policy's choice alone.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from desa_ray.pipeline.stage import Pool, Task


@dataclass
class StageShards:
    """The shards of one stage on their way through the workers of its pool.

    Attributes:
        open: shards that nobody works on.
        last: those of them that a worker computes alone, as their last attempt, so that none is
            blamed for another one.
        in_flight: how many are being computed.
        failures: shard number -> how often it was lost with its worker.
        node_losses: shard number -> how often it was lost with its worker's node.
        most_workers: how many workers the pool had at most while shards were handed out.
    """

    pool: Pool
    open: deque[Task]
    on_start: Callable[[], None]
    on_done: Callable[[Task], None]
    total: int
    in_flight: int = 0
    started: bool = False
    most_workers: int = 1
    failures: Counter[int] = field(default_factory=Counter)
    node_losses: Counter[int] = field(default_factory=Counter)
    last: deque[Task] = field(default_factory=deque)
    error: BaseException | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def end(self, error: BaseException | None = None) -> None:
        """No shard of it is handed out any more; who waits for the stage goes on, or gets the
        error.
        """
        if not self.over.is_set():
            self.error = error
            self.open.clear()
            self.last.clear()
            self.over.set()

    @property
    def done(self) -> bool:
        return not (self.open or self.last or self.in_flight)


class Policy(Protocol):
    """Which stage of a pool the next free worker gets a shard of."""

    def choose(self, stages: Sequence[StageShards]) -> StageShards | None:
        """One of the pool's stages with open shards, which are in the order of their arrival; None
        to wait.
        """
        ...


class OneStageAtATime:
    """A pool computes its stages one after the other: the next begins when all shards of the first
    are done.
    """

    def choose(self, stages: Sequence[StageShards]) -> StageShards | None:
        return stages[0] if stages and stages[0].open else None


class FirstOpen:
    """A free worker takes the next shard of the first stage that has one: none waits for the last
    shards of a stage while another stage of its pool is ready.
    """

    def choose(self, stages: Sequence[StageShards]) -> StageShards | None:
        return next((stage for stage in stages if stage.open), None)


class ShardQueue:
    """The stages in work, by pool."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self._stages: list[StageShards] = []

    def add(self, stage: StageShards) -> None:
        self._stages.append(stage)

    def remove(self, stage: StageShards) -> None:
        self._stages = [other for other in self._stages if other is not stage]

    def stages(self, pool: Pool | None = None) -> list[StageShards]:
        """Those of one pool, or all, in the order of their arrival."""
        return [stage for stage in self._stages if pool is None or stage.pool.name == pool.name]

    def pools(self) -> list[Pool]:
        """Pools with stages in work, each once, the longest waiting first."""
        return list({stage.pool.name: stage.pool for stage in self._stages}.values())

    def next(self, pool: Pool) -> tuple[StageShards, Task] | None:
        """Take the shard that the pool's next free worker computes."""
        stage = self.policy.choose(self.stages(pool))
        return None if stage is None else (stage, stage.open.popleft())

    def alone(self, pool: Pool) -> StageShards | None:
        """The first stage of the pool with a shard that a worker must compute alone."""
        return next((stage for stage in self.stages(pool) if stage.last), None)

    def left(self, pool: Pool) -> int:
        """Shards of the pool that are not done."""
        return sum(
            len(stage.open) + len(stage.last) + stage.in_flight for stage in self.stages(pool)
        )
