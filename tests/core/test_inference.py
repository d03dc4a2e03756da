"""Holm by hand and by statsmodels, counts, effect sizes, and the detectable effect by
simulation.
"""

from itertools import combinations

import numpy as np
import pytest

from desa_ray.core.statistics.inference import (
    holm,
    minimal_detectable_effect,
    paired_outcomes,
    standard_error,
)
from desa_ray.core.statistics.resampling import sign_flip_p
from desa_ray.core.statistics.sampling import Sampling


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        # 4*.005, 3*.01, 2*.03, then the running maximum
        (
            [0.01, 0.04, 0.03, 0.005],
            [0.03, 0.06, 0.06, 0.02],
        ),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.2], [0.2]),
        # The paper's family against Shared
        (
            [0.0003, 0.0912, 0.3157, 0.7909],
            [0.0012, 0.2736, 0.6314, 0.7909],
        ),
        ([1e-4, 1e-4, 1e-4, 1e-4], [4e-4] * 4),
    ],
)
def test_holm_by_hand(p, adjusted):
    assert holm(p) == pytest.approx(adjusted, abs=1e-12)


def test_holm_is_the_closed_test_of_bonferroni():
    """By enumeration: the largest Bonferroni p of all families that contain the hypothesis."""
    rng = np.random.default_rng(0)
    for size in range(1, 9):
        p = (rng.random(size) ** 3).tolist()
        families = [family for n in range(1, size + 1) for family in combinations(range(size), n)]
        bonferroni = {
            family: min(1, len(family) * min(p[i] for i in family)) for family in families
        }
        expected = [max(bonferroni[f] for f in families if i in f) for i in range(size)]
        assert holm(p) == pytest.approx(expected, abs=1e-12)


def test_holm_does_not_depend_on_the_order_of_its_family():
    p = [0.04, 0.001, 0.2, 0.04]
    order = [2, 0, 3, 1]
    assert holm([p[i] for i in order]) == pytest.approx([holm(p)[i] for i in order])


def test_wins_ties_and_losses_are_counted_with_a_tolerance():
    changes = np.array([[0.1], [1e-13], [-1e-13], [0.0], [-0.2], [2e-12]])
    (found,) = paired_outcomes([changes, np.array([[0.5]])], Sampling(10))
    assert (found.wins, found.ties, found.losses, found.queries) == (3, 3, 1, 7)


def test_effect_is_the_macro_and_effect_size_its_share():
    """Effect is the macro and effect size its share of the scatter within data sets."""
    first, second = np.array([[1.0], [3.0]]), np.array([[0.0], [0.0], [6.0]])
    (found,) = paired_outcomes([first, second], Sampling(100))
    assert found.effect == pytest.approx((2 + 2) / 2)
    assert found.effect_size == pytest.approx(2 / np.sqrt((2 + 12) / 2))
    (alone,) = paired_outcomes([first], Sampling(100))
    assert alone.effect_size == pytest.approx(2 / np.sqrt(2))
    (constant,) = paired_outcomes([np.full((3, 1), 0.5)], Sampling(100))
    assert np.isnan(constant.effect_size)
    assert (constant.low, constant.high, constant.detectable) == (0.5, 0.5, 0)


def test_standard_error_of_the_macro():
    strata = [np.array([0.0, 2.0]), np.array([1.0, 1.0, 4.0])]
    assert standard_error(strata) == pytest.approx(np.sqrt(2 / 2 + 3 / 3) / 2)


def test_the_detectable_effect_is_found_four_times_in_five():
    rng = np.random.default_rng(1)
    sizes, scatter = (60, 40), 0.1
    unit = [np.resize([scatter, -scatter], size) * np.sqrt((size - 1) / size) for size in sizes]
    effect = minimal_detectable_effect(unit)
    rejected = [
        sign_flip_p([rng.normal(effect, scatter, (size, 1)) for size in sizes], 400, seed)[0]
        <= 0.05
        for seed in range(400)
    ]
    assert np.mean(rejected) == pytest.approx(0.8, abs=0.07)
