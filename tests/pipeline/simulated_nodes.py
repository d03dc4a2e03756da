"""Workers that are names on nodes that are numbers, and a clock that passes only where nothing is
left to decide.
"""

import heapq
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from desa_ray.errors import DesaError
from desa_ray.pipeline.packing import Node
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Task, Work, bounds, shards_of
from desa_ray.pipeline.transport import Answer, Event, Loaded, Lost, Share, Up

START_S = 2.0  # until an actor's process is up


@dataclass(frozen=True)
class Timed(Work):
    """Work that only takes time: `shard_s` seconds per shard."""

    pool: Pool | None
    number: int
    shard_s: float

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(self.number, 1)}

    def shards(self, layout: Mapping[str, Any]) -> Sequence[Shard]:
        return shards_of(layout, "{}")

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        raise AssertionError("only simulated")

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        raise AssertionError("only simulated")


class Gate:
    """Counts what must happen before time may pass.

    Attributes:
        open: 1 for the first stages, 2 for each stage that was begun until it is taken in (1 before
            it has handed in its shards), 1 for each that ended until the scheduler has gone on.
        begun: keys of stages, in the order in which they were.
        ended: how many stages have had their last shard done.
        quiet: the supervisor waits: at this moment nothing more happens by itself.
    """

    def __init__(self) -> None:
        self.open, self.ended, self._changed = 1, 0, threading.Condition()
        self.begun: list[str] = []
        self.over = self.quiet = False

    def add(self, number: int) -> None:
        with self._changed:
            self.open += number
            self._changed.notify_all()

    def last_shard(self) -> None:
        with self._changed:
            self.open += 1  # until the scheduler has seen that the stage is over
            self.ended += 1
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def look(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait(self, goes_on: Callable[[], bool]) -> None:
        """The supervisor's wait."""
        with self._changed:
            self.quiet = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.over or goes_on())
            self.quiet = False

    def until_quiet(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.over or self.quiet)


@dataclass
class Busy:
    """What the run used: loads by pool, and when a worker of which pool was inside its engine."""

    loads: Counter[str] = field(default_factory=Counter)
    spans: list[tuple[Pool, float, float]] = field(default_factory=list)  # of a worker, from, to


class SimulatedTransport:
    """Workers that are names: they start where they fit, load an engine once, and take their time.

    `placement` is what the supervisor asks as well.
    """

    def __init__(self, nodes: Mapping[str, Node], gate: Gate, load_s: Mapping[str, float]):
        self.nodes_now, self.load_s = dict(nodes), load_s
        self.gate, self.busy, self.now = gate, Busy(), 0.0
        self.supervisor: Any = None  # made after it
        self._events: list[tuple[float, int, Event]] = []
        self._order = count()
        self._pending: dict[int, Pool] = {}
        self._at: dict[int, tuple[str, Pool]] = {}

    def clock(self) -> float:
        return self.now

    def spawn(self, worker: int, pool: Pool) -> None:
        self._pending[worker] = pool
        self._place()

    def _place(self) -> None:
        for worker, pool in list(self._pending.items()):
            fitting = [name for name, node in self.nodes_now.items() if node.holds(pool) > 0]
            if fitting:
                name = min(fitting, key=lambda n: (self.nodes_now[n].gpus, self.nodes_now[n].cpus))
                self.nodes_now[name] = self.nodes_now[name].without(pool)
                self._at[worker] = name, pool
                del self._pending[worker]
                self._soon(self.start_s(pool), Up(worker, name, loaded=False))

    def start_s(self, pool: Pool) -> float:
        """How long the next process of a pool takes to start."""
        return START_S

    def _soon(self, seconds: float, event: Event) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def lose(self, worker: int, seconds: float, reason: str, **why: bool) -> None:
        """Have a worker lost a while later; `why` is what `Lost` takes."""
        self._soon(seconds, Lost(worker, reason, **why))
        name, pool = self._at.pop(worker)
        self.nodes_now[name] = self.nodes_now[name].along(pool)

    def answer(self, worker: int, seconds: float) -> None:
        """Have a worker's shard done a while later."""
        self._soon(seconds, Answer(worker, None))

    def send(self, worker: int, task: Task) -> None:
        work, pool = task.stage.work, self._at[worker][1]
        assert isinstance(work, Timed)
        self._work(pool, work.shard_s, Answer(worker, None, task))

    def _work(self, pool: Pool, seconds: float, then: Event) -> None:
        self.busy.spans.append((pool, self.now, self.now + seconds))
        self._soon(seconds, then)

    def _load(self, worker: int) -> None:
        pool = self._at[worker][1]
        self.busy.loads[pool.name] += 1
        self._work(pool, self.load_s[pool.name], Loaded(worker))

    def poll(self, timeout_s: float) -> Sequence[Event]:
        assert self.supervisor is not None
        news = self.supervisor.has_news
        self.gate.wait(lambda: self.gate.open <= 0 or news())
        if self.gate.over or news():
            return []
        while self._events and self._gone(self._events[0][2]):
            heapq.heappop(self._events)
        if not self._events or self._events[0][0] > self.now + 5.0:
            self.now += 5.0  # rules that go by time look again
            return []
        self.now = self._events[0][0]
        found: list[Event] = []
        while self._events and self._events[0][0] <= self.now:
            found.append(heapq.heappop(self._events)[2])
        here = [event for event in found if not self._gone(event)]
        for event in here:
            if isinstance(event, Up):
                self._load(event.worker)
        return here

    def _gone(self, event: Event) -> bool:
        return event.worker not in self._at

    def wake(self) -> None:
        self.gate.look()

    def kill(self, worker: int) -> None:
        raise AssertionError(f"worker {worker} is killed: nothing here hangs")

    def end(self, workers: Sequence[int]) -> None:
        for worker in workers:
            self._pending.pop(worker, None)
            if worker in self._at:
                name, pool = self._at.pop(worker)
                self.nodes_now[name] = self.nodes_now[name].along(pool)
        self._place()

    def check(self) -> None: ...

    def close(self) -> None: ...


class OwnNodes:
    """A placement: the simulated nodes, and nobody else on them."""

    shared = False

    def __init__(self, nodes: Mapping[str, Node]):
        self._nodes = dict(nodes)

    def capacity(self, pool: Pool) -> int:
        number = sum(node.holds(pool) for node in self._nodes.values())
        if not number:
            raise DesaError(f"no node holds a worker of {pool.name}")
        return number

    def nodes(self) -> Mapping[str, Node]:
        return self._nodes

    def share(self, held: tuple[float, float], waiting: Pool | None) -> Share:
        return Share()

    def usage(self) -> str:
        return "simulated"
