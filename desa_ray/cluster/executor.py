"""Supervised actor pools: every shard once, whatever dies.

Ray's own pools lose the item of a dead actor (ray.util.ActorPool) or can hang after one (Ray Data's fixed pools), so a
small supervisor keeps the books itself. Actors restart without limit and hold their engine for the whole session; a
shard in flight on a dying actor is handed out again. Shards are deterministic and write once, so a second run of one
is harmless. What stops a run: an error of the shard's own (bad data, a corrupt artifact) at once; a shard that killed
or outlasted its actor `max_failures` times, by name.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from desa_ray.cluster.metrics import CountingWorker, count
from desa_ray.cluster.resources import room
from desa_ray.config import ClusterConfig
from desa_ray.error_boundary import as_desa_error
from desa_ray.errors import DesaError
from desa_ray.locks import BOOKS, Turn, inside
from desa_ray.pipeline.executor import START_TIMEOUT_S, Stopped, lost_too_often, quiet_s
from desa_ray.pipeline.stage import Pool, Task

POLL_S = 0.2
RESTART_PAUSE_S = 1.0
GROW_EVERY_S = 2.0
MAX_PARALLEL_STAGES = 4  # stages side by side; each costs the driver a waiting thread


class _Actor(CountingWorker):
    """A worker as an actor; `ready` returns once its process is up, before any engine is loaded."""

    def ready(self) -> None: ...


@dataclass
class _Member:
    """An actor and what it is doing: coming up (`task` is None, `ready` pending), idle, or at a task."""

    handle: Any
    task: Task | None = None
    since: float = 0.0
    up: bool = False


@dataclass
class _Pool:
    """Actors of one kind, the stages they are reserved for, and whose turn it is."""

    spec: Pool
    turn: Turn
    members: list[_Member] = field(default_factory=list)
    stages: int = 0

    @property
    def busy(self) -> bool:
        return self.stages > 0

    @property
    def held(self) -> int:
        """Workers it takes room for: a pool that was admitted has room for one."""
        return max(len(self.members), int(self.busy))


class RayExecutor:
    """Maps tasks over actor pools of one Ray session; pools stay until room is needed for another."""

    max_parallel_stages = MAX_PARALLEL_STAGES

    def __init__(self, store_root: str, config: ClusterConfig):
        self.store_root, self.config = store_root, config
        self.pools: dict[str, _Pool] = {}
        self._lock = RLock()  # guards the books of the pools
        self._stopping = threading.Event()
        self._keep: Set[str] = frozenset()

    def rank(self, pool: Pool) -> tuple[int, int]:
        """Pools that are up before others, then small ones: a large one grows into the room that is left."""
        with inside(BOOKS, self._lock):
            return (1 if pool.name in self.pools else 2, pool.size or 1 << 20)

    def admit(self, pool: Pool, keep: Set[str]) -> bool:
        """Reserve room for one worker at least; idle pools named in `keep` are not ended for it."""
        most = room(pool)
        with inside(BOOKS, self._lock):
            own = self.pools.get(pool.name)
            if own is None or not own.held:
                if not self._fits(pool, 1, most, lambda other: other.busy or other.spec.name in keep):
                    return False
                own = own or self._new(pool)
            self.pools[pool.name] = own
            own.stages += 1
            self._keep = keep
        return True

    def release(self, pool: Pool) -> None:
        with inside(BOOKS, self._lock):
            own = self.pools.get(pool.name)
            if own is not None:
                own.stages -= 1
                if not own.held:
                    del self.pools[pool.name]

    def turn(self, pool: Pool) -> AbstractContextManager[object]:
        with inside(BOOKS, self._lock):
            return self.pools[pool.name].turn.taken()

    def _new(self, spec: Pool) -> _Pool:
        return _Pool(spec, Turn(quiet_s(self.config), self._stopping, Stopped))

    def stop(self) -> None:
        self._stopping.set()

    def map(self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None]) -> None:
        pending: dict[Any, _Member] = {}
        try:
            self._supervise(pool, tasks, done, pending)
        except BaseException:
            self._drop(pool, [member for member in pending.values() if member.task is not None])
            raise

    def _supervise(
        self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None], pending: dict[Any, _Member]
    ) -> None:
        """Hand out the tasks until all are done; `pending` holds what each member was last asked."""
        members = self._members(pool, len(tasks))
        with inside(BOOKS, self._lock):
            turn = self.pools[pool.name].turn
        waiting = deque(tasks)
        failures: Counter[int] = Counter()
        last_up = grown = time.monotonic()
        for member in members:
            if not member.up:
                pending[member.handle.ready.remote()] = member
        while waiting or any(member.task for member in pending.values()):
            if self._stopping.is_set():
                raise Stopped
            now = time.monotonic()
            if waiting and now - grown > GROW_EVERY_S:
                grown = now
                for member in self._grow(pool, len(waiting) + len(members)):
                    pending[member.handle.ready.remote()] = member
            for member in members:
                # A task goes to a process that runs: one sent to an actor without a place would wait for it.
                if waiting and member.up and member.task is None:
                    member.task, member.since = waiting.popleft(), now
                    pending[member.handle.run.remote(member.task)] = member
            finished, _ = ray.wait(list(pending), num_returns=1, timeout=POLL_S)
            for reference in finished:
                turn.beat()
                member = pending.pop(reference)
                task, member.task = member.task, None
                try:
                    ray.get(reference)
                except RayTaskError as error:
                    raise _own_error(error, task) from error
                except RayError as error:  # the actor died, or its node
                    member.up = False
                    time.sleep(RESTART_PAUSE_S)
                    pending[member.handle.ready.remote()] = member
                    if task is not None:
                        failures[task.shard.number] += 1
                        self._hand_back(task, failures[task.shard.number], waiting, error)
                else:
                    member.up, last_up = True, time.monotonic()
                    if task is not None:
                        done(task)
            self._stop_overdue(pending)
            if not any(member.up for member in members) and time.monotonic() - last_up > START_TIMEOUT_S:
                raise DesaError(
                    f"no worker of pool {pool.name} came up within {START_TIMEOUT_S:.0f} s",
                    where="cluster",
                    mend="free resources on the cluster, then rerun",
                )

    def _drop(self, spec: Pool, members: Sequence[_Member]) -> None:
        """End members that are still at a shard of a stage that failed: the next stage gets fresh ones."""
        with inside(BOOKS, self._lock):
            own = self.pools.get(spec.name)
            for member in members:
                ray.kill(member.handle)
                if own is not None:
                    own.members.remove(member)

    def _hand_back(self, task: Task, failures: int, waiting: deque[Task], error: RayError) -> None:
        """Queue a lost shard again, or stop where it failed too often."""
        pool = task.stage.work.pool
        assert pool is not None
        count("shard_failures", pool=pool.name)
        if failures >= self.config.max_failures:
            raise lost_too_often(task, failures, str(error).splitlines()[0]) from error
        count("shard_retries", pool=pool.name)
        waiting.append(task)

    def _stop_overdue(self, pending: dict[Any, _Member]) -> None:
        """Kill actors whose shard outlasts the limit; Ray restarts them and the lost shard is counted."""
        now = time.monotonic()
        for member in pending.values():
            if member.task is not None and now - member.since > self.config.shard_timeout_s:
                ray.kill(member.handle, no_restart=False)
                member.since = now

    def _members(self, spec: Pool, tasks: int) -> list[_Member]:
        """The pool's actors, started if need be, no more than there are tasks."""
        self._grow(spec, tasks)
        with inside(BOOKS, self._lock):
            return self.pools[spec.name].members

    def _grow(self, spec: Pool, tasks: int) -> list[_Member]:
        """Start as many more workers as the tasks, the pool's size and the room allow; returns those started.

        Idle pools are ended for them, least recently used first; those that a ready stage wants only for the first
        worker. Counted from our own books: Ray's figure of what is free lags behind actors that are still being placed.
        """
        most = room(spec)
        with inside(BOOKS, self._lock):
            pool = self.pools.pop(spec.name, None) or self._new(spec)
            self.pools[spec.name] = pool  # most recently used last
            wanted = self.workers_for(spec, tasks)
            while wanted > max(1, len(pool.members)):
                if self._fits(spec, wanted, most, lambda other: other.busy or other.spec.name in self._keep):
                    break
                wanted -= 1
            for other in list(self.pools.values()):
                if self._fits(spec, wanted, most, lambda _: True):
                    break
                if not other.busy and other is not pool and other.members:
                    self._end(self.pools.pop(other.spec.name))
            actor = ray.remote(_Actor)
            fresh = []
            while len(pool.members) < wanted:
                handle = actor.options(
                    num_cpus=spec.cpus,
                    num_gpus=spec.gpus,
                    max_restarts=-1,
                    max_task_retries=0,  # the supervisor hands shards out again itself, and counts
                ).remote(spec, self.store_root)
                fresh.append(_Member(handle))
                pool.members.append(fresh[-1])
            return fresh

    def workers_for(self, pool: Pool, tasks: int) -> int:
        held = room(pool)
        return max(1, min(pool.size or held, tasks, held))

    def _fits(self, spec: Pool, wanted: int, most: int, stays: Callable[[_Pool], bool]) -> bool:
        """Whether `wanted` workers fit beside the other pools that stay."""
        if wanted > most:
            return False
        total = ray.cluster_resources()
        others = [pool for name, pool in self.pools.items() if name != spec.name and stays(pool)]
        cpus = sum(pool.held * pool.spec.cpus for pool in others) + wanted * spec.cpus
        gpus = sum(pool.held * pool.spec.gpus for pool in others) + wanted * spec.gpus
        return cpus <= total.get("CPU", 0) and gpus <= total.get("GPU", 0)

    @staticmethod
    def _end(pool: _Pool) -> None:
        for member in pool.members:
            ray.kill(member.handle)

    def close(self) -> None:
        for pool in self.pools.values():
            self._end(pool)
        self.pools.clear()


def _own_error(error: RayTaskError, task: Task | None) -> DesaError:
    """The error a worker raised: workers raise user-facing ones; of another only its text crosses."""
    if isinstance(error.cause, DesaError):
        return error.cause
    return as_desa_error(error, str(task) if task else "a worker")
