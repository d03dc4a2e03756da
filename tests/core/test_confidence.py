"""Confidence weights: worked by hand, and what holds for any margins."""

from fractions import Fraction
from math import e, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from desa_ray.core.fusion.weights import confidence_weights, margin, min_max


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([4.0, 3.0, 2.0], 0.5),
        ([2.0, 2.0, 1.0], 0.0),
        ([2.0, 2.0], 0.0),  # all equal: 0 / 1e-12
        ([9.0, 5.0], 1.0),  # the second is the least
        ([0.5, -0.5, -1.5, -3.5], 0.25),  # cosines below 0
        ([4.0], 0.0),  # a single hit
        ([], 0.0),  # no hit
    ],
)
def test_margin_is_the_gap_of_the_first_two_in_the_range(scores, expected):
    assert margin(np.array(scores)) == pytest.approx(expected, abs=1e-11)


def test_min_max_keeps_the_authors_denominator():
    scores = min_max(np.array([3.0, 2.0, 1.0]))
    assert scores.tolist() == [2 / (2 + 1e-12), 1 / (2 + 1e-12), 0.0]
    assert min_max(np.array([7.0, 7.0], np.float32)).tolist() == [0.0, 0.0]


def test_weights_are_a_softmax_of_half_the_margins():
    # e^.5 / (e^.5 + 3), the largest weight that four rankings allow, and 1 / (e^.5 + 3).
    exact = confidence_weights([1.0, 0.0, 0.0, 0.0], rounded=False)
    expected = [0.35466124439244334, *[0.21511291853585218] * 3]
    assert [float(weight) for weight in exact] == pytest.approx(expected, abs=1e-15)
    assert expected[0] == pytest.approx(sqrt(e) / (sqrt(e) + 3), abs=1e-15)
    rounded = confidence_weights([1.0, 0.0, 0.0, 0.0])
    assert [weight * 2**40 for weight in rounded] == [
        round(value * 2**40) for value in (0.35466124439244334, *[0.21511291853585218] * 3)
    ]
    assert confidence_weights([0.0] * 4) == [Fraction(1, 4)] * 4
    assert confidence_weights([0.3] * 4) == [Fraction(1, 4)] * 4  # only differences count


def test_four_lists_give_the_weights_that_hands_find():
    # Margins 1/2, 0, 1/4 and (a single hit) 0, so e^(1/4), 1, e^(1/8), 1 over their sum.
    lists = [[4, 3, 2], [5, 5, 1], [8, 7, 4], [3]]
    margins = [margin(np.array(own, np.float64)) for own in lists]
    powers = np.exp([0.25, 0, 0.125, 0])
    weights = [float(weight) for weight in confidence_weights(margins)]
    assert weights == pytest.approx((powers / powers.sum()).tolist(), abs=1e-11)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_weights_are_positive_and_order_as_margins_do(margins):
    weights = confidence_weights(margins)
    assert all(weight > 0 for weight in weights)
    assert all(2**40 % weight.denominator == 0 for weight in weights)
    assert abs(sum(weights) - 1) <= Fraction(len(margins), 2**40)
    by_margin = [weights[c] for c in sorted(range(len(margins)), key=lambda c: margins[c])]
    assert by_margin == sorted(by_margin)
