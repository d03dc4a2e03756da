"""Step-down max-T against exact enumeration and simulation; what Holm can reject."""

from itertools import product

import numpy as np
import pytest

from desa_ray.core.statistics.families import holm_can_reject, max_t
from desa_ray.core.statistics.inference import minimal_detectable_effect
from desa_ray.core.statistics.resampling import sign_flip_p


def exact(strata: list[np.ndarray]) -> np.ndarray:
    """Adjusted p over all sign flips, from the definition."""
    observed, flipped = [], []
    sizes = [len(values) for values in strata]
    for signs in product((1.0, -1.0), repeat=sum(sizes)):
        parts = np.split(np.array(signs), np.cumsum(sizes)[:-1])
        flipped.append(statistic([v * s[:, None] for v, s in zip(strata, parts, strict=True)]))
    observed, table = np.abs(statistic(strata)), np.abs(np.array(flipped))
    order = np.argsort(-observed, kind="stable")
    adjusted, largest = np.empty(len(order)), 0.0
    for place, h in enumerate(order):
        share = (table[:, order[place:]].max(1) >= observed[h] - 1e-12).mean()
        largest = max(largest, share)
        adjusted[h] = largest
    return adjusted


def statistic(strata: list[np.ndarray]) -> np.ndarray:
    """Macro mean over its root of squares, hypothesis by hypothesis."""
    found = []
    for h in range(strata[0].shape[1]):
        own = [values[:, h][~np.isnan(values[:, h])] for values in strata]
        squares = sum(float((v**2).sum()) / len(v) ** 2 for v in own)
        scale = np.sqrt(squares) if squares else np.inf
        found.append(sum(v.mean() for v in own) / scale)
    return np.array(found)


def test_max_t_is_that_of_all_sign_flips():
    """Two data sets, three hypotheses, one of them without two of the queries."""
    rng = np.random.default_rng(3)
    strata = [rng.normal(0.5, 1, (5, 3)), rng.normal(0.2, 1, (4, 3))]
    strata[0][1, 2] = strata[1][0, 2] = np.nan
    found, adjusted = max_t(strata, 40_000, seed=1)
    expected = statistic(strata)
    assert np.argsort(-np.abs(found)).tolist() == np.argsort(-np.abs(expected)).tolist()
    assert adjusted == pytest.approx(exact(strata), abs=0.01)


def test_one_hypothesis_is_the_sign_flip_test():
    rng = np.random.default_rng(5)
    strata = [rng.normal(0.1, 1, (40, 1)), rng.normal(0, 1, (25, 1))]
    assert max_t(strata, 999, 7)[1] == pytest.approx(sign_flip_p(strata, 999, 7))


def test_hypotheses_that_are_one_cost_nothing():
    """Equal columns, whatever their unit, are adjusted by nothing; Holm would triple their p."""
    own = np.random.default_rng(5).normal(0.3, 1, (30, 1))
    strata = [np.hstack([own, 1000 * own, -own])]
    alone = sign_flip_p([own], 999, 2)[0]
    assert max_t(strata, 999, 2)[1] == pytest.approx([alone] * 3)


def test_what_never_differs_is_not_rejected():
    strata = [np.zeros((10, 2))]
    assert max_t(strata, 99)[1].tolist() == [1.0, 1.0]


def test_holm_needs_twenty_times_its_hypotheses():
    """10,000 resamples can reject one of 500 hypotheses, not of 501."""
    assert holm_can_reject(500, 10_000)
    assert not holm_can_reject(501, 10_000)
    assert holm_can_reject(1, 19)
    assert not holm_can_reject(1, 18)


def null_family(rng: np.random.Generator, queries: int) -> np.ndarray:
    """Differences like those of nDCG: many zeros, skewed sizes, ties, variants that depend on each
    other, and queries that some hypotheses lack; symmetric about 0.
    """
    shared = rng.exponential(0.15, (queries, 1)) * rng.choice([-1, 1], (queries, 1))
    own = rng.exponential(0.1, (queries, 6)) * rng.choice([-1, 1], (queries, 6))
    values = np.round(0.7 * shared + 0.5 * own, 1)
    values[rng.random((queries, 6)) < 0.6] = 0
    values[rng.random(queries) < 0.2, 4:] = np.nan
    return values


@pytest.mark.slow
@pytest.mark.parametrize("queries", [50, 300])
def test_family_wise_error_is_held(queries):
    """At most 64 of 1,000 families of true null hypotheses have a p below .05."""
    rng = np.random.default_rng(queries)
    rejected = 0
    for seed in range(1000):
        _, adjusted = max_t([null_family(rng, queries), null_family(rng, 40)], 399, seed)
        rejected += adjusted.min() <= 0.05
    assert rejected <= 64


@pytest.mark.slow
def test_power_at_the_detectable_effect_is_as_computed():
    """80 percent of 1,000 studies whose effect is the detectable one reject, within 5 points."""
    rng = np.random.default_rng(8)
    sizes = (60, 120)

    def study() -> list[np.ndarray]:
        return [rng.exponential(0.2, (n, 1)) * rng.choice([-1, 1], (n, 1)) for n in sizes]

    # The differences' variance is known: E[x^2] of an exponential is twice its squared mean.
    errors = [np.full(n, 0.0) for n in sizes]
    for own in errors:
        own[: len(own) // 2] = 1.0
        own[len(own) // 2 :] = -1.0
        own *= np.sqrt(2 * 0.2**2 * (len(own) - 1) / len(own))
    effect = minimal_detectable_effect(errors)
    found = 0
    for seed in range(1000):
        found += sign_flip_p([own + effect for own in study()], 499, seed)[0] <= 0.05
    assert 750 <= found <= 850
