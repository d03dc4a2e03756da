"""Who runs shards: an executor maps tasks over a pool of workers, in any order, each task exactly once.

`SerialExecutor` needs no cluster: it is the reference whose bytes the Ray executor must reproduce, and the easiest
place to debug. Engines that must not share a process (the JVM) get a child process each.
"""

from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from desa_ray.config import ClusterConfig
from desa_ray.errors import PoisonShard
from desa_ray.locks import TURN
from desa_ray.pipeline.child import Child
from desa_ray.pipeline.stage import Pool, Task
from desa_ray.pipeline.worker import Worker

START_TIMEOUT_S = 600.0  # for a worker of a pool to come up
END_S = 10.0  # for an idle child to clear up after itself


class Stopped(Exception):
    """Our own signal that the run is on its way out."""


def lost_too_often(task: Task, failures: int, last: str) -> PoisonShard:
    """What stops a run: a shard that failed as often as `cluster.max_failures` says, with its worker each time."""
    mend = "look for an out-of-memory kill, lower cluster.memory_gb or cluster.shard_*, then rerun"
    return PoisonShard(f"failed {failures} times; last: {last}", where=str(task), mend=mend)


def quiet_s(config: ClusterConfig) -> float:
    """How long a stage that has a pool's workers may go without a sign: a shard's limit, and a worker's start."""
    return config.shard_timeout_s + START_TIMEOUT_S + TURN.limit_s


class Executor(Protocol):
    """Runs tasks on the workers of a pool; returns when all are done or raises the first lasting failure."""

    @property
    def max_parallel_stages(self) -> int:
        """How many stages may run side by side; with more than one, `map` is called from several threads."""
        ...

    def rank(self, pool: Pool) -> tuple[int, int]:
        """Where a ready stage of this pool stands among others: lower starts first."""
        ...

    def admit(self, pool: Pool, keep: Set[str]) -> bool:
        """Reserve the pool for a stage if it is up, or a worker fits beside the pools at work and those in `keep`."""
        ...

    def release(self, pool: Pool) -> None:
        """A stage for which the pool was reserved is over."""
        ...

    def turn(self, pool: Pool) -> AbstractContextManager[object]:
        """Waits until no other stage has the pool's workers; they are this stage's for the length of the block."""
        ...

    def stop(self) -> None:
        """Make every `map` that runs raise as soon as it looks; for the way out after an interrupt."""
        ...

    def map(self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None]) -> None: ...

    def workers_for(self, pool: Pool, tasks: int) -> int:
        """How many workers so many tasks are spread over; manifests note it, so that later times can be estimated."""
        ...

    def close(self) -> None: ...


class WithoutRivals:
    """What an executor answers whose pools never compete for room."""

    def rank(self, pool: Pool) -> tuple[int, int]:
        return (1, 0)

    def admit(self, pool: Pool, keep: Set[str]) -> bool:
        return True

    def release(self, pool: Pool) -> None: ...


class SerialExecutor(WithoutRivals):
    """One shard after another in this process (isolated pools: in one child process each)."""

    max_parallel_stages = 1

    def __init__(self, store_root: str):
        self.store_root = store_root
        self.workers: dict[str, Worker] = {}
        self.children: dict[str, Child] = {}

    def turn(self, pool: Pool) -> AbstractContextManager[object]:
        return nullcontext()

    def stop(self) -> None: ...

    def map(self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None]) -> None:
        for task in tasks:
            if pool.isolated:
                self._run_in_child(pool, task)
            else:
                if pool.name not in self.workers:
                    self.workers[pool.name] = Worker(pool, self.store_root)
                self.workers[pool.name].run(task)
            done(task)

    def workers_for(self, pool: Pool, tasks: int) -> int:
        return 1

    def _run_in_child(self, pool: Pool, task: Task) -> None:
        if pool.name not in self.children:
            self.children[pool.name] = Child(pool, self.store_root, quiet=False)
        child = self.children[pool.name]
        child.hand(task)
        try:
            error = child.answer()
        except (EOFError, OSError) as failure:
            self.children.pop(pool.name).end(END_S)
            what = f"the process that computed it ended with exit status {child.process.returncode}"
            raise PoisonShard(what, where=str(task), mend="look for an out-of-memory kill, then rerun") from failure
        except BaseException:  # an interrupt: it is still at the task
            self.children.pop(pool.name).kill()
            raise
        if error is not None:
            raise error

    def close(self) -> None:
        while self.children:
            self.children.popitem()[1].end(END_S)
        self.workers.clear()
