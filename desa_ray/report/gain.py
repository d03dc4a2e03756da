"""Which gain the nDCG of a report has: linear, as in BEIR, or exponential, as in the paper
(method.md section 8).
"""

from typing import Literal

import polars as pl

from desa_ray.core.cutoff_scores import CUT_EXPONENTIAL
from desa_ray.core.evaluation import EXPONENTIAL_COLUMN
from desa_ray.errors import DesaError

Gain = Literal["linear", "exponential"]
LINEAR_COLUMN = "ndcg_linear_at_10"  # what `ndcg_at_10` held before
CUT_COLUMN, CUT_LINEAR = "cut_ndcg_at_10", "cut_ndcg_linear_at_10"  # the same under cutoffs


def with_gain(records: pl.DataFrame, gain: Gain) -> pl.DataFrame:
    """Records whose `ndcg_at_10`, which every table reads, has this gain.

    Args:
        records: query records.
        gain: `exponential` moves `ndcg_exp_at_10` there, and keeps the linear value in
            `ndcg_linear_at_10`; likewise `cut_ndcg_exp_at_10` where all records have it. Where some
            do not, values under cutoffs keep linear gain.

    Raises:
        DesaError: the records lack a value with exponential gain.
    """
    if gain == "linear":
        return records
    lacks = EXPONENTIAL_COLUMN not in records.columns
    judged = pl.col("ndcg_at_10").is_not_null()
    if lacks or records.filter(judged & pl.col(EXPONENTIAL_COLUMN).is_null()).height:
        what = f"these records lack {EXPONENTIAL_COLUMN}, nDCG with exponential gain"
        hint = "run the cells again (what is stored is reused), or leave compare= and gain= out"
        raise DesaError(what, where="records", hint=hint)
    moved = records.with_columns(
        pl.col("ndcg_at_10").alias(LINEAR_COLUMN), pl.col(EXPONENTIAL_COLUMN).alias("ndcg_at_10")
    )
    if not {CUT_COLUMN, CUT_EXPONENTIAL} <= set(records.columns):
        return moved
    unknown = pl.col(CUT_COLUMN).is_not_null() & pl.col(CUT_EXPONENTIAL).is_null()
    if records.filter(unknown).height:
        return moved
    return moved.with_columns(
        pl.col(CUT_COLUMN).alias(CUT_LINEAR), pl.col(CUT_EXPONENTIAL).alias(CUT_COLUMN)
    )
