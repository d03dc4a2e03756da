"""Draws as a second level and intervals of correlations, against enumeration and hand values."""

from itertools import product

import numpy as np
import polars as pl
import pytest

from desa_ray.core.statistics.correlation import (
    mean_interval,
    pooled_interval,
    spearman_interval,
)
from desa_ray.core.statistics.draws import draw_deviations, hierarchical_means


def test_queries_and_draws_are_sampled_as_enumerated():
    """All 64 equally likely samples of two queries with two draws each."""
    values = np.array([[0.0, 1.0], [2.0, 7.0]])
    every = []
    for rows in product(range(2), repeat=2):
        for picks in product(range(2), repeat=4):
            own = [values[row, pick] for row, pick in zip(np.repeat(rows, 2), picks, strict=True)]
            every.append(np.mean(own))
    found = hierarchical_means([values[:, :, None]], 40_000, seed=3)[:, 0, 0]
    assert set(found.tolist()) <= set(every)
    assert found.mean() == pytest.approx(np.mean(every), abs=0.03)
    assert found.var() == pytest.approx(np.var(every), rel=0.03)


def test_one_draw_leaves_the_bootstrap_of_queries():
    values = np.random.default_rng(1).normal(size=50)
    found = hierarchical_means([values[:, None, None]], 20_000, seed=3)[:, 0, 0]
    assert found.var() == pytest.approx(values.var() / 50, rel=0.05)


def test_deviations_of_draws_by_hand():
    """Macros of the draws are 1 and 3; the queries' variances are 8, 0 and 2."""
    strata = [np.array([[0.0, 4.0], [1.0, 1.0]]), np.array([[1.5, 3.5]])]
    between, within = draw_deviations([own[:, :, None] for own in strata])
    assert between[0] == pytest.approx(np.std([1.0, 3.0], ddof=1))
    assert within[0] == pytest.approx(np.sqrt((4 + 2) / 2))
    assert np.isnan(draw_deviations([strata[0][:, :1, None]])[0])


def test_an_interval_of_spearman_by_hand():
    """r = .5 of 28: arctanh .5493, error sqrt(1.125 / 25) = .2121, so .5493 -+ .4158."""
    assert spearman_interval(0.5, 28) == pytest.approx((0.1328, 0.7465), abs=2e-4)
    assert spearman_interval(0.5, 3) is None
    assert spearman_interval(1.0, 30) is None
    # Two such data sets: (1 - .25) .2121 / sqrt(2) = .1125, times 1.96.
    assert mean_interval([0.5, 0.5], [28, 28]) == pytest.approx((0.2795, 0.7205), abs=2e-4)


def test_intervals_of_spearman_cover_the_truth():
    """Of normal pairs it is 6/pi arcsin(rho/2); 95 percent of 400 intervals, within 3 points."""
    rng = np.random.default_rng(4)
    truth, covered = 6 / np.pi * np.arcsin(0.3), 0
    for _ in range(400):
        x = rng.normal(size=80)
        y = 0.6 * x + 0.8 * rng.normal(size=80)
        ranks = np.argsort(np.argsort(np.stack([x, y]), axis=1), axis=1)
        ends = spearman_interval(np.corrcoef(ranks)[0, 1], 80)
        assert ends
        covered += ends[0] <= truth <= ends[1]
    assert 0.92 * 400 <= covered <= 0.98 * 400


def test_repeated_draws_do_not_narrow_a_pooled_interval():
    """Queries are sampled: five equal draws of each say no more than one."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=40)
    once = pl.DataFrame(
        {"query_id": [f"q{n}" for n in range(40)], "x": x, "y": x + rng.normal(size=40)}
    )
    ends = pooled_interval([once], "x", "y", 2)
    assert pooled_interval([pl.concat([once] * 5)], "x", "y", 2) == pytest.approx(ends)
    assert ends[0] < np.corrcoef(*(once[c].rank() for c in "xy"))[0, 1] < ends[1]
    assert pooled_interval([once.clear()], "x", "y") is None
