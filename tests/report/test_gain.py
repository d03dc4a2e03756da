"""A report about nDCG with exponential gain."""

import polars as pl
import pytest

from desa_ray.errors import DesaError
from desa_ray.report.cutoffs import cutoff_tables, transitions
from desa_ray.report.gain import with_gain
from desa_ray.report.names import NDCG
from desa_ray.report.study import Study
from tests.report.made_up import cell, study_records


@pytest.fixture(scope="module")
def records() -> pl.DataFrame:
    made_up = study_records(("scifact", "fiqa"), ("original", "desa"))
    return made_up.with_columns(ndcg_exp_at_10=pl.col("ndcg_at_10") ** 2)


def test_every_table_reads_the_gain_that_was_asked_for(records):
    study = Study(with_gain(records, "exponential"))
    desa = records.filter((pl.col("dataset") == "fiqa") & (pl.col("method") == "desa"))
    means = desa.group_by("query_id").agg(pl.col("ndcg_exp_at_10").mean())
    expected = means["ndcg_exp_at_10"].mean()
    assert study.cell("fiqa", "desa").mean(NDCG.column) == pytest.approx(expected, abs=1e-12)
    assert with_gain(records, "linear").equals(records)


def test_labels_under_cutoffs_keep_one_gain(records):
    """Results under cutoffs are recorded with linear gain: the complete label has it too."""
    linear, exponential = Study(records), Study(with_gain(records, "exponential"))
    length = linear.cell("fiqa", "desa").records["cutoffs"][0][0]
    found = [transitions(study, NDCG, length).matrix.tolist() for study in (linear, exponential)]
    assert found[0] == found[1]


def judged(method: str, complete: float, under: float, linear: float) -> pl.DataFrame:
    """One query whose value with exponential gain is `complete`, and `under` under both cutoffs."""
    one = cell("scifact", method, queries=["a"], draws=1).with_columns(
        cutoffs=pl.lit([10, 50]),
        cut_same_top=pl.lit([False, True]),
        cut_recall_at_20=pl.lit([0.5, 0.5]),
        ndcg_at_10=pl.lit(linear),
        cut_ndcg_at_10=pl.lit([linear, linear]),
    )
    return one.with_columns(
        ndcg_exp_at_10=pl.lit(complete), cut_ndcg_exp_at_10=pl.lit([under, complete])
    )


def test_labels_under_cutoffs_have_the_gain_where_it_is_known():
    """Linear: a tie throughout. Exponential: a gain that is a loss under L = 10."""
    records = pl.concat([judged("original", 0.5, 0.5, 0.4), judged("desa", 0.7, 0.3, 0.4)])
    table, shares, *_ = cutoff_tables(Study(with_gain(records, "exponential")))
    reversed_at = [row.values["ndcg_at_10_reversal"] for row in table.rows]
    assert reversed_at == [100, 0]
    assert not any("linear" in note for note in table.notes)
    (loss,) = [
        row.values
        for row in shares.rows
        if row.about == {"length": 10, "outcome": "ndcg_at_10", "fixed": "loss"}
    ]
    assert (loss["gain"], loss["tie"], loss["loss"]) == (100, 0, 0)
    (linear, *_) = cutoff_tables(Study(records))
    assert [row.values["ndcg_at_10_change"] for row in linear.rows] == [0, 0]


def test_a_table_with_linear_labels_says_so():
    """One record without the value: all labels are linear, and a note names the setting."""
    records = pl.concat([judged("original", 0.5, 0.5, 0.4), judged("desa", 0.7, 0.3, 0.4)])
    known = pl.when(pl.col("method") == "desa").then("cut_ndcg_exp_at_10")
    table, *_ = cutoff_tables(
        Study(with_gain(records.with_columns(cut_ndcg_exp_at_10=known), "exponential"))
    )
    assert [row.values["ndcg_at_10_change"] for row in table.rows] == [0, 0]
    assert any("evaluation.exponential_cutoffs=true" in note for note in table.notes)


def test_records_of_earlier_versions_are_refused(records):
    for broken in (
        records.drop("ndcg_exp_at_10"),
        records.with_columns(ndcg_exp_at_10=pl.lit(None, pl.Float64)),
    ):
        with pytest.raises(DesaError, match=r"lack ndcg_exp_at_10.*run the cells again"):
            with_gain(broken, "exponential")
