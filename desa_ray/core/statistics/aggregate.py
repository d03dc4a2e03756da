"""Means as the paper takes them: draws within a query first, then queries, then data sets
(method.md section 10).

Two kinds of percentage exist and differ. An effectiveness gain is the ratio of two macros; a depth
reduction is the mean over data sets of each data set's own reduction. Both are computed from
unrounded means of data sets.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl


def by_query(records: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """One row per query in the order of its first record: `query_id` and the mean over draws of
    each column.

    Truth values count as 0 and 1; a column the records lack, or that is null in all draws of a
    query, is null.
    """
    there = [pl.col(name).cast(pl.Float64).mean() for name in columns if name in records.columns]
    absent = [
        pl.lit(None, pl.Float64).alias(name) for name in columns if name not in records.columns
    ]
    means = records.group_by("query_id", maintain_order=True).agg(there)
    return means.with_columns(absent).select("query_id", *columns)


def fallback_pct(records: pl.DataFrame) -> tuple[float, float]:
    """Percent of the query-draws (rows with `query_id`, `fallback`) that fell back, and of the
    queries with a draw that did.
    """
    by_query = records.group_by("query_id").agg(pl.col("fallback").max())
    share = 100 * pl.col("fallback").mean()
    return float(records.select(share).item()), float(by_query.select(share).item())


def macro(means: Sequence[float]) -> float:
    """The mean of data set means: every data set weighs the same."""
    return float(np.mean(means))


def gain_pct(own: Sequence[float], other: Sequence[float]) -> float:
    """Percent by which the macro of `own` exceeds that of `other`; NaN where the latter is 0.

    Args:
        own, other: unrounded means, one per data set in the same order.
    """
    base = macro(other)
    return 100 * (macro(own) / base - 1) if base else float("nan")


def mean_reduction_pct(own: Sequence[float], other: Sequence[float]) -> float:
    """Mean over data sets of the percent by which `own` is below `other` within each; NaN where an
    `other` is 0.
    """
    return macro([reduction_pct(a, b) for a, b in zip(own, other, strict=True)])


def reduction_pct(own: float, other: float) -> float:
    """Percent by which `own` is below `other`; NaN where the latter is 0."""
    return 100 * (1 - own / other) if other else float("nan")


def spearman(a: pl.Series, b: pl.Series) -> tuple[float, int]:
    """Rank correlation over the pairs without a null (equal values share their mean rank), and
    their number.

    NaN for fewer than two pairs, or where one side does not vary.
    """
    pairs = pl.DataFrame({"a": a.cast(pl.Float64), "b": b.cast(pl.Float64)}).drop_nulls()
    if pairs.height < 2 or pairs["a"].n_unique() == 1 or pairs["b"].n_unique() == 1:
        return float("nan"), pairs.height
    ranks = pairs.select(pl.all().rank("average"))
    return float(np.corrcoef(ranks["a"].to_numpy(), ranks["b"].to_numpy())[0, 1]), pairs.height


def quarters(values: np.ndarray) -> np.ndarray:
    """The quarter of each value [Q] by its rank: ceil(4 rank / Q), equal values at their mean rank.

    Args:
        values: numbers without NaN, float64 [Q].

    Returns:
        int64 [Q], 1 (smallest) to 4. Quarters differ in size where equal values meet at an edge.
    """
    doubled = np.asarray(2 * pl.Series(values).rank("average").to_numpy(), np.int64)
    return -(-4 * doubled // (2 * len(values)))
