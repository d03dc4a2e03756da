"""Where shards begin and end."""

from itertools import pairwise

import pytest

from desa_ray.pipeline.stage import bounds


@pytest.mark.parametrize(
    ("total", "size", "expected"),
    [
        (5183, 1024, [0, 863, 1727, 2591, 3455, 4319, 5183]),
        (10, 5, [0, 5, 10]),
        (11, 5, [0, 3, 7, 11]),
        (1, 7, [0, 1]),
        (0, 7, [0, 0]),
    ],
)
def test_shards_are_as_few_as_may_be_and_differ_by_one_row(total, size, expected):
    """Shards are as few as may be and differ by one row at most."""
    assert bounds(total, size) == expected
    assert len(expected) == max(1, -(-total // size)) + 1
    sizes = [stop - start for start, stop in pairwise(expected)]
    assert max(sizes) <= min(size, min(sizes) + 1)
