"""A report about nDCG with exponential gain."""

import polars as pl
import pytest

from desa_ray.errors import DesaError
from desa_ray.report.cutoffs import transitions
from desa_ray.report.gain import with_gain
from desa_ray.report.names import NDCG
from desa_ray.report.study import Study
from tests.report.made_up import study_records


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


def test_records_of_earlier_versions_are_refused(records):
    for broken in (
        records.drop("ndcg_exp_at_10"),
        records.with_columns(ndcg_exp_at_10=pl.lit(None, pl.Float64)),
    ):
        with pytest.raises(DesaError, match=r"lack ndcg_exp_at_10.*run the cells again"):
            with_gain(broken, "exponential")
