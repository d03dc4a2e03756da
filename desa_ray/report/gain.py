"""Which gain the nDCG of a report has: linear, as in BEIR, or exponential, as in the paper
(method.md section 8).
"""

from typing import Literal

import polars as pl

from desa_ray.core.evaluation import EXPONENTIAL_COLUMN
from desa_ray.errors import DesaError

Gain = Literal["linear", "exponential"]
LINEAR_COLUMN = "ndcg_linear_at_10"  # what `ndcg_at_10` held before; cutoffs are recorded with it


def with_gain(records: pl.DataFrame, gain: Gain) -> pl.DataFrame:
    """Records whose `ndcg_at_10`, which every table reads, has this gain.

    Args:
        records: query records.
        gain: `exponential` moves `ndcg_exp_at_10` there, and keeps the linear value in
            `ndcg_linear_at_10`.

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
    return records.with_columns(
        pl.col("ndcg_at_10").alias(LINEAR_COLUMN), pl.col(EXPONENTIAL_COLUMN).alias("ndcg_at_10")
    )
