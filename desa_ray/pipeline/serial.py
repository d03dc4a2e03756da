"""The serial backend: one shard after another in this process; no cluster, and the easiest backend
to debug.

Engines that must not share a process (the JVM) get a child process each, which ends with this one.
"""

from collections.abc import Callable, Sequence

from desa_ray.errors import EngineFailed, PoisonShard
from desa_ray.pipeline.backend import LostCluster, lost_too_often
from desa_ray.pipeline.child import Child
from desa_ray.pipeline.stage import Pool, Task
from desa_ray.pipeline.worker import Worker

END_S = 10.0  # for an idle child to clear up after itself


class SerialBackend:
    """Computes each task in the calling thread; tasks of isolated pools in one child process per
    pool.

    Args:
        max_failures: how often the engine may fail at one task; each time another takes its place.
    """

    max_parallel_stages = 1

    def __init__(self, max_failures: int = 3) -> None:
        self.max_failures = max_failures
        self._workers: dict[str, Worker] = {}
        self._children: dict[str, Child] = {}

    def compute(
        self,
        pool: Pool,
        tasks: Sequence[Task],
        on_start: Callable[[], None],
        on_done: Callable[[Task], None],
    ) -> int:
        on_start()
        for task in tasks:
            self._run(pool, task)
            on_done(task)
        return 1

    def _run(self, pool: Pool, task: Task) -> None:
        failures = 0
        while True:
            try:
                if pool.isolated:
                    self._run_in_child(pool, task)
                else:
                    self._workers.setdefault(pool.name, Worker(pool)).run(task)
                return
            except EngineFailed as failure:
                failures += 1
                self._drop(pool)
                if failures >= self.max_failures:
                    raise lost_too_often(task, failures, str(failure)) from failure

    def _drop(self, pool: Pool) -> None:
        """End the engine of a pool; the next task gets another."""
        self._workers.pop(pool.name, None)
        child = self._children.pop(pool.name, None)
        if child is not None:
            child.end(END_S)

    def expect(self, pools: frozenset[str]) -> None: ...

    def stop(self) -> None: ...

    def recover(self, loss: LostCluster) -> None:
        raise loss

    def _run_in_child(self, pool: Pool, task: Task) -> None:
        try:
            if pool.name not in self._children:
                self._children[pool.name] = Child(pool, quiet=False)
                self._children[pool.name].receive()  # up
            child = self._children[pool.name]
            child.send(task)
            error = child.receive()
        except (EOFError, OSError) as failure:
            child = self._children.pop(pool.name)
            child.kill()
            what = f"the process that computed it ended with exit status {child.process.returncode}"
            hint = "look for an out-of-memory kill, then rerun"
            raise PoisonShard(what, where=str(task), hint=hint) from failure
        except BaseException:  # an interrupt: it is still at the task
            self._children.pop(pool.name).kill()
            raise
        if error is not None:
            raise error

    def close(self) -> None:
        while self._children:
            self._children.popitem()[1].end(END_S)
        self._workers.clear()
