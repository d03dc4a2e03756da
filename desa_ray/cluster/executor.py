"""Supervised actor pools: every shard once, whatever dies.

Ray's own pools lose the item of a dead actor (ray.util.ActorPool) or can hang after one (Ray Data's fixed pools), so a
small supervisor keeps the books itself. Actors restart without limit and hold their engine for the whole session; a
shard in flight on a dying actor is handed out again. Shards are deterministic and write once, so a second run of one
is harmless. What stops a run: an error of the shard's own (bad data, a corrupt artifact) at once; a shard that killed
or outlasted its actor `max_failures` times, by name.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError, RayTaskError

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError, PoisonShard
from desa_ray.pipeline.executor import Worker
from desa_ray.pipeline.stage import Pool, Task

POLL_S = 0.2
UNAVAILABLE_PAUSE_S = 1.0
START_TIMEOUT_S = 600.0


@dataclass
class _Member:
    """An actor and what it is doing."""

    handle: Any
    free_at: float = 0.0
    task: Task | None = None
    started: float = 0.0


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
        failures: dict[int, int] = {}
        running: dict[Any, _Member] = {}
        while waiting or running:
            now = time.monotonic()
            for member in members:
                if waiting and member.task is None and member.free_at <= now:
                    member.task, member.started = waiting.popleft(), now
                    running[member.handle.run.remote(member.task)] = member
            ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL_S) if running else ([], [])
            if not running:
                time.sleep(POLL_S)
            for reference in ready:
                member = running.pop(reference)
                task, member.task = member.task, None
                assert task is not None
                try:
                    ray.get(reference)
                except RayTaskError as error:
                    raise _own_error(error, task) from error
                except (ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError) as error:
                    member.free_at = time.monotonic() + UNAVAILABLE_PAUSE_S
                    self._hand_back(task, member, waiting, failures, error)
                else:
                    done(task)
            self._stop_overdue(running)

    def _hand_back(
        self, task: Task, member: _Member, waiting: deque[Task], failures: dict[int, int], error: RayError
    ) -> None:
        """Queue a lost shard again; its failures are counted where the actor died under it."""
        # An unavailable actor is restarting: nothing is known against the shard, unless it stays so.
        restarting = isinstance(error, ActorUnavailableError) and time.monotonic() - member.started < START_TIMEOUT_S
        if restarting:
            waiting.appendleft(task)
            return
        failures[task.shard.number] = failures.get(task.shard.number, 0) + 1
        if failures[task.shard.number] >= self.config.max_failures:
            raise PoisonShard(
                f"failed {self.config.max_failures} times; last: {str(error).splitlines()[0]}",
                where=str(task),
                mend="look for an out-of-memory kill, lower cluster.memory_gb or cluster.shard_*, then rerun",
            ) from error
        waiting.append(task)

    def _stop_overdue(self, running: dict[Any, _Member]) -> None:
        """Kill actors whose shard outlasts the limit; Ray restarts them and the lost shard is counted."""
        now = time.monotonic()
        for member in running.values():
            if now - member.started > self.config.shard_timeout_s:
                ray.kill(member.handle, no_restart=False)
                member.started = now

    def _pool(self, spec: Pool, tasks: int) -> _Pool:
        """The pool, started if need be with no more actors than there are tasks."""
        pool = self.pools.pop(spec.name, None) or _Pool(spec)
        self.pools[spec.name] = pool  # most recently used last
        wanted = max(1, min(spec.size, tasks, self._room(spec)))
        actor = ray.remote(Worker)
        while len(pool.members) < wanted:
            self._make_room(spec)
            handle = actor.options(
                num_cpus=spec.cpus,
                num_gpus=spec.gpus,
                max_restarts=-1,
                max_task_retries=0,  # the supervisor hands shards out again itself, and counts
                max_concurrency=1,
            ).remote(spec, self.store_root)
            pool.members.append(_Member(handle))
        return pool

    def _room(self, spec: Pool) -> int:
        """How many workers of this kind the whole cluster could hold."""
        total = ray.cluster_resources()
        cpus, gpus = total.get("CPU", 0), total.get("GPU", 0)
        room = min(cpus // spec.cpus if spec.cpus else 1 << 20, gpus // spec.gpus if spec.gpus else 1 << 20)
        if room < 1:
            raise DesaError(
                f"a worker of pool {spec.name} needs {spec.cpus} CPUs and {spec.gpus} GPUs, the cluster has "
                f"{cpus:g} and {gpus:g}",
                where="cluster",
                mend="lower cluster.encoder_cpus or cluster.encoder_gpus, or add nodes",
            )
        return int(room)

    def _make_room(self, spec: Pool) -> None:
        """End idle pools, least recently used first, until one more worker fits."""
        for name in list(self.pools):
            free = ray.available_resources()
            if free.get("CPU", 0) >= spec.cpus and free.get("GPU", 0) >= spec.gpus:
                return
            if name != spec.name:
                self._end(self.pools.pop(name))
                self._await_release(spec)

    @staticmethod
    def _await_release(spec: Pool, patience_s: float = 10.0) -> None:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            free = ray.available_resources()
            if free.get("CPU", 0) >= spec.cpus and free.get("GPU", 0) >= spec.gpus:
                return
            time.sleep(0.05)

    @staticmethod
    def _end(pool: _Pool) -> None:
        for member in pool.members:
            ray.kill(member.handle)

    def close(self) -> None:
        for pool in self.pools.values():
            self._end(pool)
        self.pools.clear()


def _own_error(error: RayTaskError, task: Task) -> Exception:
    """The error a worker raised: user-facing ones as they are, others with the shard's name."""
    cause = error.cause
    if isinstance(cause, DesaError):
        return cause
    last = str(error).strip().splitlines()[-1]
    return PoisonShard(f"a worker raised {last}", where=str(task), mend="this looks like a bug: please report it")
