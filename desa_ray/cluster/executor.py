"""Supervised actor pools: every shard once, whatever dies.

Ray's own pools lose the item of a dead actor (ray.util.ActorPool) or can hang after one (Ray Data's fixed pools), so a
small supervisor keeps the books itself. Actors restart without limit and hold their engine for the whole session; a
shard in flight on a dying actor is handed out again. Shards are deterministic and write once, so a second run of one
is harmless. What stops a run: an error of the shard's own (bad data, a corrupt artifact) at once; a shard that killed
or outlasted its actor `max_failures` times, by name.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from desa_ray.cluster.metrics import CountingWorker, count
from desa_ray.cluster.resources import room
from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError, PoisonShard
from desa_ray.pipeline.stage import Pool, Task

POLL_S = 0.2
RESTART_PAUSE_S = 1.0
START_TIMEOUT_S = 600.0


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
    spec: Pool
    members: list[_Member] = field(default_factory=list)


class RayExecutor:
    """Maps tasks over actor pools of one Ray session; pools stay until room is needed for another."""

    def __init__(self, store_root: str, config: ClusterConfig):
        self.store_root, self.config = store_root, config
        self.pools: dict[str, _Pool] = {}

    def map(self, pool: Pool, tasks: Sequence[Task], done: Callable[[Task], None]) -> None:
        members = self._pool(pool, len(tasks)).members
        waiting = deque(tasks)
        failures: Counter[int] = Counter()
        pending: dict[Any, _Member] = {}
        last_up = time.monotonic()
        for member in members:
            if not member.up:
                pending[member.handle.ready.remote()] = member
        while waiting or any(member.task for member in pending.values()):
            now = time.monotonic()
            for member in members:
                # A task goes to a process that runs: one sent to an actor without a place would wait for it.
                if waiting and member.up and member.task is None:
                    member.task, member.since = waiting.popleft(), now
                    pending[member.handle.run.remote(member.task)] = member
            finished, _ = ray.wait(list(pending), num_returns=1, timeout=POLL_S)
            for reference in finished:
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

    def _hand_back(self, task: Task, failures: int, waiting: deque[Task], error: RayError) -> None:
        """Queue a lost shard again, or stop where it failed too often."""
        pool = task.stage.work.pool
        assert pool is not None
        count("shard_failures", pool=pool.name)
        if failures >= self.config.max_failures:
            raise PoisonShard(
                f"failed {failures} times; last: {str(error).splitlines()[0]}",
                where=str(task),
                mend="look for an out-of-memory kill, lower cluster.memory_gb or cluster.shard_*, then rerun",
            ) from error
        count("shard_retries", pool=pool.name)
        waiting.append(task)

    def _stop_overdue(self, pending: dict[Any, _Member]) -> None:
        """Kill actors whose shard outlasts the limit; Ray restarts them and the lost shard is counted."""
        now = time.monotonic()
        for member in pending.values():
            if member.task is not None and now - member.since > self.config.shard_timeout_s:
                ray.kill(member.handle, no_restart=False)
                member.since = now

    def _pool(self, spec: Pool, tasks: int) -> _Pool:
        """The pool, started if need be, with no more actors than there are tasks."""
        pool = self.pools.pop(spec.name, None) or _Pool(spec)
        wanted = self.workers_for(spec, tasks)
        self._make_room(spec, max(wanted, len(pool.members)))
        self.pools[spec.name] = pool  # most recently used last
        actor = ray.remote(_Actor)
        while len(pool.members) < wanted:
            handle = actor.options(
                num_cpus=spec.cpus,
                num_gpus=spec.gpus,
                max_restarts=-1,
                max_task_retries=0,  # the supervisor hands shards out again itself, and counts
            ).remote(spec, self.store_root)
            pool.members.append(_Member(handle))
        return pool

    def workers_for(self, pool: Pool, tasks: int) -> int:
        held = room(pool)
        return max(1, min(pool.size or held, tasks, held))

    def _make_room(self, spec: Pool, wanted: int) -> None:
        """End the other pools, least recently used first, until `wanted` workers fit beside those that stay.

        Counted from our own books: Ray's figure of what is free lags behind actors that are still being placed.
        """
        total = ray.cluster_resources()
        for name in list(self.pools):
            used = [
                (len(pool.members) * pool.spec.cpus, len(pool.members) * pool.spec.gpus) for pool in self.pools.values()
            ]
            cpus, gpus = sum(own for own, _ in used), sum(own for _, own in used)
            if cpus + wanted * spec.cpus <= total.get("CPU", 0) and gpus + wanted * spec.gpus <= total.get("GPU", 0):
                return
            self._end(self.pools.pop(name))

    @staticmethod
    def _end(pool: _Pool) -> None:
        for member in pool.members:
            ray.kill(member.handle)

    def close(self) -> None:
        for pool in self.pools.values():
            self._end(pool)
        self.pools.clear()


def _own_error(error: RayTaskError, task: Task | None) -> Exception:
    """The error a worker raised: user-facing ones as they are, others with the shard's name."""
    cause = error.cause
    if isinstance(cause, DesaError):
        return cause
    last = str(error).strip().splitlines()[-1]
    return PoisonShard(f"a worker raised {last}", where=str(task), mend="this looks like a bug: please report it")
