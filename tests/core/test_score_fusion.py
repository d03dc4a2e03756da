"""Score fusion, worked by hand, and against sums of rationals."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desa_ray.core.fusion.scores import fuse_cut, fuse_scores, normalised

QUARTER = [Fraction(1, 4)] * 4


def listed(*pairs: tuple[int, float]):
    docs, scores = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(docs, np.int32), np.array(scores, np.float64)


def test_four_lists_are_fused_as_hands_do():
    raw = [
        listed((7, 10.0), (2, 6.0), (4, 2.0)),  # 1, 1/2, 0
        listed((2, 0.75), (4, 0.5), (7, 0.25), (9, 0.25)),  # 1, 1/2, 0, 0
        listed((9, 3.0), (4, 1.0)),  # 1, 0
        listed((4, 5.0)),  # a single hit: 0 / 1e-12
    ]
    lists = [normalised(docs, scores, 1000) for docs, scores in raw]
    # Sums: 2: 3/2; 7: 1; 9: 1; 4: 1/2; the two of 1 up to 1e-12: 10 - 2 = 8 has the smaller
    # 1e-12/8, so document 7 (1 - 1.25e-13) stands before 9 (1 - 5e-13).
    assert fuse_scores(lists, QUARTER).tolist() == [2, 7, 9, 4]
    # Three quarters of the third list lift 9 above all.
    weights = [Fraction(1, 12)] * 2 + [Fraction(3, 4), Fraction(1, 12)]
    assert fuse_scores(lists, weights).tolist() == [9, 2, 7, 4]
    # Only first places: 7, 2, 9 and 4 with 1, 1, 1 and 0.
    assert fuse_cut(lists, QUARTER, 1).tolist()[-1] == 4
    # Of two documents each, min and max move: 7 and 2 of the first list have 1 and 0.
    short = [normalised(docs, scores, 2) for docs, scores in raw]
    assert short[0][1].tolist() == pytest.approx([1, 0])


def test_sums_that_floats_order_by_rounding_tie_by_number():
    weights = [Fraction(1)] * 3
    lists = [listed((5, 0.1), (1, 0.1)), listed((5, 0.2), (1, 0.1)), listed((5, 0.2), (1, 0.3))]
    assert (0.1 + 0.2) + 0.2 == (0.1 + 0.1) + 0.3
    assert sum(map(Fraction, (0.1, 0.2, 0.2))) > sum(map(Fraction, (0.1, 0.1, 0.3)))
    assert fuse_scores(lists, weights).tolist() == [5, 1]
    assert fuse_scores(lists, weights, exact=False).tolist() == [1, 5]
    same = [listed((9, 0.1), (3, 0.2)), listed((3, 0.3), (9, 0.2)), listed((9, 0.3), (3, 0.1))]
    assert (0.2 + 0.3) + 0.1 != (0.1 + 0.2) + 0.3
    assert fuse_scores(same, weights).tolist() == [3, 9]  # equal sums of rationals
    assert fuse_scores(same, weights, exact=False).tolist() == [9, 3]  # 0.6000000000000001, 0.6


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_the_order_is_that_of_rational_sums(data):
    lists, sums = [], {}
    weights = [Fraction(data.draw(st.integers(1, 2**20)), 2**21) for _ in range(3)]
    for weight in weights:
        docs = data.draw(st.lists(st.integers(0, 9), unique=True, max_size=10))
        scores = [data.draw(st.integers(0, 8)) / 10 for _ in docs]
        lists.append((np.array(docs, np.int32), np.array(scores, np.float64)))
        for document, score in zip(docs, scores, strict=True):
            sums[document] = sums.get(document, 0) + weight * Fraction(score)
    expected = sorted(sums, key=lambda document: (-sums[document], document))
    assert fuse_scores(lists, weights).tolist() == expected
