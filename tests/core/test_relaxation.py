"""Selective support relaxation: bounds, order, and equality with product anchoring where nothing is
admitted.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from desa_ray.core.operators import SPARSE_OPERATORS
from desa_ray.core.ranking import sparse_order
from desa_ray.core.relaxation import relax_count, relax_share
from desa_ray.core.sparse import SparseHits, product

score = st.floats(0, 50, width=32)


def hits(scores: dict[int, float]) -> SparseHits:
    return SparseHits(
        np.array(sorted(scores), np.int32),
        np.array([scores[d] for d in sorted(scores)], np.float32),
    )


@st.composite
def pairs(draw):
    """Hit lists of a query and of its expansion, which holds every hit of the query."""
    expanded = draw(st.dictionaries(st.integers(0, 30), score, max_size=20))
    original = {document: draw(score) for document in expanded if draw(st.booleans())}
    return hits(original), hits(expanded)


ORIGINAL, EXPANDED = hits({2: 3.0, 5: 1.5}), hits({1: 8.0, 2: 4.0, 5: 6.0, 7: 8.0, 9: 2.0})


def test_admitted_documents_score_as_the_weakest_match_would():
    relaxed = relax_count(ORIGINAL, EXPANDED, Fraction(2))
    assert dict(zip(relaxed.docs.tolist(), relaxed.scores.tolist(), strict=True)) == {
        1: 12.0,
        2: 12.0,
        5: 9.0,
        7: 12.0,
    }
    # 1 and 7 tie: the smaller number
    assert relax_count(ORIGINAL, EXPANDED, Fraction(1)).docs.tolist() == [
        1,
        2,
        5,
    ]
    assert relax_count(ORIGINAL, EXPANDED, Fraction(99)).docs.tolist() == [1, 2, 5, 7, 9]
    assert relax_share(ORIGINAL, EXPANDED, Fraction(1, 2)).docs.tolist() == [1, 2, 5, 7]
    assert relax_share(ORIGINAL, EXPANDED, Fraction(0)).docs.tolist() == [1, 2, 5, 7, 9]


def test_a_query_without_matches_admits_by_expanded_score_alone():
    relaxed = relax_count(hits({}), EXPANDED, Fraction(2))
    assert (relaxed.docs.tolist(), relaxed.scores.tolist()) == ([1, 7], [8.0, 8.0])
    assert relax_count(hits({}), hits({}), Fraction(2)).docs.size == 0
    assert relax_share(hits({}), hits({}), Fraction(1, 2)).docs.size == 0


@given(pairs())
def test_admitting_nothing_is_product_anchoring_bit_for_bit(pair):
    anchored = product(*pair)
    for relaxed in (relax_count(*pair, Fraction(0)), relax_share(*pair, Fraction(1))):
        assert relaxed.docs.tobytes() == anchored.docs.tobytes()
        assert relaxed.scores.tobytes() == anchored.scores.tobytes()
        assert relaxed.scores.dtype == np.float64


@given(pairs(), st.integers(0, 25))
def test_at_most_m_of_the_best_expansion_only_documents_come_in(pair, m):
    original, expanded = pair
    relaxed = relax_count(original, expanded, Fraction(m))
    outside = sorted(set(expanded.docs.tolist()) - set(original.docs.tolist()))
    by_score = dict(zip(expanded.docs.tolist(), expanded.scores.tolist(), strict=True))
    expected = sorted(outside, key=lambda d: (-by_score[d], d))[:m]
    assert set(relaxed.docs.tolist()) == set(original.docs.tolist()) | set(expected)


@given(pairs(), st.fractions(0, 1, max_denominator=20))
def test_the_original_support_keeps_its_own_order_whoever_comes(pair, share):
    """The original support keeps its own order whoever comes in."""
    original, expanded = pair
    anchored = product(original, expanded)
    for relaxed in (
        relax_share(original, expanded, share),
        relax_count(original, expanded, Fraction(3)),
    ):
        kept = [
            d for d in sparse_order(relaxed.docs, relaxed.scores).tolist() if d in original.docs
        ]
        assert kept == sparse_order(anchored.docs, anchored.scores).tolist()


@given(pairs())
def test_an_admitted_document_never_outscores_an_original(
    pair,
):
    """An admitted document never outscores an original one that the expansion likes as much."""
    original, expanded = pair
    relaxed = relax_count(original, expanded, Fraction(99))
    scores = dict(zip(relaxed.docs.tolist(), relaxed.scores.tolist(), strict=True))
    liked = dict(zip(expanded.docs.tolist(), expanded.scores.tolist(), strict=True))
    for inside in original.docs.tolist():
        for outside in set(scores) - set(original.docs.tolist()):
            if liked[inside] >= liked[outside]:
                assert scores[inside] >= scores[outside]


@pytest.mark.parametrize(
    ("operator", "option", "value", "reason"),
    [
        ("relax_count", "count", "1/2", "whole"),
        ("relax_count", "count", "-1", "below 0"),
        ("relax_share", "share", "3/2", "above 1"),
        ("relax_count", "count", "0", None),
        ("relax_share", "share", "1", None),
    ],
)
def test_options_say_what_they_cannot_be(operator, option, value, reason):
    found = SPARSE_OPERATORS[operator].options[option].problem(Fraction(value))
    assert found is None if reason is None else reason in found
