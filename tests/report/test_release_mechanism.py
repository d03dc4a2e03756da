"""The mechanism's quarters, correlations and means from the authors' rows, as they printed them."""

import polars as pl
import pytest

from desa_ray.core.statistics.aggregate import macro, quarters, spearman
from desa_ray.report.mechanism import mechanism_table
from desa_ray.report.mechanism_gains import (
    average_quarters,
    correlations_tables,
    quarter_rows,
    quartiles_tables,
    query_means,
)
from desa_ray.report.published import Published
from desa_ray.report.study import Study
from tests.release_compare import build
from tests.release_data import RELEASE, per_draw
from tests.report.release_study import mechanism_records

# The release's mechanism -> our diagnostic, its column, the method alone, the channel it reads.
MECHANISMS = {
    "dense": ("dense_angle_deg", "dense_angle_degrees", "dense_only"),
    "sparse": ("turnover", "sparse_top20_turnover", "sparse_only"),
    "rr": ("rr_change", "sparse_relevant_rr_delta", "sparse_only"),
}


def draws(mechanism: str, dataset: str) -> pl.DataFrame:
    """The authors' query-draws in the columns of `operator_draws`."""
    diagnostic, column, alone = MECHANISMS[mechanism]
    rows = per_draw().filter(pl.col("dataset") == dataset).with_columns(pl.col(column).fill_null(0))
    return rows.select(
        "query_id",
        draw="draw_id",
        **{diagnostic: column},
        ndcg_gain=f"{alone}_delta_ndcg",
        recall_gain=f"{alone}_delta_recall",
        dense_reduction=f"{alone}_dense_depth_reduction_pct",
        sparse_reduction=f"{alone}_sparse_depth_reduction_pct",
    )


@pytest.mark.parametrize("mechanism", ["dense", "sparse"])
def test_all_published_quarters_are_reproduced(mechanism):
    diagnostic = MECHANISMS[mechanism][0]
    published = pl.read_csv(RELEASE / "mechanism-binned-effects.csv")
    published = published.filter(pl.col("mechanism") == mechanism)
    found = {
        dataset: quarter_rows(query_means(draws(mechanism, dataset), diagnostic), diagnostic)
        for dataset in per_draw()["dataset"].unique(maintain_order=True)
    }
    found["macro_equal_dataset"] = average_quarters(list(found.values()))
    assert published.height == 32
    for row in published.iter_rows(named=True):
        (own,) = [q for q in found[row["dataset"]] if q["quarter"] == row["bin"]]
        assert own["queries"] == row["queries"]
        assert own["mean"] == pytest.approx(row["driver_mean"], abs=1e-12)
        assert own["ndcg_gain"] == pytest.approx(row["delta_ndcg"], abs=1e-12)
        reduction = own[f"{mechanism}_reduction"]
        assert reduction == pytest.approx(row["depth_reduction_pct"], abs=1e-10)


CORRELATIONS = {
    ("dense", "ndcg_gain"): 0.010479374817393139,
    ("dense", "dense_reduction"): 0.011328403487542604,
    ("sparse", "ndcg_gain"): 0.07829679242792456,
    ("sparse", "sparse_reduction"): 0.18034094827397215,
    ("rr", "ndcg_gain"): 0.3905454559973097,
}


@pytest.mark.parametrize(("mechanism", "outcome"), CORRELATIONS)
def test_correlations_are_the_published_ones(mechanism, outcome):
    diagnostic = MECHANISMS[mechanism][0]
    found = []
    for dataset in per_draw()["dataset"].unique(maintain_order=True):
        means = query_means(draws(mechanism, dataset), diagnostic)
        found.append(spearman(means[diagnostic], means[outcome])[0])
    assert len(found) == 7
    assert macro(found) == pytest.approx(CORRELATIONS[mechanism, outcome], abs=1e-12)


def test_mechanism_means_are_the_published_ones():
    """A pair without a ranked relevant document counts as no change; leaving it out does not."""
    rows = per_draw().with_columns(pl.col("sparse_relevant_rr_delta").fill_null(0.0))
    none = rows.filter(pl.col("sparse_ranked_relevant_documents") == 0)
    assert none.height == 237
    columns = ["dense_angle_degrees", "sparse_top20_turnover", "sparse_relevant_rr_delta"]
    queries = rows.group_by("dataset", "query_id").agg(pl.col(columns).mean())
    datasets = queries.group_by("dataset").agg(pl.col(columns).mean())
    found = datasets.select(pl.col(columns).mean()).row(0)
    expected = (11.976407991313934, 0.26148566375930826, 0.010719429073351846)
    assert found == pytest.approx(expected, abs=1e-12)
    assert rows["dense_angle_degrees"].max() == pytest.approx(27.870518997735427, abs=1e-12)


@pytest.mark.long
def test_the_reports_tables_on_their_rows_differ_by_nothing():
    """Means, extremes and counts; quarters and correlations, macro and in each data set.

    Their depth reductions are a last digit off in some draws, so that other means over draws are
    equal: correlations with them agree to 1e-3 here, and exactly where theirs are taken as they are
    (above).
    """
    study, published = Study(mechanism_records()), Published(build())
    tables = [mechanism_table(study), *quartiles_tables(study), *correlations_tables(study)]
    numbers = {}
    for table in tables:
        assert table is not None
        beside = published.beside(table, study)
        assert beside is not None, table.name
        numbers[table.name] = len(beside.rows)
        for row in beside.rows:
            ranked = "depth reduction" in str(row.values["row"]) and "correl" in table.name
            off = 1e-3 if ranked else 1e-9
            assert row.values["difference"] == pytest.approx(0, abs=off), row.values
    # Eight values of 8 rows; four of two diagnostics' quarters, macro and of each of seven sets;
    # five correlations, macro and of each of seven sets.
    assert numbers == {
        "mechanism": 8 * 8,
        "mechanism_quartiles": 4 * 2 * 4,
        "mechanism_quartiles_by_dataset": 7 * 4 * 2 * 4,
        "correlations": 5,
        "correlations_by_dataset": 7 * 5,
    }


def test_their_tie_adjuster_lost_25_documents_on_touche():
    """Ours keeps all: tests/e2e/test_methods.py holds its least share to be exactly 1."""
    rows = per_draw().filter(pl.col("dataset") == "webis-touche2020")
    lost = rows["sparse_missing_documents"]
    assert (rows.height, int((lost > 0).sum()), int(lost.sum())) == (147, 23, 25)
    (row,) = [
        own.values
        for own in mechanism_table(Study(mechanism_records())).rows
        if own.about.get("dataset") == "webis-touche2020"
    ]
    assert row["support_retained"] == pytest.approx(100 * 0.9999989569326038, abs=1e-10)
    assert row["min_support"] == pytest.approx(100 * 0.9999881233038592, abs=1e-10)
    others = per_draw().filter(pl.col("dataset") != "webis-touche2020")
    assert others["sparse_missing_documents"].sum() == 0


def test_quarters_go_by_rank_and_keep_equal_values_together():
    """Of eight values the first two are the lowest quarter; three equal ones meet at rank 3."""
    values = pl.Series([5.0, 1.0, 2.0, 8.0, 7.0, 6.0, 3.0, 4.0]).to_numpy()
    assert quarters(values).tolist() == [3, 1, 1, 4, 4, 3, 2, 2]
    assert quarters(pl.Series([1.0, 2.0, 2.0, 2.0]).to_numpy()).tolist() == [1, 3, 3, 3]
    assert quarters(pl.Series([4.0]).to_numpy()).tolist() == [4]
