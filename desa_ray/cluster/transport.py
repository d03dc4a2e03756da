"""Ray actors as a transport: what the supervisor of workers does on a cluster.

Ray's own pools lose the item of a dead actor (ray.util.ActorPool) or can hang after one (Ray Data's
fixed pools), so the supervisor keeps the books itself, and an actor is just a worker that may die:
Ray restarts and retries nothing.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from desa_ray.cluster.losses import kernel_kills, lost
from desa_ray.cluster.metrics import CountingWorker, count
from desa_ray.cluster.node_watch import NodeWatch
from desa_ray.cluster.placement import ClusterPlacement
from desa_ray.cluster.run_series import RunSeries
from desa_ray.config import ClusterConfig
from desa_ray.error_boundary import as_desa_error
from desa_ray.errors import DesaError
from desa_ray.pipeline.backend import LostCluster
from desa_ray.pipeline.stage import Pool, Task
from desa_ray.pipeline.supervisor import Supervisor
from desa_ray.pipeline.transport import Answer, Event, Loaded, Lost, Up
from desa_ray.store.artifacts import Store
from desa_ray.store.copies import drop_copies

MAX_PARALLEL_STAGES = 8
LOOK_S = 0.02  # how soon a waiting poll notices that it was woken
END_TIMEOUT_S = 5.0


class _Actor(CountingWorker):
    """A worker as an actor; `ready` returns once its process is up, before any engine is loaded."""

    def __init__(self, pool: Pool):
        super().__init__(pool)
        if not pool.gpus:  # Ray leaves such an actor all GPUs of its node
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def ready(self) -> tuple[str, int]:
        """The node that it runs on, and how often the kernel has killed for memory there."""
        return ray.get_runtime_context().get_node_id(), kernel_kills()

    def prepare(self) -> int:
        """Load the engine; where that fails, the first task tries again and tells. Returns
        `rows_at_once`.
        """
        with suppress(Exception):
            self.load()
        return self.rows_at_once

    def end(self) -> None:
        """Leave nothing in the node's temporary folder: what follows is a kill, which runs no
        clean-up.
        """
        drop_copies()


class RayTransport:
    """Workers as actors of the connected cluster.

    Args:
        copies: workers keep copies of the store's files, which they remove before they are ended.
        death: says why the cluster died; None while it is alive.
        shared: the cluster is not this process's own.
        watch: knows the nodes that take no work.
    """

    def __init__(
        self,
        *,
        copies: bool,
        death: Callable[[], str | None] = lambda: None,
        on_close: Callable[[], None] = lambda: None,
        watch: NodeWatch | None = None,
        shared: bool = False,
    ):
        self.shared = shared
        self.copies, self.death, self.on_close = copies, death, on_close
        self.watch = watch or NodeWatch()
        self._actors: dict[int, Any] = {}
        self._pools: dict[int, Pool] = {}
        self._nodes: dict[int, tuple[str, int]] = {}  # where they stand, and kernel kills before
        self._held: set[int] = set()  # on nodes that are being looked at
        self._up: set[int] = set()
        self._loading: set[int] = set()
        self._pending: dict[Any, tuple[int, Task | None]] = {}  # what was asked -> of whom
        self._woken = threading.Event()

    def spawn(self, worker: int, pool: Pool) -> None:
        options = {
            "num_cpus": pool.cpus,
            "num_gpus": pool.gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        if pool.memory:
            options["memory"] = pool.memory
        if selector := self.watch.label_selector():
            options["label_selector"] = selector
        if pool.in_flight > 1:  # else in the actor's main thread
            options["max_concurrency"] = pool.in_flight
        actor = ray.remote(_Actor).options(**options).remote(pool)
        self._actors[worker], self._pools[worker] = actor, pool
        self._pending[actor.ready.remote()] = worker, None

    def send(self, worker: int, task: Task) -> None:
        self._pending[self._actors[worker].run.remote(task)] = worker, task

    def poll(self, timeout_s: float) -> list[Event]:
        deadline = time.monotonic() + timeout_s
        while not self._woken.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if not self._pending:
                self._woken.wait(left)
                break
            finished, _ = ray.wait(list(self._pending), num_returns=1, timeout=min(left, LOOK_S))
            if finished:
                break
        self._woken.clear()
        events = [self._judged(worker) for worker in list(self._held)]
        if self._pending:
            finished, _ = ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
            for reference in finished:
                if reference in self._pending:  # not of a worker that was lost just now
                    events.append(self._event(reference))
        return [event for event in events if event is not None]

    def _event(self, reference: Any) -> Event | None:
        worker, task = self._pending.pop(reference)
        try:
            answer: Any = ray.get(reference)
        except RayTaskError as error:
            return Answer(worker, _own_error(error), task)
        except RayError as error:  # the actor died, or its node
            self.check()
            node, kills = self._nodes.get(worker, (None, 0))
            loss = lost(worker, error, self._pools[worker], node, kills)
            if node is None and self.watch.look():  # it may have failed on a node that differs
                loss = replace(loss, with_node=True)
            self._forget(worker)
            return loss
        if worker not in self._up:
            self._nodes[worker] = answer
            return self._judged(worker)
        if worker in self._loading:
            self._loading.remove(worker)
            return Loaded(worker, answer)
        return Answer(worker, None, task)

    def _judged(self, worker: int) -> Event | None:
        """Lets a worker that came up load its engine, if its node may take work; None while that is
        not known.
        """
        node, _ = self._nodes[worker]
        wrong = self.watch.verdict(node)
        if wrong is None:
            self._held.add(worker)
            return None
        self._held.discard(worker)
        if wrong:
            ray.kill(self._actors[worker])
            self._forget(worker)
            return Lost(worker, wrong, with_node=True)
        self._up.add(worker)
        self._loading.add(worker)
        self._pending[self._actors[worker].prepare.remote()] = worker, None
        return Up(worker, node, loaded=False)

    def wake(self) -> None:
        self._woken.set()

    def kill(self, worker: int) -> None:
        ray.kill(self._actors[worker])

    def end(self, workers: Sequence[int]) -> None:
        if self.death() is not None:
            for worker in workers:
                self._forget(worker)
            return
        busy = {worker for worker, _ in self._pending.values()}
        idle = [worker for worker in workers if worker in self._actors and worker not in busy]
        if self.copies and idle:
            cleared = [self._actors[worker].end.remote() for worker in idle]
            ray.wait(cleared, num_returns=len(cleared), timeout=END_TIMEOUT_S)
        for worker in workers:
            if worker in self._actors:
                ray.kill(self._actors[worker])
                self._forget(worker)

    def _forget(self, worker: int) -> None:
        for known in (self._actors, self._pools, self._nodes):
            known.pop(worker, None)
        for known in (self._up, self._loading, self._held):
            known.discard(worker)
        self._pending = {
            reference: asked for reference, asked in self._pending.items() if asked[0] != worker
        }

    def check(self) -> None:
        if (reason := self.death()) and self.shared:
            hint = "restart the cluster, or wait until it is back, then rerun the same command:"
            hint += " finished work is kept"
            raise LostCluster(f"the Ray cluster is gone: {reason}", where="cluster", hint=hint)
        if reason:
            hint = (
                "look for an out-of-memory kill, lower cluster.cpus or cluster.memory_gb, or use"
                " cluster=serial"
            )
            raise LostCluster(
                f"the local Ray cluster died: {reason}", where="cluster=local", hint=hint
            )

    def close(self) -> None:
        self.end(list(self._actors))
        if self.death() is None:
            self.on_close()


def _own_error(error: RayTaskError) -> DesaError:
    """The error a worker raised: workers raise user-facing ones; of another only its
    text crosses.
    """
    if isinstance(error.cause, DesaError):
        return error.cause
    return as_desa_error(error, "a worker")


def ray_supervisor(
    config: ClusterConfig,
    store: Store,
    death: Callable[[], str | None],
    note: Callable[[str], None] = lambda text: None,
    series: RunSeries | None = None,
    *,
    watch: NodeWatch | None = None,
) -> Supervisor:
    """The supervisor of actors on the connected cluster; it counts lost shards.

    Args:
        death: as for `RayTransport`.
        note: informs the user that the run waits for others.
        series: receives losses, what the run holds and whether it waits.
        watch: as for `RayTransport`.
    """
    copies, shared = store.files.copied, config.kind == "existing"
    transport = RayTransport(copies=copies, death=death, watch=watch, shared=shared)
    placement = ClusterPlacement(transport.check, config, series, watch)
    transport.on_close = placement.close
    return Supervisor(
        transport,
        placement,
        config,
        max_parallel_stages=MAX_PARALLEL_STAGES,
        on_loss=partial(_count_loss, series),
        note=note,
    )


def _count_loss(series: RunSeries | None, pool: Pool, again: bool) -> None:
    if series is not None:
        series.add("run_shards", "lost")
    count("shard_failures", pool=pool.name)
    if again:
        count("shard_retries", pool=pool.name)
