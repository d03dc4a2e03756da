"""Which worker is given which shard, and what its answer means for the stage of that shard.

A stage ends when its last shard is back, or at the first error of its own; one whose engine failed
has its shards handed out again (`losses`). Called by the supervisor's thread alone.
"""

from collections.abc import Callable, Sequence

from desa_ray.errors import DesaError, EngineFailed
from desa_ray.pipeline.losses import Losses
from desa_ray.pipeline.roster import Held, Roster, RosterEntry
from desa_ray.pipeline.shard_queue import ShardQueue, StageShards
from desa_ray.pipeline.staffing import Staffing
from desa_ray.pipeline.stage import Pool, Task
from desa_ray.pipeline.transport import Answer, Lost, Transport


class Dispatch:
    """Hands shards to workers and takes their answers.

    Args:
        max_failures, on_loss: as for `Losses`.
    """

    def __init__(
        self,
        transport: Transport,
        roster: Roster,
        queue: ShardQueue,
        staffing: Staffing,
        *,
        clock: Callable[[], float],
        max_failures: int,
        on_loss: Callable[[Pool, bool], None],
    ):
        self._transport, self._roster, self._queue = transport, roster, queue
        self._staffing, self._clock = staffing, clock
        self._losses = Losses(roster, queue, max_failures, clock, on_loss, self.fail)

    def hand_out(self) -> None:
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
                self.end([number])
            return False
        found = self._choice(number, worker)
        if found is None or not self.started(found.stage):
            return False
        stage, now = found.stage, found.since
        worker.held.append(found)
        stage.in_flight += 1
        stage.most_workers = max(stage.most_workers, len(self._roster.of(pool)))
        self._roster.state(pool).used = now
        self._transport.send(number, found.task)
        return True

    def _choice(self, number: int, worker: RosterEntry) -> Held | None:
        """The shard that a worker is given next. The first worker of a pool takes those that must
        be computed alone, once it has none.
        """
        now = self._clock()
        alone = self._queue.alone(worker.pool)
        if alone and number == self._roster.first_loaded(worker.pool):
            return None if worker.held else Held(alone, alone.last.popleft(), now, alone=True)
        found = self._queue.next(worker.pool)
        return Held(*found, now) if found else None

    def started(self, stage: StageShards) -> bool:
        """Tells, once, that workers are at a stage; False where that failed."""
        if stage.started:
            return True
        stage.started = True
        return self._called(stage, stage.on_start)

    def answered(self, worker: RosterEntry, event: Answer) -> None:
        """A worker is done with a shard, or has none to give back."""
        self._roster.state(worker.pool).last_up = self._clock()
        held = self._held(worker, event.task)
        if held is None:
            return
        worker.held.remove(held)
        if isinstance(event.error, EngineFailed):
            self._losses.of_shard(worker, held, str(event.error))
            self._replace_ailing(event.worker, worker)
        elif not held.stage.over.is_set():  # else it failed meanwhile
            held.stage.in_flight -= 1
            self._done(held, event.error)

    def _held(self, worker: RosterEntry, task: Task | None) -> Held | None:
        return next((one for one in worker.held if task is None or one.task is task), None)

    def _done(self, held: Held, error: DesaError | None) -> None:
        stage = held.stage
        if error is not None:
            self.fail(stage, error)
        elif self._called(stage, lambda: stage.on_done(held.task)) and stage.done:
            self._queue.remove(stage)
            self._roster.look_again()
            stage.end()

    def lost(self, worker: RosterEntry, event: Lost) -> None:
        self._losses.of_worker(worker, event)

    def _replace_ailing(self, number: int, worker: RosterEntry) -> None:
        """Replace a worker whose engine failed, once all its shards are back: each may still store
        what it has.
        """
        worker.ailing = True
        if not worker.held and number in self._roster.workers:
            self._roster.state(worker.pool).replace_at(self._clock())
            self.end([number])

    def _called(self, stage: StageShards, callback: Callable[[], None]) -> bool:
        """Calls back for a stage; an error of the callback's is the stage's."""
        try:
            callback()
        except BaseException as error:
            self.fail(stage, error)
            return False
        return True

    def fail(self, stage: StageShards, error: BaseException) -> None:
        """Stop a stage; workers that are still at its shards are ended, so that the next stage gets
        fresh ones. One that works at several shards goes on: the others are not to be lost.
        """
        self._queue.remove(stage)
        self._roster.look_again()
        self.end(
            [
                number
                for number, worker in self._roster.workers.items()
                if not worker.rows and worker.is_at(stage)
            ]
        )
        stage.end(error)

    def fail_pool(self, pool: Pool, error: BaseException) -> None:
        """Stop all stages of a pool."""
        for stage in self._queue.stages(pool):
            self.fail(stage, error)

    def fail_all(self, error: BaseException) -> None:
        for stage in self._queue.stages():
            self.fail(stage, error)

    def end(self, numbers: Sequence[int]) -> None:
        """End workers, and take them off the roster."""
        if numbers:
            for number in numbers:
                self._roster.workers.pop(number, None)
            self._transport.end(numbers)
