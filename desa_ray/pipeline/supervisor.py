"""The one supervisor of workers: every shard is computed once, whatever dies.

It hands the shards of a queue to the workers of their pools over a transport, which may be Ray or
processes of this machine; how many workers there are is decided in `staffing`, and what the loss of
one means in `losses`. The rules: a task goes to a worker whose engine is loaded; a worker that dies
is replaced and its shards handed out again; one that outlasts the time limit is killed, and one
whose engine fails is ended, which is the same. An engine that works at several shards at once is
given the next before it has ended the last. An error of a shard's own (bad data, a corrupt
artifact) stops its stage at once.
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
from desa_ray.errors import DesaError, EngineFailed
from desa_ray.pipeline.backend import LostCluster, Stopped
from desa_ray.pipeline.losses import Losses
from desa_ray.pipeline.roster import Held, Roster, RosterEntry
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
        self._losses = Losses(
            self._roster, self._queue, limits.max_failures, clock, on_loss, self._fail
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
            self._fail_all(Stopped())
            self._end(list(self._roster.workers))
            self.transport.close()

    def _next_round(self) -> bool:
        """Takes in what came; waits while there is nothing to do. False when it is over."""
        coming_up = any(not worker.up for worker in self._roster.workers.values())
        nothing = not coming_up and not self._queue.stages()
        if not self._take_in(wait_s=self._staffing.rest_s() if nothing else 0.0):
            return False
        if self._stopping.is_set():
            self._fail_all(Stopped())
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
                self._look_again()

    def _look_again(self) -> None:
        """Work came or went: every pool may have another claim now."""
        for state in self._roster.states():
            state.grow_at = 0.0

    def _step(self) -> None:
        try:
            self.transport.check()
            self._grow_pools()
            self._hand_out()
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
                self._fail_all(as_desa_error(error, "supervisor of workers"))

    def _lost_all(self, loss: LostCluster) -> None:
        self._roster.clear()
        self._fail_all(loss)

    def _hand_out(self) -> None:
        """Give every worker with room its next shard, one after the other, so that all have their
        first before one has two; or end an idle one where its place is due to others.
        """
        given = True
        while given:
            given = False
            for number, worker in list(self._roster.workers.items()):
                given = self._give(number, worker) or given

    def _give(self, number: int, worker: RosterEntry) -> bool:
        """Give a worker one more shard; whether it got one."""
        pool = worker.pool
        left = self._queue.left(pool)
        if not left or not worker.has_room(-(-left // max(1, self._roster.loaded(pool)))):
            return False
        if self._staffing.gives_back(worker):
            if not worker.held:
                self._end([number])
            return False
        found = self._choice(number, worker)
        if found is None or not self._started(found.stage):
            return False
        stage, now = found.stage, found.since
        worker.held.append(found)
        stage.in_flight += 1
        stage.most_workers = max(stage.most_workers, len(self._roster.of(pool)))
        self._roster.state(pool).used = now
        self.transport.send(number, found.task)
        return True

    def _choice(self, number: int, worker: RosterEntry) -> Held | None:
        """The shard that a worker is given next. The first worker of a pool takes those that must
        be computed alone, once it has none.
        """
        now = self.clock()
        alone = self._queue.alone(worker.pool)
        if alone and number == self._roster.first_loaded(worker.pool):
            return None if worker.held else Held(alone, alone.last.popleft(), now, alone=True)
        found = self._queue.next(worker.pool)
        return Held(*found, now) if found else None

    def _started(self, stage: StageShards) -> bool:
        """Tells, once, that workers are at a stage; False where that failed."""
        if stage.started:
            return True
        stage.started = True
        return self._called(stage, stage.on_start)

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
                    self._started(waiting[0])
            case Loaded(rows=rows):
                worker.loaded, worker.rows, worker.since = True, rows, self.clock()
                self._roster.state(worker.pool).load_losses.clear()
            case Answer(error=error, task=task):
                self._roster.state(worker.pool).last_up = self.clock()
                self._answered(event.worker, worker, task, error)
            case Lost():
                self._losses.of_worker(worker, event)

    def _answered(
        self, number: int, worker: RosterEntry, task: Task | None, error: DesaError | None
    ) -> None:
        held = next((one for one in worker.held if task is None or one.task is task), None)
        if held is None:
            return
        worker.held.remove(held)
        if isinstance(error, EngineFailed):
            self._losses.of_shard(worker, held, str(error))
            self._ail(number, worker)
            return
        stage = held.stage
        if stage.over.is_set():  # it failed meanwhile
            return
        stage.in_flight -= 1
        if error is not None:
            self._fail(stage, error)
        elif self._called(stage, lambda: stage.on_done(held.task)) and stage.done:
            self._queue.remove(stage)
            self._look_again()
            stage.end()

    def _ail(self, number: int, worker: RosterEntry) -> None:
        """Replace a worker whose engine failed, once all its shards are back: each may still store
        what it has.
        """
        worker.ailing = True
        if not worker.held and number in self._roster.workers:
            self._roster.state(worker.pool).replace_at(self.clock())
            self._end([number])

    def _called(self, stage: StageShards, callback: Callable[[], None]) -> bool:
        """Calls back for a stage; an error of the callback's is the stage's."""
        try:
            callback()
        except BaseException as error:
            self._fail(stage, error)
            return False
        return True

    def _fail(self, stage: StageShards, error: BaseException) -> None:
        """Stop a stage; workers that are still at its shards are ended, so that the next stage gets
        fresh ones. One that works at several shards goes on: the others are not to be lost.
        """
        self._queue.remove(stage)
        self._look_again()
        self._end(
            [
                number
                for number, worker in self._roster.workers.items()
                if not worker.rows and worker.is_at(stage)
            ]
        )
        stage.end(error)

    def _fail_all(self, error: BaseException) -> None:
        for stage in self._queue.stages():
            self._fail(stage, error)

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
        self._end(self._staffing.surplus(now))
        for pool, error in self._staffing.lost_causes(now):
            for stage in self._queue.stages(pool):
                self._fail(stage, error)

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
            for stage in self._queue.stages(pool):
                self._fail(stage, error)

    def _grow(self, pool: Pool, tasks: int) -> None:
        change = self._staffing.growth(pool, tasks)
        self._end(change.end)
        state = self._roster.state(pool)
        if change.spawn and not self._roster.of(pool) and not state.lost:
            state.last_up = self.clock()  # from here on the pool waits for its first worker
        for _ in range(change.spawn):
            self.transport.spawn(self._roster.add(pool), pool)

    def _end(self, numbers: Sequence[int]) -> None:
        if numbers:
            for number in numbers:
                self._roster.workers.pop(number, None)
            self.transport.end(numbers)
