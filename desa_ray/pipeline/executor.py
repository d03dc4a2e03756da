"""Who runs shards: an executor maps tasks over a pool of workers, in any order, each task exactly once.

`SerialExecutor` needs no cluster: it is the reference whose bytes the Ray executor must reproduce, and the easiest
place to debug. Engines that must not share a process (the JVM) get a spawned child each.
"""

import multiprocessing
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from desa_ray.crash import began
from desa_ray.error_boundary import error_boundary
from desa_ray.errors import DesaError, PoisonShard
from desa_ray.pipeline.stage import Pool, Task
from desa_ray.store.artifacts import Store


class Worker:
    """An engine, loaded once by the first task (so that its error is that task's), and the store it works on."""

    def __init__(self, pool: Pool, store_root: str):
        self.pool, self.store = pool, Store(store_root)
        self.engine: Any = None

    def load(self) -> None:
        """Load the engine, if that was not done yet."""
        if self.engine is None:
            self.engine = self.pool.factory()

    def run(self, task: Task) -> None:
        """Compute one shard; whatever goes wrong is an error for the user, also beyond this process."""
        with error_boundary(str(task)):
            self.load()
            task.stage.work.run(self.engine, task.stage, task.shard)


class Stopped(Exception):
    """Our own signal that the run is on its way out."""


class LostCluster(DesaError):
    """The cluster below all workers is dead; an executor that started it may be able to start another."""


def lost_too_often(task: Task, failures: int, last: str) -> PoisonShard:
    """What stops a run: a shard that failed as often as `cluster.max_failures` says, with its worker each time."""
    mend = "look for an out-of-memory kill, lower cluster.memory_gb or cluster.shard_*, then rerun"
    return PoisonShard(f"failed {failures} times; last: {last}", where=str(task), mend=mend)


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

    def recover(self, loss: LostCluster) -> None:
        """Start the lost cluster again, with no `map` at work; raises a DesaError where that is not possible."""
        ...

    def close(self) -> None: ...


class WithoutRivals:
    """What an executor answers whose pools never compete for room, and that has no cluster to lose."""

    def rank(self, pool: Pool) -> tuple[int, int]:
        return (1, 0)

    def admit(self, pool: Pool, keep: Set[str]) -> bool:
        return True

    def release(self, pool: Pool) -> None: ...

    def recover(self, loss: LostCluster) -> None:
        raise loss


class SerialExecutor(WithoutRivals):
    """One shard after another in this process (isolated pools: in one child process each)."""

    max_parallel_stages = 1

    def __init__(self, store_root: str):
        self.store_root = store_root
        self.workers: dict[str, Worker] = {}
        self.children: dict[str, ProcessPoolExecutor] = {}

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
            self.children[pool.name] = ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), initializer=_start_child, initargs=(pool, self.store_root)
            )
        try:
            self.children[pool.name].submit(_run_child, task).result()
        except BrokenProcessPool as error:
            del self.children[pool.name]
            raise PoisonShard(
                "the process that computed it died", where=str(task), mend="look for an out-of-memory kill, then rerun"
            ) from error

    def close(self) -> None:
        for child in self.children.values():
            child.shutdown(cancel_futures=True)
        self.children.clear()
        self.workers.clear()


_child: dict[str, Worker] = {}


def _start_child(pool: Pool, store_root: str) -> None:
    began(f"worker of pool {pool.name}", ())
    _child["worker"] = Worker(pool, store_root)


def _run_child(task: Task) -> None:
    _child["worker"].run(task)
