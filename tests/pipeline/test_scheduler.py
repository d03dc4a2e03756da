"""Stages side by side: a pool serves one at a time, the next stands ready; what is told is told one
after the other.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from desa_ray.errors import DesaError
from desa_ray.pipeline.backend import LostCluster
from desa_ray.pipeline.execute import Quiet
from desa_ray.pipeline.scheduler import run_graph
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Task, Work, bounds, shards_of
from desa_ray.store.artifacts import Store

POOL = Pool("threads", dict)


@dataclass
class Diary:
    """What happened, in order, and what was going on at once."""

    events: list[tuple[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str, which: Any = None) -> int:
        with self.lock:
            self.events.append((what, which))
            return len(self.events) - 1

    def at(self, what: str, which: Any) -> int:
        return self.events.index((what, which))


diary = Diary()


@dataclass(frozen=True)
class Noted(Work):
    """One shard; `broken` fails in it. Finishing waits until the next stage's shard has begun, if
    there is one.
    """

    number: int
    next_begun: threading.Event | None = None
    begun: threading.Event | None = None
    broken: bool = False
    pool: Pool | None = POOL

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(1, 1)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.bin")

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        diary.note("begin", self.number)
        if self.begun:
            self.begun.set()
        time.sleep(0.02)
        if self.broken:
            raise DesaError("broken")
        stage.artifact.write_part(shard.parts[0], b"x", rows=1)
        diary.note("end", self.number)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        if self.next_begun:
            assert self.next_begun.wait(10), "the pool idles while a stage is being finished"
        return Finished("0" * 64, {"rows": 1})


class Threads:
    """Computes tasks in the asking thread, one stage at a time."""

    max_parallel_stages = 2

    def __init__(self, store: Store):
        self.store, self.lock, self.asked, self.most, self.closed = store, threading.Lock(), 0, 0, 0

    def compute(
        self,
        pool: Pool,
        tasks: Sequence[Task],
        on_start: Callable[[], None],
        on_done: Callable[[Task], None],
    ) -> int:
        self.asked += 1
        self.most = max(self.most, self.asked)
        try:
            with self.lock:
                on_start()
                for task in tasks:
                    task.stage.work.run(None, task.stage, task.shard)
                    on_done(task)
        finally:
            self.asked -= 1
        return 1

    def recover(self, loss: LostCluster) -> None:
        raise loss

    def expect(self, pools: frozenset[str]) -> None: ...

    def stop(self) -> None:
        diary.note("stop")

    def close(self) -> None:
        self.closed += 1


def stages(store: Store, count: int, **more: Any) -> list[Stage]:
    return [
        Stage(store, "ranking", 1, {"number": number}, Noted(number, **more))
        for number in range(count)
    ]


@pytest.fixture(autouse=True)
def fresh_diary():
    diary.events.clear()


def test_a_pool_has_its_next_stage_ready_while_one_is_finished(tmp_path):
    """A pool has its next stage ready while one is finished and serves one at a time."""
    begun = [threading.Event() for _ in range(5)]
    following = [*begun[1:], None]
    backend = Threads(Store(tmp_path))
    works = [Noted(n, next_begun=following[n], begun=begun[n]) for n in range(len(begun))]
    todo = [Stage(backend.store, "ranking", 1, {"number": work.number}, work) for work in works]
    told: list[Any] = []
    run_graph(
        todo, backend, Quiet(), lambda stage, error: told.append((stage.params["number"], error))
    )
    assert sorted(told) == [(n, None) for n in range(5)]
    assert 2 <= backend.most <= 5  # how many begin before the first ends is a matter of time
    assert (backend.asked, backend.closed) == (0, 1)
    order = [number for what, number in diary.events if what == "begin"]
    assert all(diary.at("end", a) < diary.at("begin", b) for a, b in pairwise(order))


def test_calls_come_one_after_the_other_the_first_one_first(tmp_path):
    """Calls come one after the other the first one first while stages go on."""
    inside, names, slept = [], set(), threading.Event()

    def call(name: str) -> None:
        inside.append(name)
        assert len(inside) == 1, inside
        names.add(threading.current_thread().name)
        diary.note("told", name)
        if name == "first":
            slept.wait(10)  # until a stage has ended meanwhile
        inside.remove(name)

    class Watching(Quiet):
        def end(self, stage: Stage, seconds: float) -> None:
            slept.set()

    backend = Threads(Store(tmp_path))
    run_graph(
        stages(backend.store, 4),
        backend,
        Watching(),
        lambda stage, error: call(str(stage.params["number"])),
        on_start=lambda: call("first"),
    )
    told = [name for what, name in diary.events if what == "told"]
    assert told[0] == "first"
    assert sorted(told[1:]) == ["0", "1", "2", "3"]
    assert slept.is_set()
    assert len(names) == 1
    assert threading.main_thread().name not in names


def test_a_stage_that_fails_is_told_and_the_others_go_on(tmp_path):
    backend = Threads(Store(tmp_path))
    todo = stages(backend.store, 3)
    todo[1] = Stage(backend.store, "ranking", 1, {"number": 1}, Noted(1, broken=True))
    told: dict[int, str | None] = {}
    run_graph(
        todo,
        backend,
        Quiet(),
        lambda s, error: told.update({s.params["number"]: error and str(error)}),
    )
    assert told == {0: None, 1: "broken", 2: None}
    assert backend.asked == 0


def test_stages_without_workers_start_no_cluster(tmp_path):
    class NoCluster(Threads):
        @property
        def max_parallel_stages(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
            raise AssertionError("a cluster is started")

    backend = NoCluster(Store(tmp_path))
    told: list[Any] = []
    run_graph(
        stages(backend.store, 2, pool=None),
        backend,
        Quiet(),
        lambda stage, error: told.append((stage.params["number"], error)),
        on_start=lambda: told.append("first"),
    )
    assert told == ["first", (0, None), (1, None)]


def test_an_error_of_a_call_stops_everything_and_is_raised(tmp_path):
    def fails(*_: object) -> None:
        raise ValueError("a fault")

    backend = Threads(Store(tmp_path))
    with pytest.raises(ValueError, match="a fault"):
        run_graph(stages(backend.store, 6), backend, Quiet(), fails)
    assert ("stop", None) in diary.events
