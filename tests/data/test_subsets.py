"""Snapshots and samples: nested, complete in what is relevant, ordered by digests that another tool
computes.
"""

import random
import subprocess

import pytest

from desa_ray.data.subsets import hash_order, sample, snapshot
from desa_ray.errors import DesaError

IDS = sorted(
    [f"d{number}" for number in range(200)] + ["é", "e\u0301", "文書", "𝒳", "a b", "\ufb03"]
)
RELEVANT = {"d7", "d150", "é", "文書"}


def digests(ids: list[str], folder) -> list[str]:
    """SHA-256 of every id in hex, by coreutils."""
    for number, key in enumerate(ids):
        (folder / f"{number:04d}").write_bytes(key.encode())
    names = sorted(path.name for path in folder.iterdir())
    lines = subprocess.run(
        ["sha256sum", *names], cwd=folder, capture_output=True, text=True, check=True
    )
    return [line.split()[0] for line in lines.stdout.splitlines()]


def test_the_order_is_that_of_the_digests(tmp_path):
    by_digest = dict(zip(digests(IDS, tmp_path), IDS, strict=True))
    assert [IDS[place] for place in hash_order(IDS)] == [
        by_digest[digest] for digest in sorted(by_digest)
    ]


def test_a_snapshot_is_all_that_is_relevant_then_the_first(tmp_path):
    """A snapshot is all that is relevant then the first by digest."""
    by_digest = dict(zip(digests(IDS, tmp_path), IDS, strict=True))
    others = [
        by_digest[digest] for digest in sorted(by_digest) if by_digest[digest] not in RELEVANT
    ]
    places = snapshot(IDS, RELEVANT, 50)
    assert places == sorted(places)
    assert {IDS[place] for place in places} == RELEVANT | set(others[:46])


def test_snapshots_are_nested_whatever_the_order_of_the_corpus():
    shuffled = random.Random(0).sample(IDS, len(IDS))
    for smaller, bigger in [(4, 5), (5, 100), (100, 205)]:
        small = {IDS[place] for place in snapshot(IDS, RELEVANT, smaller)}
        big = {shuffled[place] for place in snapshot(shuffled, RELEVANT, bigger)}
        assert len(small) == smaller
        assert len(big) == bigger
        assert small < big


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (3, "a snapshot of 3 documents cannot hold all 4 relevant ones .*use 4 or more"),
        (206, "not a proper subset of a corpus of 206 .*dataset.size=all"),
        (207, "not a proper subset of a corpus of 206"),
    ],
)
def test_a_size_that_gives_no_snapshot_is_refused(size, said):
    with pytest.raises(DesaError, match=f"dataset.size: .*{said}"):
        snapshot(IDS, RELEVANT, size)


def test_a_sample_takes_judged_queries_only_and_smaller_ones_lie():
    """A sample takes judged queries only and smaller ones lie within."""
    judged = set(IDS[::3])
    first = [IDS[place] for place in hash_order(IDS) if IDS[place] in judged]
    assert {IDS[place] for place in sample(IDS, judged, 10)} == set(first[:10])
    assert {IDS[place] for place in sample(IDS, judged, 5)} == set(first[:5])
    assert [IDS[place] for place in sample(IDS, judged, 1000)] == sorted(judged)
