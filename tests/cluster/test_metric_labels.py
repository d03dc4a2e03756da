"""Labels of metrics come out of recordings: each can be exported, and read back by a parser."""

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
