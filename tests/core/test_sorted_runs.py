"""Runs of parts of a collection, merged: the order of one sort, whatever the parts and pieces."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desa_ray.core.ranking import complete_order
from desa_ray.core.sorted_runs import merged, run_of
from desa_ray.core.topk import documents_of, scores_of
from desa_ray.errors import DesaError


@settings(deadline=None)
@given(
    scores=st.lists(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, -0.25, float("inf"), 1e-40]), max_size=60
    ),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    piece=st.integers(1, 70),
)
def test_merged_runs_are_one_sort(scores, cuts, piece):
    """Ties by number, any cut, any piece; no piece holds much more than it may."""
    values = np.array(scores, np.float32)
    edges = [0, *sorted(min(cut, values.size) for cut in cuts), values.size]
    runs = [run_of(values[a:b], a) for a, b in pairwise(edges)]
    pieces = list(merged(runs, piece))
    order = sorted(range(values.size), key=lambda number: (-values[number], number))
    keys = np.concatenate([np.empty(0, np.uint64), *pieces])
    assert documents_of(keys).tolist() == order
    assert (scores_of(keys) == values[order]).all()
    assert max(map(len, pieces), default=0) <= 2 * max(piece, len(runs))


def test_runs_of_mapped_files_merge_as_one_ranking(tmp_path):
    rng = np.random.default_rng(5)
    scores = np.round(rng.standard_normal(100_000), 2).astype(np.float32)
    runs = []
    for number, first in enumerate(range(0, scores.size, 7_001)):
        np.save(tmp_path / f"{number}.npy", run_of(scores[first : first + 7_001], first))
        runs.append(np.load(tmp_path / f"{number}.npy", mmap_mode="r"))
    found = np.concatenate(list(merged(runs, 5_000)))
    (expected,) = complete_order(scores[None])
    assert documents_of(found).tobytes() == expected.tobytes()


def test_a_score_that_is_no_number_is_refused():
    with pytest.raises(DesaError, match="not a number"):
        run_of(np.array([1, np.nan], np.float32), 0)
