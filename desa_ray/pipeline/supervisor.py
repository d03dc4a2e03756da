"""The one supervisor of workers: every shard is computed once, whatever dies.

It hands the shards of a queue to the workers of their pools over a transport, which may be Ray or
processes of this machine; how many workers there are is decided in `staffing`, which of them gets
which shard in `dispatch`, and what the loss of one means in `losses`. The rules: a task goes to a
worker whose engine is loaded; a worker that dies is replaced and its shards handed out again; one
that outlasts the time limit is killed, and one whose engine fails is ended, which is the same. An
engine that works at several shards at once is given the next before it has ended the last. An error
of a shard's own (bad data, a corrupt artifact) stops its stage at once.

Workers hold their engine and stay until their place is needed. Shards are deterministic and write
once, so a second run of one is harmless.

One thread does all of it. Threads of stages wait in `compute`.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue

from desa_ray.config import ClusterConfig
from desa_ray.error_boundary import as_desa_error
from desa_ray.errors import DesaError
from desa_ray.pipeline.backend import LostCluster, Stopped
from desa_ray.pipeline.dispatch import Dispatch
from desa_ray.pipeline.roster import Roster
from desa_ray.pipeline.shard_queue import FirstOpen, Policy, ShardQueue, StageShards
from desa_ray.pipeline.staffing import Staffing
from desa_ray.pipeline.stage import Pool, Task
from desa_ray.pipeline.transport import Answer, Event, Loaded, Lost, Placement, Transport, Up

POLL_S = 0.2
GROW_EVERY_S = 2.0
STUCK_S = 10.0  # a round that takes longer waits for a cluster that may be dead
LOOK_S = 1.0


class Supervisor:
    """Computes the shards of stages over a transport; stages may come from several threads.

    Args:
        limits: what a run may take, how often a shard may fail and how long it may run.
        max_parallel_stages: how many stages are worth beginning side by side.
        on_loss: called with the pool of a shard that was lost with its worker, and whether it is
            handed out again.
        policy: which stage of a pool the next free worker gets a shard of.
        note: informs the user that the run waits for others, and that it continues.
        clock: seconds that pass; other than this machine's if time is simulated.
    """

    def __init__(
        self,
        transport: Transport,
        placement: Placement,
        limits: ClusterConfig,
        *,
        max_parallel_stages: int,
        policy: Policy | None = None,
        on_loss: Callable[[Pool, bool], None] = lambda pool, again: None,
        note: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.transport, self.limits, self.clock = transport, limits, clock
        self.max_parallel_stages = max_parallel_stages
        self._queue = ShardQueue(policy or FirstOpen())
        self._roster = Roster(clock)
        self._staffing = Staffing(self._roster, self._queue, placement, limits, note)
        self._dispatch = Dispatch(
            transport,
            self._roster,
            self._queue,
            self._staffing,
            clock=clock,
            max_failures=limits.max_failures,
            on_loss=on_loss,
        )
        self._inbox: SimpleQueue[StageShards | Pool | None] = SimpleQueue()  # None: close
        self._stopping, self._over = threading.Event(), threading.Event()
        self._round_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="desa-supervisor", daemon=True)
        self._thread.start()

    def prestart(self, pool: Pool) -> None:
        """Begin to bring up all workers of a pool, before there is work for them."""
        self._inbox.put(pool)
        self.transport.wake()

    def compute(
        self,
        pool: Pool,
        tasks: Sequence[Task],
        on_start: Callable[[], None],
        on_done: Callable[[Task], None],
    ) -> int:
        """Compute the shards of one stage; returns when all are done, with the number of workers
        they were spread over.

        Args:
            on_start: called once, when the first shard is handed out.
            on_done: called for every shard that is done.

        Raises:
            DesaError: the first lasting failure of a shard.
            LostCluster: what the workers ran on is gone.
            Stopped: after `stop`.
        """
        stage = StageShards(pool, deque(tasks), on_start, on_done, len(tasks))
        self._inbox.put(stage)
        self.transport.wake()
        if self._over.is_set():  # nobody takes it any more
            stage.end(Stopped())
        while not stage.over.wait(LOOK_S):
            self._look_from_outside()
        if stage.error is not None:
            raise stage.error
        return min(stage.most_workers, len(tasks))

    @property
    def _stuck(self) -> bool:
        return time.monotonic() - self._round_at > STUCK_S

    def _look_from_outside(self) -> None:
        """Raises in place of the supervisor's thread where that waits for an answer of a cluster
        that is dead.
        """
        if self._stuck:
            self.transport.check()
            if self._stopping.is_set():
                raise Stopped

    def expect(self, pools: frozenset[str]) -> None:
        self._staffing.expected = pools

    def stop(self) -> None:
        """Make every `compute` raise; for the way out after an interrupt."""
        self._stopping.set()
        self.transport.wake()

    def recover(self, loss: LostCluster) -> None:
        raise loss  # who started what the workers ran on can start another

    def close(self) -> None:
        """End all workers."""
        self._inbox.put(None)
        if not self._over.is_set():
            self.transport.wake()
        while self._thread.is_alive():
            self._thread.join(LOOK_S)
            if self._stuck:
                try:
                    self._look_from_outside()
                except (LostCluster, Stopped):
                    return  # the thread ends with the process

    def _run(self) -> None:
        try:
            while self._next_round():
                self._round_at = time.monotonic()
                self._step()
        finally:
            self._over.set()
            self._take_in(wait_s=0.0)
            self._dispatch.fail_all(Stopped())
            self._dispatch.end(list(self._roster.workers))
            self.transport.close()

    def _next_round(self) -> bool:
        """Takes in what came; waits while there is nothing to do. False when it is over."""
        coming_up = any(not worker.up for worker in self._roster.workers.values())
        nothing = not coming_up and not self._queue.stages()
        if not self._take_in(wait_s=self._staffing.rest_s() if nothing else 0.0):
            return False
        if self._stopping.is_set():
            self._dispatch.fail_all(Stopped())
        return True

    def _take_in(self, *, wait_s: float | None) -> bool:
        """Empties the inbox; waits up to `wait_s` seconds (None: without limit) for something to
        come. False when the supervisor is to close.
        """
        while True:
            try:
                came = self._inbox.get(block=wait_s != 0, timeout=wait_s or None)
            except Empty:
                return True
            wait_s = 0.0
            if came is None:
                return False
            if isinstance(came, Pool):
                self._guarded(came, partial(self._grow, came, 1 << 20))
            else:
                self._queue.add(came)
                self._roster.look_again()

    def _step(self) -> None:
        try:
            self.transport.check()
            self._grow_pools()
            self._dispatch.hand_out()
            for event in self.transport.poll(POLL_S):
                self._take(event)
            self._kill_overdue()
            self._keep_house()
        except LostCluster as loss:
            self._lost_all(loss)
        except Exception as error:
            try:
                self.transport.check()  # a call to what is dead raises anything
            except LostCluster as loss:
                self._lost_all(loss)
            else:
                self._dispatch.fail_all(as_desa_error(error, "supervisor of workers"))

    def _lost_all(self, loss: LostCluster) -> None:
        self._roster.clear()
        self._dispatch.fail_all(loss)

    def _take(self, event: Event) -> None:
        worker = self._roster.workers.get(event.worker)
        if worker is None:  # ended meanwhile
            return
        match event:
            case Up(node=node, loaded=loaded):
                worker.up, worker.node, worker.since = True, node, self.clock()
                worker.loaded = loaded
                state = self._roster.state(worker.pool)
                state.last_up, state.lost = worker.since, ""
                waiting = self._queue.stages(worker.pool)
                if waiting and not loaded:
                    self._dispatch.started(waiting[0])
            case Loaded(rows=rows):
                worker.loaded, worker.rows, worker.since = True, rows, self.clock()
                self._roster.state(worker.pool).load_losses.clear()
            case Answer():
                self._dispatch.answered(worker, event)
            case Lost():
                self._dispatch.lost(worker, event)

    def _kill_overdue(self) -> None:
        now = self.clock()
        for number, worker in list(self._roster.workers.items()):
            since = worker.at_work_since()
            overdue = since is not None and now - since > self.limits.shard_timeout_s
            if overdue and not worker.killed:
                worker.killed = True
                self.transport.kill(number)

    def _keep_house(self) -> None:
        """Give back what others need more, and stop what can wait no longer."""
        now = self.clock()
        self._staffing.look(now)
        self._dispatch.end(self._staffing.surplus(now))
        for pool, error in self._staffing.lost_causes(now):
            self._dispatch.fail_pool(pool, error)

    def _grow_pools(self) -> None:
        """Start workers for the pools that have work: those that are up first, then small ones."""
        now = self.clock()
        waiting = self._queue.pools()
        waiting.sort(key=lambda pool: (not self._roster.of(pool), pool.size or 1 << 20))
        for pool in waiting:
            state = self._roster.state(pool)
            if now < max(state.grow_at, state.respawn_at):
                continue
            state.grow_at = now + GROW_EVERY_S
            self._guarded(pool, partial(self._grow, pool, self._queue.left(pool)))

    def _guarded(self, pool: Pool, grow: Callable[[], None]) -> None:
        """A pool that finds no place at all fails its stages."""
        try:
            grow()
        except LostCluster:
            raise
        except DesaError as error:
            self._dispatch.fail_pool(pool, error)

    def _grow(self, pool: Pool, tasks: int) -> None:
        change = self._staffing.growth(pool, tasks)
        self._dispatch.end(change.end)
        state = self._roster.state(pool)
        if change.spawn and not self._roster.of(pool) and not state.lost:
            state.last_up = self.clock()  # from here on the pool waits for its first worker
        for _ in range(change.spawn):
            self.transport.spawn(self._roster.add(pool), pool)
