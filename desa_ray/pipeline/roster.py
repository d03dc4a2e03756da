"""The workers a supervisor has, by pool: what each is doing, on which node, and since when."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from desa_ray.pipeline.packing import Standing
from desa_ray.pipeline.shard_queue import StageShards
from desa_ray.pipeline.stage import Pool, Task

RESPAWN_PAUSE_S = 1.0


@dataclass(frozen=True)
class Held:
    """A shard that a worker was given, and when; `alone`: nothing is given to it beside."""

    stage: StageShards
    task: Task
    since: float
    alone: bool = False


@dataclass
class RosterEntry:
    """A worker and what it is doing: coming up, idle, or at shards of stages.

    Attributes:
        since: when it was spawned, came up or had its engine loaded, whichever was last.
        node: where it stands; None until it is up.
        loaded: its engine is there; until then it gets no task, which others could do meanwhile.
        rows: of how many rows it wants shards at once; 0 for one shard at a time.
        held: the shards that it was given, in that order.
        ailing: its engine cannot go on; it gets nothing more, and ends once its shards are back.
    """

    pool: Pool
    since: float
    up: bool = False
    loaded: bool = False
    rows: int = 0
    node: str | None = None
    held: list[Held] = field(default_factory=list)
    ailing: bool = False
    killed: bool = False

    def has_room(self, share: int) -> bool:
        """Whether it may be given one more shard; with one in its hands only below its `share`."""
        if not self.loaded or self.ailing:
            return False
        if not self.held:
            return True
        if self.held[0].alone or len(self.held) >= min(share, self.pool.in_flight):
            return False
        rows = sum(held.task.shard.stop - held.task.shard.start for held in self.held)
        return rows < self.rows or (self.rows > 0 and len(self.held) == 1)

    def is_at(self, stage: StageShards) -> bool:
        """Whether it has a shard of the stage."""
        return any(held.stage is stage for held in self.held)

    def at_work_since(self) -> float | None:
        """When what it has been at for the longest began; None where it is idle."""
        if self.up and not self.loaded:
            return self.since
        return min((held.since for held in self.held), default=None)


@dataclass
class PoolState:
    """When a pool may grow again, when one of its workers was last seen alive, when it was last
    used, and why the last worker was lost before it was up.

    Attributes:
        load_losses: how often in a row workers were lost while they loaded their engine, alone
            (False) or with their node (True); workers that were started together count once, as a
            node takes them all along.
        loss_counted: up to this number workers were started before the last loss that counts.
        most: how many workers the pool may have since memory ran out under more; None: any number.
    """

    last_up: float
    grow_at: float = 0.0
    respawn_at: float = 0.0
    used: float = 0.0
    lost: str = ""
    load_losses: Counter[bool] = field(default_factory=Counter)
    loss_counted: int = 0
    most: int | None = None

    def replace_at(self, now: float) -> None:
        """A worker went: another may be spawned after a pause."""
        self.grow_at, self.respawn_at = 0.0, now + RESPAWN_PAUSE_S


class Roster:
    """Workers by number, and the states of their pools."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.workers: dict[int, RosterEntry] = {}
        self._pools: dict[str, PoolState] = {}
        self._spawned = 0

    def add(self, pool: Pool) -> int:
        """Enter a worker that is about to be spawned; returns its number."""
        self._spawned += 1
        self.workers[self._spawned] = RosterEntry(pool, self._clock())
        return self._spawned

    @property
    def latest(self) -> int:
        """The number of the worker that was entered last; 0 before the first."""
        return self._spawned

    def clear(self) -> None:
        self.workers.clear()
        self._pools.clear()

    def of(self, pool: Pool) -> dict[int, RosterEntry]:
        """Its workers, those coming up included."""
        return {n: entry for n, entry in self.workers.items() if entry.pool.name == pool.name}

    def loaded(self, pool: Pool) -> int:
        """How many of its workers have their engine."""
        return sum(entry.loaded for entry in self.of(pool).values())

    def first_loaded(self, pool: Pool) -> int | None:
        """The number of the first of them that can be given a shard."""
        return next((n for n, e in self.of(pool).items() if e.loaded and not e.ailing), None)

    def state(self, pool: Pool) -> PoolState:
        return self._pools.setdefault(pool.name, PoolState(last_up=self._clock()))

    def look_again(self) -> None:
        """Work came or went: every pool may have another claim now."""
        for state in self._pools.values():
            state.grow_at = 0.0

    def is_up(self, pool: Pool) -> bool:
        return any(entry.up for entry in self.of(pool).values())

    def standing(self, pools: Sequence[Pool], *, within: bool = True) -> list[Standing]:
        """Workers of these pools, or of all others; the least recently used first."""
        names = {pool.name for pool in pools}
        chosen = [
            Standing(number, entry.pool, entry.node)
            for number, entry in self.workers.items()
            if (entry.pool.name in names) is within
        ]
        return sorted(chosen, key=lambda one: (self.state(one.pool).used, one.worker))

    def used(self) -> tuple[float, float]:
        """CPUs and GPUs of all workers that are up."""
        up = [entry.pool for entry in self.workers.values() if entry.up]
        return sum(pool.cpus for pool in up), sum(pool.gpus for pool in up)
