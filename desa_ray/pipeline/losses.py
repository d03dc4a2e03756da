"""What the loss of a worker means: for its shards, and for its pool.

A lost shard is handed out again, and one that was lost `max_failures` times stops its stage, by
name; so does an engine that was lost as often while it loaded. The last attempt at a shard that was
lost beside others is made alone. A worker that goes with its node, or for which there was no memory
beside others, is no fault of its shards: that counts apart, up to `NODE_LOSSES`.
"""

from collections.abc import Callable

from desa_ray.pipeline.backend import lost_too_often
from desa_ray.pipeline.roster import Held, Roster, RosterEntry
from desa_ray.pipeline.shard_queue import ShardQueue, StageShards
from desa_ray.pipeline.stage import Pool
from desa_ray.pipeline.transport import Lost

NODE_LOSSES = 20  # of one shard: a shard that takes nodes along must end, too


class Losses:
    """Counts losses and draws the consequences; called by the supervisor's thread alone.

    Args:
        max_failures: how often a shard, or a load of an engine, may be lost.
        on_loss: called with the pool of a shard that was lost with its worker, and whether it is
            handed out again.
        fail: stops a stage.
    """

    def __init__(
        self,
        roster: Roster,
        queue: ShardQueue,
        max_failures: int,
        clock: Callable[[], float],
        on_loss: Callable[[Pool, bool], None],
        fail: Callable[[StageShards, BaseException], None],
    ):
        self._roster, self._queue, self._clock = roster, queue, clock
        self._max_failures, self._on_loss, self._fail = max_failures, on_loss, fail
        self._memory_at: dict[str | None, float] = {}  # node -> when memory last ran out there

    def of_worker(self, worker: RosterEntry, event: Lost) -> None:
        """Take a worker off the roster, and hand out again what it was at."""
        with_node = event.with_node or (event.memory and self._crowded(worker))
        del self._roster.workers[event.worker]
        state = self._roster.state(worker.pool)
        state.replace_at(self._clock())
        state.lost = state.lost if worker.up or with_node else event.reason
        if worker.up and not worker.loaded:
            self._of_loading(event.worker, worker.pool, event.reason, with_node=with_node)
        for held in worker.held:
            self.of_shard(worker, held, event.reason, with_node=with_node)

    def of_shard(
        self, worker: RosterEntry, held: Held, reason: str, *, with_node: bool = False
    ) -> None:
        """Queue a lost shard again, or stop its stage where it was lost too often: sooner where its
        worker died alone than where whole nodes went.
        """
        stage, task = held.stage, held.task
        if stage.over.is_set():
            return
        stage.in_flight -= 1
        counts = stage.node_losses if with_node else stage.failures
        counts[task.shard.number] += 1
        failures = counts[task.shard.number]
        again = failures < (NODE_LOSSES if with_node else self._max_failures)
        self._on_loss(worker.pool, again)
        if not again:
            self._fail(stage, lost_too_often(task, failures, reason))
        elif worker.rows and stage.failures[task.shard.number] == self._max_failures - 1:
            stage.last.append(task)
        else:
            stage.open.append(task)

    def _of_loading(self, number: int, pool: Pool, reason: str, *, with_node: bool) -> None:
        """Stop what needs an engine that takes its process along as often as a shard may fail."""
        state = self._roster.state(pool)
        if number <= state.loss_counted:  # started beside one whose loss was counted
            return
        state.loss_counted = self._roster.latest
        state.load_losses[with_node] += 1
        failures = state.load_losses[with_node]
        again = failures < (NODE_LOSSES if with_node else self._max_failures)
        self._on_loss(pool, again)
        if not again:
            state.load_losses.clear()
            for stage in self._queue.stages(pool):
                self._fail(stage, lost_too_often(f"pool {pool.name}", failures, reason))

    def _crowded(self, lost: RosterEntry) -> bool:
        """Whether others of this run stood on the node where memory ran out under a worker, or did
        until they were lost for the same reason: there were too many of them, and from now on its
        pool has one less. A worker that was alone there is too large itself.
        """
        up = sum(other.up for other in self._roster.of(lost.pool).values())
        beside = [
            other
            for other in self._roster.workers.values()
            if other is not lost and other.up and other.node == lost.node
        ]
        if beside and up > 1:
            self._roster.state(lost.pool).most = up - 1
        before, self._memory_at[lost.node] = self._memory_at.get(lost.node), self._clock()
        since = lost.at_work_since() or lost.since
        return bool(beside) or (before is not None and since <= before)
