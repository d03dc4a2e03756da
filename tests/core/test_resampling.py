"""Resampling against independent tools and exact enumeration; ties, seeds, and the time it may
take.
"""

import itertools
import time

import numpy as np
import pytest
from scipy import stats

from desa_ray.core.statistics.resampling import (
    RESAMPLES,
    bootstrap_means,
    interval,
    sign_flip_p,
    sign_flip_statistics,
)

PAPER = (1406, 648, 323, 1000, 300, 50, 49)


def made_up(sizes, outcomes=1, seed=0, effect=0.02):
    rng = np.random.default_rng(seed)
    return [rng.normal(effect, 0.1, (size, outcomes)) for size in sizes]


def exact_p(strata):
    """Every sign assignment counts once; feasible for a few queries."""
    observed = abs(np.mean([s.mean() for s in strata]))
    sizes = [len(s) for s in strata]
    reached = 0
    for signs in itertools.product((1.0, -1.0), repeat=sum(sizes)):
        parts = np.split(np.array(signs), np.cumsum(sizes)[:-1])
        statistic = np.mean(
            [(s[:, 0] * part).mean() for s, part in zip(strata, parts, strict=True)]
        )
        reached += abs(statistic) >= observed * (1 - 1e-12) - 1e-15
    return reached / 2 ** sum(sizes)


def monte_carlo_error(p, resamples=RESAMPLES):
    return 4.5 * np.sqrt(p * (1 - p) / resamples) + 2 / resamples


@pytest.mark.parametrize("seed", range(4))
def test_sign_flip_p_agrees_with_scipy_on_one_stratum(seed):
    (values,) = made_up([60], seed=seed)
    theirs = stats.permutation_test(
        (values[:, 0],),
        np.mean,
        permutation_type="samples",
        n_resamples=20_000,
        rng=np.random.default_rng(seed),
    ).pvalue
    (ours,) = sign_flip_p([values], seed=seed)
    assert abs(ours - theirs) <= 1.3 * monte_carlo_error(theirs)


@pytest.mark.parametrize("seed", range(3))
def test_sign_flip_p_agrees_with_exact_enumeration_over_several(seed):
    """Sign flip p agrees with exact enumeration over several strata."""
    strata = made_up([5, 4, 3], seed=seed, effect=0.05)
    exact = exact_p(strata)
    assert abs(sign_flip_p(strata, seed=seed)[0] - exact) <= monte_carlo_error(exact)


@pytest.mark.parametrize(
    "values", [[1.0, 1.0, 1.0], [0.1, 0.2, 0.3], [0.3, -0.1, -0.2], [1 / 3, 1 / 3, -2 / 3]]
)
def test_ties_with_the_observed_statistic_count(values):
    """Ties with the observed statistic count even where it is nothing but rounding."""
    strata = [np.array(values)[:, None]]
    exact = exact_p(strata)
    assert abs(sign_flip_p(strata)[0] - exact) <= monte_carlo_error(exact)
    if abs(sum(values)) < 1e-15:
        assert sign_flip_p(strata)[0] == 1


def test_p_is_never_zero_and_one_where_nothing_differs():
    overwhelming = [np.full((200, 1), 1.0)]
    assert sign_flip_p(overwhelming)[0] == 1 / (RESAMPLES + 1)
    assert sign_flip_p([np.zeros((5, 2)), np.zeros((3, 2))]).tolist() == [1, 1]


def test_flipped_statistics_have_the_mean_and_variance_of_random():
    """Flipped statistics have the mean and variance of random signs."""
    strata = made_up([30, 50, 7], outcomes=2)
    found = sign_flip_statistics(strata, 20_000)
    expected = np.sqrt(sum((s**2).sum(0) / (len(s) * len(strata)) ** 2 for s in strata))
    assert np.abs(found.mean(0)).max() < 5 * expected.max() / np.sqrt(20_000)
    assert found.std(0) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_bootstrap_interval_agrees_with_scipy_on_one_stratum(seed):
    (values,) = made_up([80], seed=seed)
    theirs = stats.bootstrap(
        (values[:, 0],),
        np.mean,
        n_resamples=10_000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    ours = interval(bootstrap_means([values], seed=seed).mean(1)[:, 0])
    slack = 0.08 * values.std() / np.sqrt(len(values))
    assert ours == pytest.approx((theirs.low, theirs.high), abs=slack)


def test_bootstrap_macro_scatters_as_independent_strata_do():
    strata = made_up([20, 200, 50])
    samples = bootstrap_means(strata).mean(1)[:, 0]
    expected = np.sqrt(sum(s.var() / len(s) for s in strata)) / len(strata)
    assert samples.std() == pytest.approx(expected, rel=0.03)
    assert samples.mean() == pytest.approx(np.mean([s.mean() for s in strata]), abs=0.05 * expected)


def test_the_same_queries_are_drawn_for_every_outcome_and_seeds():
    """The same queries are drawn for every outcome and seeds decide everything."""
    strata = made_up([12, 9], outcomes=3)
    alone = [stratum[:, 1:2] for stratum in strata]
    assert np.array_equal(bootstrap_means(strata, 50, 7)[:, :, 1:2], bootstrap_means(alone, 50, 7))
    assert np.allclose(
        sign_flip_statistics(strata, 50, 7)[:, 1:2], sign_flip_statistics(alone, 50, 7), atol=1e-15
    )
    assert not np.array_equal(bootstrap_means(alone, 50, 7), bootstrap_means(alone, 50, 8))
    # Paired columns: a constant difference has no scatter.
    shifted = [np.column_stack([s[:, 0], s[:, 0] + 1]) for s in strata]
    changes = bootstrap_means(shifted, 50, 7)
    assert np.allclose(changes[:, :, 1] - changes[:, :, 0], 1)


def test_more_random_numbers_than_fit_one_block(monkeypatch):
    """More random numbers than fit one block give the same samples."""
    strata = made_up([40])
    whole = bootstrap_means(strata, 100, 3)
    monkeypatch.setattr("desa_ray.core.statistics.resampling.CHUNK", 400)
    assert np.array_equal(bootstrap_means(strata, 100, 3), whole)


def test_ten_thousand_of_each_over_the_papers_queries_and_four():
    """Ten thousand of each over the papers queries and four outcomes take under two seconds."""
    strata = made_up(PAPER, outcomes=4)
    bootstrap_means(strata, 2)  # compiled before the clock starts
    began = time.process_time()
    bootstrap_means(strata)
    sign_flip_p(strata)
    assert time.process_time() - began < 2
