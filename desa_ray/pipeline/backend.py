"""Backends compute shards: a backend takes the shards of a stage and returns when each has been
computed exactly once.

`desa_ray.pipeline.serial` computes them in this process and is the reference whose bytes every
other backend must reproduce. `desa_ray.pipeline.supervisor` hands them to workers, over Ray or over
processes of this machine.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from desa_ray.errors import DesaError, PoisonShard
from desa_ray.pipeline.stage import Pool, Task


class Stopped(Exception):
    """Our own signal that the run is on its way out."""


class LostCluster(DesaError):
    """The cluster below all workers is dead; a backend that started it may be able to start
    another.
    """


def lost_too_often(task: Task | str, failures: int, last: str) -> PoisonShard:
    """What stops a run: a shard, or the engine of a pool, that failed as often as
    `cluster.max_failures` says, with its worker each time.
    """
    hint = "look for an out-of-memory kill, lower cluster.memory_gb or cluster.shard_*, then rerun"
    return PoisonShard(f"failed {failures} times; last: {last}", where=str(task), hint=hint)


class Backend(Protocol):
    """Computes shards on the workers of a pool; raises the first lasting failure."""

    @property
    def max_parallel_stages(self) -> int:
        """How many stages may run side by side; with more than one, `compute` is called from
        several threads.
        """
        ...

    def compute(
        self,
        pool: Pool,
        tasks: Sequence[Task],
        on_start: Callable[[], None],
        on_done: Callable[[Task], None],
    ) -> int:
        """Compute all tasks of a stage; returns how many workers they were spread over.

        Args:
            on_start: called once, when the first task is handed to a worker.
            on_done: called for every task that is done.
        """
        ...

    def expect(self, pools: frozenset[str]) -> None:
        """The names of all pools that stages still to be computed need: an engine of theirs may be
        kept.
        """
        ...

    def stop(self) -> None:
        """Make every `compute` that runs raise as soon as it looks; for the way out after an
        interrupt.
        """
        ...

    def recover(self, loss: LostCluster) -> None:
        """Start the lost cluster again, with no `compute` at work; raises a DesaError where that is
        not possible.
        """
        ...

    def close(self) -> None:
        """End all workers."""
        ...
