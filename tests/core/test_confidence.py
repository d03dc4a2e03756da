"""Confidence weights: worked by hand, and what holds for any margins."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desa_ray.core.fusion.weights import confidence_weights, margin


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (4.0, 3.0, 0.25),
        (2.0, 2.0, 0.0),
        (0.5, 0.0, 1.0),
        (0.5, -0.5, 2.0),  # a cosine below 0
        (0.0, -1.0, 0.0),  # best score not positive
        (-1.0, -2.0, 0.0),
        (4.0, None, 0.0),  # a single hit
        (None, None, 0.0),  # no hit
    ],
)
def test_margin_is_the_gap_over_the_best_score(first, second, expected):
    assert margin(first, second) == expected


def parts(margins):
    return [int(weight * 10_000) for weight in confidence_weights(margins)]


def test_weights_are_shares_in_ten_thousandths():
    assert parts([0.1, 0.1, 0.2, 0.6]) == [1000, 1000, 2000, 6000]
    assert parts([1.0, 0.0, 0.0, 0.0]) == [10_000, 0, 0, 0]
    assert confidence_weights([0.0] * 4) == [Fraction(1, 4)] * 4
    assert (
        confidence_weights([0.0] * 3) == [Fraction(1, 3)] * 3
    )  # exact, so no multiple of 1/10,000


def test_the_largest_weight_takes_what_rounding_left_over():
    # 10,000/3 = 3333.33: three times 3333, and 1 more for the first of equals.
    assert parts([0.2, 0.2, 0.2]) == [3334, 3333, 3333]
    # 1/7, 2/7, 4/7 = 1428.57, 2857.14, 5714.29 -> 1429 + 2857 + 5714 = 10,000: nothing left over.
    assert parts([1.0, 2.0, 4.0]) == [1429, 2857, 5714]
    # 1/6, 1/6, 4/6 = 1666.67, 1666.67, 6666.67 -> 1667 + 1667 + 6667 = 10,001: one less for the
    # largest.
    assert parts([1.0, 1.0, 4.0]) == [1667, 1667, 6666]
    # A share below half a part becomes 0: that channel is left out.
    assert parts([1e-5, 1.0]) == [0, 10_000]


@given(st.lists(st.floats(0, 2), min_size=1, max_size=6))
def test_weights_sum_to_one_exactly_and_order_as_margins_do(margins):
    weights = confidence_weights(margins)
    assert sum(weights) == 1
    assert all(weight >= 0 for weight in weights)
    largest = max(range(len(margins)), key=lambda c: margins[c])
    assert weights[largest] >= max(weights) - Fraction(len(margins), 10_000)


@given(st.lists(st.floats(0.001, 2), min_size=1, max_size=6), st.sampled_from([0.5, 2.0, 1024.0]))
def test_rescaling_all_margins_by_a_power_of_two_changes_nothing(margins, factor):
    assert confidence_weights([value * factor for value in margins]) == confidence_weights(margins)
