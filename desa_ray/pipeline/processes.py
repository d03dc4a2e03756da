"""Worker processes of the driver's own, for plans whose workers hold nothing but what they read from the store.

Another kappa or k fuses and does nothing else; a cluster takes longer to start than that. The rules are those of the
actor pools (`desa_ray.cluster.executor`): a process that dies is replaced and its shard handed out again, up to
`max_failures` times; an error of the shard's own stops the run. A process whose driver is gone ends after its shard.
"""

import gc
import os
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from desa_ray.config import ClusterConfig
from desa_ray.crash import began
from desa_ray.error_boundary import error_boundary
from desa_ray.errors import DesaError
from desa_ray.pipeline.executor import Stopped, WithoutRivals, Worker, lost_too_often
from desa_ray.pipeline.feasible import capacity
from desa_ray.pipeline.machine import this_machine
from desa_ray.pipeline.stage import Pool, Stage, Task
from desa_ray.store.files import COPIES
from desa_ray.temporary import sweep

POLL_S = 0.2
MAX_PARALLEL_STAGES = 2
START_TIMEOUT_S = 600.0


def suits(config: ClusterConfig, stages: Sequence[Stage]) -> bool:
    """Whether processes of a local run can compute all of the stages: they need one kind of light worker."""
    pools = {stage.work.pool.name: stage.work.pool for stage in stages if stage.work.pool is not None}
    return config.kind == "local" and len(pools) == 1 and all(pool.light and not pool.gpus for pool in pools.values())


class _Process:
    """A worker process and what it is doing. It imports nothing of the driver's main module, unlike Python's own pools.

    In a session of its own, so that a Ctrl-C at the terminal reaches the driver alone, which then ends this one.
    """

    def __init__(self, pool: Pool, store_root: str):
        self.line, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        self.task: Task | None = None
        self.since, self.up = time.monotonic(), False
        self._send((pool, store_root, gc.get_threshold()))

    def hand(self, task: Task) -> None:
        self.task, self.since = task, time.monotonic()
        self._send(task)

    def _send(self, what: Any) -> None:
        with suppress(BrokenPipeError):  # it died meanwhile: the line's end tells
            self.line.send(what)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.line.close()


class ProcessExecutor(WithoutRivals):
    """Maps tasks over processes of this machine, for stages of one pool."""

    max_parallel_stages = MAX_PARALLEL_STAGES

    def __init__(self, store_root: str, config: ClusterConfig):
        self.store_root, self.config = store_root, config
        self.processes: list[_Process] = []
        self._turn, self._stopping = threading.Lock(), threading.Event()

    def start(self, pool: Pool) -> None:
        """Begin to bring all workers up."""
        self._grow(pool, self.workers_for(pool, 1 << 20))

    def turn(self, pool: Pool) -> AbstractContextManager[object]:
        return self._turn

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
        waiting, failures, starts = deque(tasks), Counter[int](), 0
        while waiting or any(process.task for process in self.processes):
            if self._stopping.is_set():
                raise Stopped
            self._grow(pool, self.workers_for(pool, len(tasks)))
            for process in self.processes:
                if waiting and process.up and process.task is None:
                    process.hand(waiting.popleft())
            lines: dict[Any, _Process] = {process.line: process for process in self.processes}
            for line in wait(list(lines), timeout=POLL_S):
                process = lines[line]
                task, process.task = process.task, None
                try:
                    error = process.line.recv()
                except (EOFError, OSError):
                    self.processes.remove(process)
                    process.end()
                    if not process.up:
                        starts += 1
                        self._check_starts(pool, starts, f"exit status {process.process.returncode}")
                    if task is not None:
                        failures[task.shard.number] += 1
                        what = f"its process ended with exit status {process.process.returncode}"
                        if failures[task.shard.number] >= self.config.max_failures:
                            raise lost_too_often(task, failures[task.shard.number], what) from None
                        waiting.append(task)
                    continue
                if not process.up:
                    process.up, starts = True, 0
                    continue
                if error is not None:
                    raise error
                assert task is not None
                done(task)
            for process in self.processes:
                busy = process.task is not None or not process.up
                limit_s = self.config.shard_timeout_s if process.up else START_TIMEOUT_S
                if busy and time.monotonic() - process.since > limit_s:
                    process.process.kill()  # the line's end tells

    def _check_starts(self, pool: Pool, starts: int, how: str) -> None:
        """Stop where processes die before they take a shard, as often as the run allows."""
        if starts >= self.config.max_failures:
            what = f"{starts} worker processes ended before they were up; last: {how}"
            mend = "look for an out-of-memory kill, or use cluster=serial, which shows the cause"
            raise DesaError(what, where=f"pool {pool.name}", mend=mend)

    def _grow(self, pool: Pool, wanted: int) -> None:
        while len(self.processes) < wanted:
            self.processes.append(_Process(pool, self.store_root))

    def close(self) -> None:
        while self.processes:
            self.processes.pop().end()
        sweep(COPIES)  # theirs, of remote files


def serve(descriptor: int) -> None:
    """A worker process: says that it is up, then answers each task with None or the error that it raised."""
    with Connection(descriptor) as line, suppress(EOFError):  # the line ends when the driver is gone
        pool, store_root, thresholds = line.recv()
        began(f"worker of pool {pool.name}", ())
        gc.set_threshold(*thresholds)  # as the driver's
        worker = Worker(pool, store_root)
        failed = _error_of(worker.load, f"pool {pool.name}")
        line.send(None)
        while True:
            task = line.recv()
            line.send(failed or _error_of(partial(worker.run, task), str(task)))


def _error_of(work: Callable[[], None], where: str) -> DesaError | None:
    """The error that work raised."""
    try:
        with error_boundary(where):
            work()
    except DesaError as error:
        return error
    return None
