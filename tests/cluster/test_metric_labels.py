"""Labels of metrics come out of recordings: each can be exported, and read back by a parser."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from desa_ray.cluster import metrics
from desa_ray.printable import printable
from tests.hostile import STRINGS, odd


@pytest.fixture
def waiting(monkeypatch) -> list:
    """What is counted before a session is there."""
    found: list = []
    monkeypatch.setattr(metrics, "_waiting", found)
    return found


@pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS)
def test_a_label_out_of_data_is_printable_and_exported(text, waiting):
    metrics.count("generations", 2, generator=text, outcome="valid")
    ((name, value, labels),) = waiting
    assert (name, value, labels["outcome"]) == ("generations", 2, "valid")
    assert labels["generator"] == printable(text)
    registry = CollectorRegistry()
    counter = Counter("x", "x", tuple(labels), registry=registry)
    counter.labels(**labels).inc()
    families = text_string_to_metric_families(generate_latest(registry).decode())
    totals = [sample for family in families for sample in family.samples if sample.value == 1]
    assert [sample.labels for sample in totals] == [labels]


def test_a_long_label_is_cut(waiting):
    metrics.count("generations", generator="\x00" * 10_000, outcome="valid")
    shown = waiting[0][2]["generator"]
    assert len(shown) == metrics.LABEL_LIMIT
    assert odd(shown, allowed="") == []


def test_shards_that_overlap_at_one_engine_count_their_time_once():
    """Three shards within ten seconds, two of them at the same time: 2 + 5 seconds of work."""
    times = iter([0.0, 2.0, 10.0, 13.0, 15.0])
    busy = metrics.BusyTime(lambda: next(times))
    busy.begin()
    assert busy.end() == 2  # from 0 to 2
    busy.begin()  # at 10
    busy.begin()  # at 11, say: the clock is not asked
    assert busy.end() == 3
    assert busy.end() == 2


def test_a_worker_counts_the_time_that_its_shards_take(waiting, monkeypatch):
    """What the metric adds up to is the time that passed, however many shards were at work."""
    began = threading.Barrier(3)

    class Waits:
        name = "waits"

        def run(self, engine: object, stage: object, shard: object) -> None:
            began.wait()
            time.sleep(0.3)

    pool: Any = SimpleNamespace(factory=object, in_flight=3)
    work = Waits()
    task: Any = SimpleNamespace(
        stage=SimpleNamespace(name="waits", work=work), shard=SimpleNamespace(parts=[])
    )
    monkeypatch.setattr(metrics, "part_counts", lambda *given: [])
    worker = metrics.CountingWorker(pool)
    worker.load()
    started = time.perf_counter()
    threads = [threading.Thread(target=worker.run, args=[task]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - started
    seconds = sum(value for name, value, _ in waiting if name == "worker_seconds")
    assert 0.3 <= seconds <= passed
