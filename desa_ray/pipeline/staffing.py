"""How many workers each pool gets, on a cluster that may be shared: which pools grow, which give
workers back, and what a run reports while it waits.

What others use is Ray's to queue for: a worker without a place stays pending, which is also what an
autoscaler takes for demand, and dies with the run. While a pool has no worker at all, the run holds
no idle one; while others wait, it holds none either and keeps to its share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError
from desa_ray.pipeline.packing import Standing, arrange
from desa_ray.pipeline.roster import Roster, RosterEntry
from desa_ray.pipeline.shard_queue import ShardQueue
from desa_ray.pipeline.stage import Pool
from desa_ray.pipeline.transport import Placement, Share

START_TIMEOUT_S = 600.0  # of a worker that nobody else is in the way of
STARVED_S = 5.0  # without any worker for so long, a pool waits for others
SHARE_EVERY_S = 2.0
KEPT_SHARE = 8  # of so many workers of a growing pool one idle engine of another may be kept
REMIND_EVERY_S = 60.0


@dataclass(frozen=True)
class Change:
    """Workers to spawn and workers to end for them."""

    spawn: int = 0
    end: tuple[int, ...] = ()


class Staffing:
    """Decides on the workers of a roster for the shards of a queue.

    Args:
        note: informs the user that the run waits, and that it continues.
    """

    def __init__(
        self,
        roster: Roster,
        queue: ShardQueue,
        placement: Placement,
        limits: ClusterConfig,
        note: Callable[[str], None],
    ):
        self.roster, self.queue, self.placement = roster, queue, placement
        self.limits, self.note = limits, note
        self.expected: frozenset[str] = frozenset()  # pools that later stages need
        self._share = Share()
        self._look_at = 0.0
        self._waiting: dict[str, float] = {}  # pool -> when it was last told of
        self._places: frozenset[str] = frozenset()  # nodes that take work; none while not asked

    def growth(self, pool: Pool, tasks: int) -> Change:
        """As many workers as the tasks, the pool's size, the limits and the nodes allow.

        Raises:
            DesaError: no node could ever hold one.
        """
        capacity = self.placement.capacity(pool)
        have = len(self.roster.of(pool))
        most = self.roster.state(pool).most or capacity
        more = max(1, min(pool.size or capacity, tasks, capacity, most)) - have
        kept = self.roster.standing([*self.queue.pools(), pool])
        more = min(more, self._allowed(pool, kept))
        if more < 1:
            return Change()
        idle = self.roster.standing([*self.queue.pools(), pool], within=False)
        idle = self._without_engines_to_keep(idle, have)
        found = arrange(self.placement.nodes(), pool, more, kept=kept, idle=idle)
        ended = self._within_limits(pool, found.placed, kept, idle, found.ended)
        return Change(found.placed, ended)

    def _allowed(self, pool: Pool, kept: Sequence[Standing]) -> int:
        """How many more workers of the pool the run's own limits and its share leave."""
        cpus = sum(one.pool.cpus for one in kept)
        gpus = sum(one.pool.gpus for one in kept)
        limits = [
            (self.limits.max_workers, len(kept), 1.0),
            (self.limits.max_gpus, gpus, pool.gpus),
        ]
        if kept and self._share.others_wait:  # the first worker of all is always asked for
            limits += [(self._share.cpus, cpus, pool.cpus), (self._share.gpus, gpus, pool.gpus)]
        return int(
            min(
                ((limit - used) / takes + 1e-9 for limit, used, takes in limits if limit and takes),
                default=1 << 20,
            )
        )

    def _without_engines_to_keep(self, idle: Sequence[Standing], have: int) -> list[Standing]:
        """`idle` without one worker of each pool that is needed again, the last used one: a stage
        that comes late need not wait until an engine is loaded. As long as that is a small share of
        the `have` workers of the pool that would take its place.
        """
        last = {one.pool.name: one.worker for one in idle if one.pool.name in self.expected}
        kept = list(last.values())[: have // KEPT_SHARE]
        return [one for one in idle if one.worker not in kept]

    def _within_limits(
        self,
        pool: Pool,
        placed: int,
        kept: Sequence[Standing],
        idle: Sequence[Standing],
        ended: Sequence[int],
    ) -> tuple[int, ...]:
        """`ended`, and as many idle workers more as the run's limits ask for."""
        leaving = list(ended)
        staying = [one for one in idle if one.worker not in ended]
        while staying and placed:
            workers = len(kept) + len(staying) + placed
            gpus = sum(one.pool.gpus for one in [*kept, *staying]) + placed * pool.gpus
            fits = workers <= (self.limits.max_workers or workers)
            if fits and gpus <= (self.limits.max_gpus or gpus):
                break
            leaving.append(staying.pop(0).worker)
        return tuple(leaving)

    # -- what a shared cluster asks for

    def rest_s(self) -> float | None:
        """How long a run without shards may sleep; None where nobody needs its idle workers."""
        return SHARE_EVERY_S if self.placement.shared and self.roster.workers else None

    def look(self, now: float) -> None:
        """Tell the other runs what this one holds and waits for, and learn its share."""
        if not self.placement.shared or now < self._look_at:
            return
        self._look_at = now + SHARE_EVERY_S
        starved = self._starved(now)
        self._places = frozenset(self.placement.nodes())
        self._share = self.placement.share(self.roster.used(), self._wanted(starved, now))
        self._tell(starved, now)

    def surplus(self, now: float) -> list[int]:
        """Idle workers of pools without work that are given back now."""
        if not self.placement.shared:
            return []
        pressing = self._share.others_wait or bool(self._starved(now))
        idle = self.roster.standing(self.queue.pools(), within=False)
        return [
            one.worker
            for one in idle
            if pressing
            or self._leaves(self.roster.workers[one.worker])
            or now - max(self.roster.state(one.pool).used, self.roster.workers[one.worker].since)
            > self.limits.idle_s
        ]

    def gives_back(self, entry: RosterEntry) -> bool:
        """Whether an idle worker of a pool with work ends instead of taking its next shard: its
        node is about to go, or the run holds more than its share of what others wait for.
        """
        if self._leaves(entry):
            return True
        share = self._share
        if not share.others_wait:
            return False
        cpus, gpus = self.roster.used()
        over = (entry.pool.cpus and share.cpus_wanted and cpus > share.cpus + 1e-9) or (
            entry.pool.gpus and share.gpus_wanted and gpus > share.gpus + 1e-9
        )
        others = sum(other.up for other in self.roster.of(entry.pool).values()) - 1
        return bool(over) and (others > 0 or share.waited_s > self.limits.turn_s)

    def _leaves(self, entry: RosterEntry) -> bool:
        return bool(entry.node and self._places) and entry.node not in self._places

    def lost_causes(self, now: float) -> list[tuple[Pool, DesaError]]:
        """Pools with work that got no worker for longer than they may wait."""
        found: list[tuple[Pool, DesaError]] = []
        for pool in self.queue.pools():
            state = self.roster.state(pool)
            if self.roster.is_up(pool) or not (self.roster.of(pool) or state.lost):
                continue
            waited = now - state.last_up
            if self.placement.shared and not state.lost:
                limit, setting = self.limits.wait_s, "cluster.wait_s"
            else:
                limit, setting = START_TIMEOUT_S, "cluster"
            if limit is None or waited <= limit:
                continue
            what = f"no worker of pool {pool.name} started within {limit:.0f} s"
            what += f"; the last was lost: {state.lost}" if state.lost else ""
            hint = "free resources on the cluster, then rerun"
            found.append((pool, DesaError(what, where=setting, hint=hint)))
        return found

    def _starved(self, now: float) -> list[Pool]:
        """Pools with work, workers that were asked for, and none that is up."""
        found: list[Pool] = []
        for pool in self.queue.pools():
            asked = [entry.since for entry in self.roster.of(pool).values()]
            if asked and not self.roster.is_up(pool) and now - min(asked) > STARVED_S:
                found.append(pool)
        return found

    def _wanted(self, starved: Sequence[Pool], now: float) -> Pool | None:
        """The pool that the run waits for a worker of: one that has none, or one for which it holds
        less than its share.
        """
        if starved:
            return starved[0]
        cpus, gpus = self.roster.used()
        for pool in self.queue.pools():
            late = any(
                not entry.up and now - entry.since > STARVED_S
                for entry in self.roster.of(pool).values()
            )
            fits = cpus + pool.cpus <= self._share.cpus and gpus + pool.gpus <= self._share.gpus
            if late and fits:
                return pool
        return None

    def _tell(self, starved: Sequence[Pool], now: float) -> None:
        names = {pool.name for pool in starved}
        up = {entry.pool.name for entry in self.roster.workers.values() if entry.up}
        for name in [name for name in self._waiting if name not in names]:
            del self._waiting[name]
            if name in up:  # and did not end without ever having had a place
                self.note(f"{name}: continues")
        for pool in starved:
            if now - self._waiting.get(pool.name, -REMIND_EVERY_S) >= REMIND_EVERY_S:
                self._waiting[pool.name] = now
                self.note(f"waiting for {takes(pool)} for {pool.name}: {self.placement.usage()}")


def takes(pool: Pool) -> str:
    """What one worker takes, in words."""
    amounts = [(pool.gpus, "GPU"), (pool.cpus, "CPU")]
    parts = [f"{number:g} {kind}{'s' * (number > 1)}" for number, kind in amounts if number]
    return " and ".join(parts) or "a place"
