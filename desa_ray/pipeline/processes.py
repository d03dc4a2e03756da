"""Child processes of the driver as a transport, for plans whose workers need nothing but the
contents of the store.

Another kappa or k fuses and does nothing else; a cluster takes longer to start than that.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from desa_ray.config import ClusterConfig
from desa_ray.pipeline.child import Child
from desa_ray.pipeline.feasible import capacity
from desa_ray.pipeline.machine import this_machine
from desa_ray.pipeline.packing import Node
from desa_ray.pipeline.stage import Pool, Stage, Task
from desa_ray.pipeline.transport import Answer, Event, Lost, Share, Up
from desa_ray.store.copies import COPIES
from desa_ray.temporary import sweep

MAX_PARALLEL_STAGES = 2


def suits(config: ClusterConfig, stages: Sequence[Stage]) -> bool:
    """Whether processes of a local run can compute all of the stages: they need one kind of light
    worker.
    """
    pools = {
        stage.work.pool.name: stage.work.pool for stage in stages if stage.work.pool is not None
    }
    if config.kind != "local" or len(pools) != 1:
        return False
    return all(pool.light and not pool.gpus for pool in pools.values())


class ProcessTransport:
    """Workers as child processes, each at the other end of a pipe."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._up: set[int] = set()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def spawn(self, worker: int, pool: Pool) -> None:
        self._children[worker] = Child(pool)

    def send(self, worker: int, task: Task) -> None:
        self._children[worker].send(task)

    def poll(self, timeout_s: float) -> list[Event]:
        lines: dict[Any, int] = {child.line: number for number, child in self._children.items()}
        events: list[Event] = []
        for line in wait([*lines, self._wake_read], timeout=timeout_s):
            if line == self._wake_read:
                os.read(self._wake_read, 1 << 16)
            elif isinstance(line, Connection):
                events.append(self._event(lines[line]))
        return events

    def _event(self, number: int) -> Event:
        child = self._children[number]
        try:
            answer = child.receive()
        except (EOFError, OSError):
            del self._children[number]
            self._up.discard(number)
            child.kill()
            return Lost(number, f"its process ended with exit status {child.process.returncode}")
        if number not in self._up:
            self._up.add(number)
            return Up(number)
        return Answer(number, answer)

    def wake(self) -> None:
        with suppress(OSError):  # full, which wakes as well; or closed
            os.write(self._wake_write, b"w")

    def kill(self, worker: int) -> None:
        self._children[worker].process.kill()  # the line's end tells

    def end(self, workers: Sequence[int]) -> None:
        for worker in workers:
            child = self._children.pop(worker, None)
            self._up.discard(worker)
            if child is not None:
                child.kill()

    def check(self) -> None: ...

    def close(self) -> None:
        self.end(list(self._children))
        sweep(COPIES)  # theirs, of remote files
        for descriptor in (self._wake_read, self._wake_write):
            os.close(descriptor)


class MachinePlacement:
    """Places on this machine, for one pool at a time."""

    shared = False

    def __init__(self, config: ClusterConfig):
        self.config = config

    def capacity(self, pool: Pool) -> int:
        return max(1, capacity(pool, self.config, this_machine()))

    def nodes(self) -> Mapping[str, Node]:
        return {"": Node(self.config.cpus or this_machine().cpus)}

    def share(self, held: tuple[float, float], waiting: Pool | None) -> Share:
        return Share()

    def usage(self) -> str:
        return ""
