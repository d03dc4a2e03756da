"""The table and figure of depths with random access, from records that have them."""

import polars as pl
import pytest

from desa_ray.report.access import access_figure, access_table
from desa_ray.report.study import Study
from tests.report.made_up import study_records


@pytest.fixture(scope="module")
def study() -> Study:
    records = study_records(methods=("original", "desa"), draws=2).with_columns(
        ta_depth_total=pl.col("depth_total") // 4,
        least_depth_total=pl.when(pl.col("method") == "desa").then(pl.col("depth_total") - 5),
        least_pairs=pl.when(pl.col("method") == "desa").then(3),
    )
    return Study(records)


def test_the_table_has_means_of_draws_then_queries_then_data_sets(study):
    rows = {tuple(row.about.values()): row.values for row in access_table(study).rows}
    depths = study.cell("fiqa", "desa").mean("depth_total")
    assert rows["fiqa", "desa"]["depth_total"] == pytest.approx(depths)
    assert rows["fiqa", "desa"]["least_depth_total"] == pytest.approx(depths - 5)
    assert "least_pairs" not in rows["fiqa", "original"]
    both = [rows[name, "desa"]["ta_depth_total"] for name in ("fiqa", "scifact")]
    macro = rows[True, "desa"]
    assert macro["ta_depth_total"] == pytest.approx(sum(both) / 2)
    assert macro["least_pairs"] == 3


def test_the_figure_has_a_box_for_each_kind_of_depth(study):
    drawn = access_figure(study).drawing.frame()
    kinds = drawn.group_by("panel").agg(pl.col("name").n_unique()).sort("panel")["name"].to_list()
    assert sorted(kinds) == [2, 3]
    desa = study.cell("fiqa", "desa").means["depth_total"].to_list()
    desa += study.cell("scifact", "desa").means["depth_total"].to_list()
    box = drawn.filter(pl.col("name") == "certification depth", pl.col("panel") == "DESA")
    assert box["median"][0] == pytest.approx(pl.Series(desa).median())


def test_records_without_such_depths_show_nothing():
    plain = Study(study_records(methods=("original",)))
    assert access_table(plain) is None
    assert access_figure(plain) is None
