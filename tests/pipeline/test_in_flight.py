"""Engines that work at several shards at once: the real supervisor feeds simulated ones, whose
slots take requests of made-up lengths.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError, EngineFailed, PoisonShard
from desa_ray.pipeline.packing import Node
from desa_ray.pipeline.shard_queue import FirstOpen
from desa_ray.pipeline.stage import Pool, Stage, Task, bounds
from desa_ray.pipeline.transport import Answer, Loaded
from desa_ray.store.artifacts import Store
from tests.pipeline import simulated_cluster, simulated_nodes
from tests.pipeline.simulated_cluster import Outcome, simulate
from tests.pipeline.simulated_nodes import Timed

SLOTS = 4
LENGTHS_S = (1.0, 1.0, 1.0, 10.0)  # of the requests of each shard
LIMITS = ClusterConfig(kind="existing", address="nowhere")
ENGINE = Pool("generator", dict, size=None, cpus=1, gpus=1, in_flight=64)


@dataclass(frozen=True)
class Asked(Timed):
    """Shards of as many rows as `LENGTHS_S` has."""

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(self.number * len(LENGTHS_S), len(LENGTHS_S))}


class Engines(simulated_cluster.SimulatedTransport):
    """Each engine has `SLOTS` slots; a request takes the first that is free."""

    rows = 4 * SLOTS
    given: list[tuple[int, str, int]]  # worker, stage, shard
    at_once: dict[int, int]

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.free: dict[int, list[float]] = defaultdict(lambda: [0.0] * SLOTS)
        type(self).given, type(self).at_once = [], Counter()
        self.running: Counter[int] = Counter()

    def _load(self, worker: int) -> None:
        self.busy.loads[self._at[worker][1].name] += 1
        self._soon(1.0, Loaded(worker, self.rows))

    def send(self, worker: int, task: Task) -> None:
        self.given.append((worker, task.stage.label, task.shard.number))
        self.running[worker] += 1
        self.at_once[worker] = max(self.at_once.get(worker, 0), self.running[worker])
        slots = self.free[worker]
        end = self.now
        for length in LENGTHS_S:
            slot = slots.index(min(slots))
            slots[slot] = max(slots[slot], self.now) + length
            end = max(end, slots[slot])
        self._soon(end - self.now, self.outcome(worker, task))

    def outcome(self, worker: int, task: Task) -> Answer:
        return Answer(worker, None, task)

    def poll(self, timeout_s: float) -> Any:
        found = super().poll(timeout_s)
        self.running.subtract(Counter(one.worker for one in found if isinstance(one, Answer)))
        return found


def stages(tmp_path, shards: int, labels: tuple[str, ...] = ("one",)) -> list[Stage]:
    store = Store(str(tmp_path))
    work = Asked(ENGINE, shards, 0.0)
    return [Stage(store, "generation", 1, {"of": one}, work, label=one) for one in labels]


def run(todo: list[Stage], monkeypatch, transport: type[Engines], gpus: int = 1) -> Outcome:
    monkeypatch.setattr(simulated_cluster, "SimulatedTransport", transport)
    return simulate(
        todo,
        {"node": Node(cpus=32, gpus=gpus)},
        LIMITS,
        load_s={},
        policy=FirstOpen(),
        max_parallel_stages=8,
    )


def test_an_engine_does_not_drain_at_the_end_of_a_shard(tmp_path, monkeypatch):
    """Slots stay full: all requests over all slots, and the longest request at the end; drained
    after each shard it takes the longest request of every one.
    """
    shards = 12
    found = run(stages(tmp_path, shards), monkeypatch, Engines)
    before = simulated_nodes.START_S + 1.0
    full = shards * sum(LENGTHS_S) / SLOTS
    assert found.makespan_s - before <= full + max(LENGTHS_S)

    class Drained(Engines):
        rows = 0

    drained = run(stages(tmp_path, shards), monkeypatch, Drained)
    assert drained.makespan_s - before == pytest.approx(shards * max(LENGTHS_S))
    assert set(Drained.at_once.values()) == {1}


def test_shards_of_several_stages_are_in_one_engine(tmp_path, monkeypatch):
    """Two short stages fill an engine that one alone would leave half empty."""
    run(stages(tmp_path, 2, ("one", "two")), monkeypatch, Engines)
    assert {label for _, label, _ in Engines.given[:3]} == {"one", "two"}


def test_no_engine_takes_more_than_its_part(tmp_path, monkeypatch):
    """Four shards and four engines: one each, although an engine would take two at once."""
    run(stages(tmp_path, 4), monkeypatch, Engines, gpus=4)
    workers = Counter(worker for worker, _, _ in Engines.given)
    assert max(workers.values()) <= 2  # engines come up together
    run(stages(tmp_path, 40), monkeypatch, Engines, gpus=4)
    workers = Counter(worker for worker, _, _ in Engines.given)
    assert len(workers) == 4
    assert max(workers.values()) - min(workers.values()) <= 2


class Failing(Engines):
    """An engine that fails takes all its shards along, and is not asked again."""

    bad: tuple[str, int] | None = None  # stage and shard that end any engine
    once: int = 0  # how many engines fail of themselves
    failed: set[int]

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        type(self).failed = set()

    def send(self, worker: int, task: Task) -> None:
        assert worker not in self.failed
        super().send(worker, task)

    def outcome(self, worker: int, task: Task) -> Answer:
        poisoned = self.bad == (task.stage.label, task.shard.number)
        if poisoned or len(self.failed) < self.once:
            self._fail_soon.append(worker)
        return Answer(worker, None, task)

    def poll(self, timeout_s: float) -> Any:
        found = super().poll(timeout_s)
        answers = []
        for event in found:
            if isinstance(event, Answer) and event.worker in self._fail_soon:
                self.failed.add(event.worker)
                event = replace(event, error=EngineFailed("the engine stopped"))
            answers.append(event)
        return answers

    @property
    def _fail_soon(self) -> list[int]:
        return self.__dict__.setdefault("fails", [])


def test_a_failed_engine_is_replaced_and_its_shards_tried_again(tmp_path, monkeypatch):
    class Once(Failing):
        once = 1

    found = run(stages(tmp_path, 6), monkeypatch, Once)
    assert found.busy.loads["generator"] == 2
    assert len(Once.failed) == 1
    again = Counter((label, shard) for _, label, shard in Once.given)
    assert set(again) == {("one", number) for number in range(6)}
    assert max(again.values()) == 2


def test_the_shard_that_ends_engines_is_named_and_no_other(tmp_path, monkeypatch):
    """Its last attempt is made alone, and so is that of the shards that were lost beside it; the
    other stage ends well.
    """

    class Poisoned(Failing):
        bad = ("one", 1)

    todo = stages(tmp_path, 3, ("one", "two"))
    with pytest.raises(PoisonShard, match=r"generation one .* shard 1 ") as caught:
        run(todo, monkeypatch, Poisoned)
    assert f"failed {LIMITS.max_failures} times; last: the engine stopped" in str(caught.value)
    attempts = Counter((label, shard) for _, label, shard in Poisoned.given)
    assert attempts["one", 1] == LIMITS.max_failures
    assert {("two", number) for number in range(3)} <= set(attempts)


def test_an_error_of_a_shard_leaves_the_engine_and_its_others(tmp_path, monkeypatch):
    class Wrong(Engines):
        def outcome(self, worker: int, task: Task) -> Answer:
            wrong = task.stage.label == "one" and task.shard.number == 0
            return Answer(worker, DesaError("does not fit") if wrong else None, task)

    todo = stages(tmp_path, 4, ("one", "two"))
    with pytest.raises(DesaError, match="does not fit"):
        run(todo, monkeypatch, Wrong)
    attempts = Counter((label, shard) for _, label, shard in Wrong.given)
    assert {("two", number) for number in range(4)} <= set(attempts)
    assert set(attempts.values()) == {1}
    assert len({worker for worker, _, _ in Wrong.given}) == 1
