"""Intervals of rank correlations: within a data set, of their mean, and of pooled query-draws
(method.md section 10).
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import NDArray

from desa_ray.core.statistics.resampling import stream

POOLED = 3  # the stream of bootstrap samples of pooled queries
SAMPLES = 300


def fisher_deviation(coefficient: float, pairs: int) -> float:
    """Standard error of arctanh of Spearman's coefficient, sqrt((1 + r^2/2)/(n - 3)); NaN for
    fewer than four pairs.

    Source: Bonett & Wright (2000), Psychometrika 65.
    """
    return float(np.sqrt((1 + coefficient**2 / 2) / (pairs - 3))) if pairs > 3 else float("nan")


def spearman_interval(
    coefficient: float, pairs: int, level: float = 0.95
) -> tuple[float, float] | None:
    """The interval of one coefficient by Fisher's transformation; None for fewer than four pairs or
    a coefficient of 1.
    """
    if pairs < 4 or not abs(coefficient) < 1:
        return None
    reach = NormalDist().inv_cdf((1 + level) / 2) * fisher_deviation(coefficient, pairs)
    middle = np.arctanh(coefficient)
    return float(np.tanh(middle - reach)), float(np.tanh(middle + reach))


def mean_interval(
    coefficients: Sequence[float], pairs: Sequence[int], level: float = 0.95
) -> tuple[float, float] | None:
    """The interval of the mean coefficient of independent data sets, by the delta method.

    Each coefficient's standard error is (1 - r^2) times that of its arctanh.
    """
    if not coefficients or min(pairs) < 4:
        return None
    own = zip(coefficients, pairs, strict=True)
    variances = [((1 - r**2) * fisher_deviation(r, n)) ** 2 for r, n in own]
    deviation = float(np.sqrt(sum(variances))) / len(coefficients)
    reach = NormalDist().inv_cdf((1 + level) / 2) * deviation
    middle = float(np.mean(coefficients))
    return max(middle - reach, -1.0), min(middle + reach, 1.0)


def pooled_interval(
    strata: Sequence[pl.DataFrame], own: str, other: str, seed: int = 0
) -> tuple[float, float] | None:
    """The percentile interval of the coefficient over all query-draws: queries are sampled within
    each data set and bring all their draws, ranks are taken again in each of 300 samples.

    Args:
        strata: frames of one data set each, with `query_id` and both columns.
        own, other: the columns.
        seed: not negative.
    """
    values: list[NDArray[np.float64]] = []
    members: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for frame in strata:
        kept = frame.select("query_id", pl.col(own, other).cast(pl.Float64)).drop_nulls()
        if kept.height:
            kept = kept.sort("query_id", maintain_order=True)
            values.append(kept.select(own, other).to_numpy())
            sizes = kept["query_id"].rle().struct.field("len").to_numpy().astype(np.int64)
            members.append((np.cumsum(sizes) - sizes, sizes))
    streams = [stream(seed, POOLED, place) for place in range(len(values))]
    found: list[float] = []
    for _ in range(SAMPLES if values else 0):
        rows: list[np.ndarray] = []
        for rng, table, (starts, sizes) in zip(streams, values, members, strict=True):
            picks = rng.integers(0, len(starts), len(starts))
            lengths = sizes[picks]
            before = np.repeat(np.cumsum(lengths) - lengths, lengths)
            within = np.arange(len(before)) - before
            rows.append(table[np.repeat(starts[picks], lengths) + within])
        pairs = np.concatenate(rows)
        a, b = (_ranks(pairs[:, side]) - (len(pairs) + 1) / 2 for side in (0, 1))
        scale = np.sqrt((a @ a) * (b @ b))
        if scale > 0:
            found.append(float(a @ b / scale))
    if not found:
        return None
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, equal values at their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
