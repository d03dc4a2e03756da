"""Worker processes of the driver's own, for plans whose workers hold nothing but what they read from the store.

Another kappa or k fuses and does nothing else; a cluster takes longer to start than that. The rules are those of the
actor pools (`desa_ray.cluster.executor`): a process that dies is replaced and its shard handed out again, up to
`max_failures` times; an error of the shard's own stops the run. A process whose driver is gone ends at once.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import wait
from typing import Any

from desa_ray.config import ClusterConfig
from desa_ray.locks import Turn
from desa_ray.pipeline.child import Child
from desa_ray.pipeline.executor import END_S, Stopped, WithoutRivals, lost_too_often, quiet_s
from desa_ray.pipeline.feasible import capacity
from desa_ray.pipeline.machine import this_machine
from desa_ray.pipeline.stage import Pool, Stage, Task

POLL_S = 0.2
MAX_PARALLEL_STAGES = 2


def suits(config: ClusterConfig, stages: Sequence[Stage]) -> bool:
    """Whether processes of a local run can compute all of the stages: they need one kind of light worker."""
    pools = {stage.work.pool.name: stage.work.pool for stage in stages if stage.work.pool is not None}
    return config.kind == "local" and len(pools) == 1 and all(pool.light and not pool.gpus for pool in pools.values())


class ProcessExecutor(WithoutRivals):
    """Maps tasks over processes of this machine, for stages of one pool."""

    max_parallel_stages = MAX_PARALLEL_STAGES

    def __init__(self, store_root: str, config: ClusterConfig):
        self.store_root, self.config = store_root, config
        self.processes: list[Child] = []
        self._stopping = threading.Event()
        self._turn = Turn(quiet_s(config), self._stopping, Stopped)

    def start(self, pool: Pool) -> None:
        """Begin to bring all workers up."""
        self._grow(pool, self.workers_for(pool, 1 << 20))

    def turn(self, pool: Pool) -> AbstractContextManager[object]:
        return self._turn.taken()

    def stop(self) -> None:
        self._stopping.set()

    def workers_for(self, pool: Pool, tasks: int) -> int:
        held = capacity(pool, self.config, this_machine())
        return max(1, min(pool.size or held, tasks, held))

    def map(self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None]) -> None:
        try:
            self._supervise(pool, tasks, done)
        except BaseException:  # others may still be at a shard of this stage: the next one gets fresh processes
            self.close()
            raise

    def _supervise(self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None]) -> None:
        waiting, failures = deque(tasks), Counter[int]()
        while waiting or any(process.task for process in self.processes):
            if self._stopping.is_set():
                raise Stopped
            self._grow(pool, self.workers_for(pool, len(tasks)))
            for process in self.processes:
                if waiting and process.task is None:
                    process.hand(waiting.popleft())
            lines: dict[Any, Child] = {process.line: process for process in self.processes}
            for line in wait(list(lines), timeout=POLL_S):
                process = lines[line]
                task = process.task
                self._turn.beat()
                try:
                    error = process.answer()
                except (EOFError, OSError):
                    self.processes.remove(process)
                    process.end(END_S)
                    if task is not None:
                        failures[task.shard.number] += 1
                        what = f"its process ended with exit status {process.process.returncode}"
                        if failures[task.shard.number] >= self.config.max_failures:
                            raise lost_too_often(task, failures[task.shard.number], what) from None
                        waiting.append(task)
                    continue
                if error is not None:
                    raise error
                assert task is not None
                done(task)
            for process in self.processes:
                if process.task is not None and time.monotonic() - process.since > self.config.shard_timeout_s:
                    process.process.kill()  # the line's end tells

    def _grow(self, pool: Pool, wanted: int) -> None:
        while len(self.processes) < wanted:
            self.processes.append(Child(pool, self.store_root))

    def close(self) -> None:
        while self.processes:
            self.processes.pop().end()
