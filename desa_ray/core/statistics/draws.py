"""Draws as a second level: how much they differ, and a bootstrap of queries and of their draws
(method.md section 10).

A *stratum* is one data set: an array [Q, D, M] of M values per query and draw; NaN where there is
none.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from desa_ray.core.arrays import Float64s, UInt32s
from desa_ray.core.statistics.resampling import RESAMPLES, stream

HIERARCHICAL = 2  # beside bootstrap and sign flips, so that none share a stream
CHUNK = 1 << 20  # values held at once


def hierarchical_means(
    strata: Sequence[np.ndarray], resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Means of samples of queries whose draws are sampled again within each drawn query.

    Args:
        strata: float64 [Q, D, M] each its own Q, every query with a value in all draws.
        resamples: B.
        seed: not negative.

    Returns:
        float64 [B, S, M].
    """
    means = np.empty((resamples, len(strata), strata[0].shape[2]))
    for s, values in enumerate(strata):
        queries, draws, _ = values.shape
        rng = stream(seed, HIERARCHICAL, s)
        block = max(CHUNK // (queries * draws), 1)
        for start in range(0, resamples, block):
            out = means[start : start + block, s]
            rows = rng.integers(0, queries, (len(out), queries), dtype=np.uint32)
            picks = rng.integers(0, draws, (len(out), queries, draws), dtype=np.uint16)
            _add_up(np.ascontiguousarray(values, np.float64), rows, picks, out)
        means[:, s] /= queries * draws
    return means


@njit(cache=True, nogil=True)
def _add_up(values: Float64s, rows: UInt32s, picks: NDArray[np.uint16], sums: Float64s) -> None:
    """sums[b] = the sum of values over the query rows[b] and their draws picks[b]."""
    for b in range(rows.shape[0]):
        sums[b] = 0.0
        for i in range(rows.shape[1]):
            for d in range(picks.shape[2]):
                for m in range(values.shape[2]):
                    sums[b, m] += values[rows[b, i], picks[b, i, d], m]


def draw_deviations(strata: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """How much draws differ: of the macro, and of one query.

    Args:
        strata: float64 [Q, D, M], D the same for all.

    Returns:
        The standard deviation over draws of the macro mean, float64 [M], and the root of the mean
        variance over draws within a query (queries, then data sets, averaged), float64 [M]; NaN for
        one draw.
    """
    if strata[0].shape[1] < 2:
        nothing = np.full(strata[0].shape[2], np.nan)
        return nothing, nothing
    macros = np.mean([values.mean(0) for values in strata], axis=0)
    within = np.mean([values.var(1, ddof=1).mean(0) for values in strata], axis=0)
    return macros.std(0, ddof=1), np.sqrt(within)
