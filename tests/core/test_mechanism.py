"""Mechanism diagnostics on rankings small enough to count by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from desa_ray.core.diagnostics import rr_change, support_retained, turnover


def ranking(*documents: int) -> np.ndarray:
    return np.array(documents, np.int32)


def test_turnover_counts_what_left_the_top_20_whatever_its_order():
    original = ranking(*range(40))
    assert turnover(ranking(*range(19, -1, -1)), original) == 0
    assert turnover(ranking(*range(5, 45)), original) == pytest.approx(5 / 20)
    assert turnover(ranking(*range(20, 60)), original) == 1


def test_turnover_of_a_short_list_is_over_its_own_length():
    assert turnover(ranking(3, 1), ranking(1, 3)) == 0
    assert turnover(ranking(*range(10, 40), 1, 3), ranking(1, 3)) == 1
    assert turnover(ranking(8, 1), ranking(1, 3)) == 0.5
    assert turnover(ranking(8, 1), ranking()) == 0


def test_rr_change_is_the_mean_over_relevant_documents_in_both():
    """Rr change is the mean over relevant documents in both rankings."""
    original, new = ranking(4, 7, 2, 9), ranking(2, 4, 5, 7)
    # 2: 1/1 - 1/3; 7: 1/4 - 1/2; 9 and 5 stand in one ranking only, 100 in none.
    expected = ((1 - 1 / 3) + (1 / 4 - 1 / 2)) / 2
    assert rr_change(new, original, ranking(100, 9, 7, 5, 2)) == pytest.approx(expected)
    assert rr_change(new, original, ranking(9, 100)) is None
    assert rr_change(new, original, ranking()) is None
    assert rr_change(ranking(), original, ranking(4)) is None


def test_support_retained_is_a_share_of_the_original_support():
    assert support_retained(ranking(1, 2, 9), ranking(9, 2, 1)) == 1
    assert support_retained(ranking(1, 5, 6, 7), ranking(1, 2, 3, 4)) == 0.25
    assert support_retained(ranking(1), ranking()) == 1
    assert support_retained(ranking(), ranking(1)) == 0


@given(st.permutations(range(30)), st.sets(st.integers(0, 29)))
def test_an_unchanged_ranking_changes_nothing(documents, relevant):
    own = ranking(*documents)
    assert (turnover(own, own), support_retained(own, own)) == (0, 1)
    assert rr_change(own, own, ranking(*relevant)) == (0 if relevant else None)
