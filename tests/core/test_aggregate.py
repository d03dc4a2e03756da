"""Means in their order, the two kinds of percentage, and rank correlation against scipy."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from desa_ray.core.statistics.aggregate import (
    by_query,
    gain_pct,
    macro,
    mean_reduction_pct,
    reduction_pct,
    spearman,
)


def test_draws_are_averaged_within_a_query_before_queries():
    records = pl.DataFrame(
        {
            "query_id": ["a", "a", "a", "b"],
            "x": [0.0, 0.0, 3.0, 5.0],
            "flag": [True, False, False, True],
        }
    )
    found = by_query(records, ["x", "flag", "absent"])
    assert found["x"].to_list() == [1.0, 5.0]
    assert found["flag"].to_list() == pytest.approx([1 / 3, 1])
    assert found["absent"].null_count() == 2
    assert found["x"].mean() == 3  # not 2, the mean over records


def test_a_value_missing_in_some_draws_is_the_mean_of_the_others():
    """A value missing in some draws is the mean of the others and null where all lack it."""
    records = pl.DataFrame({"query_id": ["a", "a", "b"], "x": [1.0, None, None]})
    assert by_query(records, ["x"])["x"].to_list() == [1.0, None]


def test_gains_are_ratios_of_macros_and_reductions_means():
    """Gains are ratios of macros and reductions means of ratios."""
    own, other = [2.0, 1.0], [1.0, 4.0]
    assert gain_pct(own, other) == pytest.approx(100 * (1.5 / 2.5 - 1))
    assert mean_reduction_pct(own, other) == pytest.approx((-100 + 75) / 2)
    assert reduction_pct(1, 4) == 75
    assert macro(own) == 1.5
    assert np.isnan(gain_pct([1.0], [0.0]))
    assert np.isnan(reduction_pct(1, 0))


def test_spearman_equals_scipy_with_ties_and_leaves_nulls_out():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, 80).astype(float), rng.integers(0, 4, 80).astype(float)
    found, pairs = spearman(pl.Series(a), pl.Series(b))
    assert pairs == 80
    assert found == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    holes = pl.Series([None, *a[1:]])
    assert spearman(holes, pl.Series(b)) == (
        pytest.approx(stats.spearmanr(a[1:], b[1:]).statistic),
        79,
    )
    assert np.isnan(spearman(pl.Series([1.0, 1.0]), pl.Series([1.0, 2.0]))[0])
