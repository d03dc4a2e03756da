"""Encoders in the order of their effectiveness, with intervals, against numbers made by hand."""

from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.study import Study
from desa_ray.report.value_order import value_order_tables
from tests.report.made_up import cell

FEW = Sampling(resamples=200, seed=3)
MEANS = {"weak": 0.1, "middle": 0.4, "strong": 0.7}


def records(encoder: str, method: str, mean: float, dataset: str = "scifact") -> pl.DataFrame:
    """Query k of a cell has nDCG mean + k / 100, but query 0 none."""
    own = cell(dataset, method, queries=[f"q{n}" for n in range(10)], draws=2, encoder=encoder)
    number = own["query_id"].str.slice(1).cast(pl.Int64)
    values = (mean + number / 100).to_list()
    kept = [None if n == 0 else value for n, value in zip(number, values, strict=True)]
    return own.with_columns(ndcg_at_10=pl.Series(kept, dtype=pl.Float64))


def study(**means: float) -> Study:
    frames = [
        records(encoder, method, mean + shift)
        for encoder, mean in means.items()
        for method, shift in (("original", 0.0), ("desa", 0.05))
    ]
    return Study(pl.concat(frames, how="diagonal_relaxed"))


def test_encoders_stand_from_best_to_worst():
    (table,) = value_order_tables(study(**MEANS), FEW)
    assert table.name == "order_encoder"
    for method, shift in (("original", 0.0), ("desa", 0.05)):
        rows = [row for row in table.rows if row.about["method"] == method]
        assert [row.values["value"] for row in rows] == ["strong", "middle", "weak"]
        macros = [MEANS[name] + shift + np.mean(np.arange(1, 10)) / 100 for name in MEANS]
        assert [row.values["ndcg"] for row in rows] == pytest.approx(macros[::-1])
        assert [row.values.get("ahead") for row in rows[:2]] == pytest.approx([0.3, 0.3])
        assert rows[2].values.get("ahead") is None
        # A difference that is the same for every query has an interval without width
        assert rows[0].values["ahead_ci"] == pytest.approx((0.3, 0.3))
        interval_of, mean = cast(Any, rows[0].values["ci"]), cast(Any, rows[0].values["ndcg"])
        assert interval_of[0] < mean < interval_of[1]


def test_intervals_are_those_of_the_same_bootstrap_samples():
    (table,) = value_order_tables(study(a=0.2, b=0.1), FEW)
    values = np.array([[0.2 + n / 100] for n in range(1, 10)])
    expected = interval(FEW.bootstrap_means([values]).mean(1)[:, 0])
    (row,) = [own for own in table.rows if own.about == {"method": "original", "encoder": "a"}]
    assert row.values["ci"] == pytest.approx(expected)


def test_one_encoder_has_no_order():
    assert value_order_tables(study(a=0.2), FEW) == []


def test_equal_means_are_ordered_by_name():
    (table,) = value_order_tables(study(b=0.2, a=0.2), FEW)
    assert [row.values["value"] for row in table.rows][:2] == ["a", "b"]
    assert table.rows[0].values["p"] == 1
