"""The series of one run: whose they are, that they add up, and that hostile names stay labels."""

import shutil
import threading

import pytest

from desa_ray.cluster.metrics import LABEL_LIMIT
from desa_ray.cluster.run_series import GAUGES, OWNER, RunSeries
from desa_ray.printable import printable
from tests.hostile import STRINGS


def values(series: RunSeries, name: str) -> dict[str, float]:
    """The last label's value -> the gauge."""
    return {list(own.values())[-1]: value for each, own, value in series.samples() if each == name}


def test_shards_and_stages_move_from_left_to_done():
    series = RunSeries("0123abcd", "anna", stages=2)
    series.add("run_shards", "left", 3)
    for _ in range(2):
        series.add("run_shards", "left", -1)
        series.add("run_shards", "done")
    series.add("run_shards", "lost")
    assert values(series, "run_shards") == {"left": 1, "done": 2, "lost": 1}
    assert values(series, "run_stages") == {"left": 2, "done": 0}


def test_a_run_tells_how_full_the_disk_of_its_store_is(tmp_path):
    found = values(RunSeries("0123abcd", "anna", tmp_path), "run_store_bytes")
    assert found["total"] == shutil.disk_usage(tmp_path).total
    assert 0 <= found["free"] <= found["total"]
    assert values(RunSeries("0123abcd", "anna", tmp_path / "gone"), "run_store_bytes") == {}


@pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS)
def test_every_series_has_its_owner_and_its_own_labels(text):
    series = RunSeries("0123abcd", text, stages=1)
    series.set("run_waits", "", 1)
    series.set("run_held", "CPU", 2)
    for name, labels, _ in series.samples():
        assert tuple(labels) == (*OWNER, *GAUGES[name][1])
        assert labels["user"] == printable(text)[:LABEL_LIMIT] or labels["user"].endswith("...")


def test_told_values_end_with_the_block():
    """Without a cluster nothing is told; the thread ends at once."""
    before = threading.active_count()
    with RunSeries("0123abcd", "anna"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
