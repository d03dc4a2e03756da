"""Resampling within data sets: bootstrap samples of queries, and paired sign flips (method.md
section 10).

A *stratum* is one data set: an array [Q, M] of M values per query. Every stratum has a random
stream of its own, from the seed and its place, so the same queries are drawn for all M
columns: they stay paired. Equal input, equal output.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from desa_ray.core.arrays import Float64s, UInt32s

RESAMPLES = 10_000
CHUNK = 1 << 22  # random numbers held at once
BOOTSTRAP, FLIPS = 0, 1  # so that the two never share a stream
BITS_256 = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)


def stream(seed: int, purpose: int, stratum: int) -> np.random.Generator:
    """The random stream of one stratum for one purpose."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, purpose, stratum])))


def bootstrap_means(
    strata: Sequence[np.ndarray], resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Means of bootstrap samples, drawn with replacement within each stratum and as large as it.

    Args:
        strata: arrays float64 [Q, M], Q >= 1 each its own.
        resamples: B.
        seed: not negative.

    Returns:
        float64 [B, S, M]. `.mean(1)` are macros; ratios and reductions are recomputed from it in
        every sample.
    """
    means = np.empty((resamples, len(strata), strata[0].shape[1]))
    for s, values in enumerate(strata):
        queries = len(values)
        rng = stream(seed, BOOTSTRAP, s)
        block = max(CHUNK // queries, 1)
        for start in range(0, resamples, block):
            out = means[start : start + block, s]
            picks = rng.integers(0, queries, (len(out), queries), dtype=np.uint32)
            _add_up(np.ascontiguousarray(values, np.float64), picks, out)
        means[:, s] /= queries
    return means


@njit(cache=True, nogil=True)
def _add_up(values: Float64s, picks: UInt32s, sums: Float64s) -> None:
    """sums[b] = the sum of values over the rows picks[b]."""
    for b in range(picks.shape[0]):
        sums[b] = 0.0
        for i in range(picks.shape[1]):
            for m in range(values.shape[1]):
                sums[b, m] += values[picks[b, i], m]


def sign_flip_statistics(
    strata: Sequence[np.ndarray], resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Macro means of differences whose signs are flipped at random, one query at a time: T*,
    float64 [B, M].

    Args:
        strata: differences, float64 [Q, M] each.
        resamples: B.
        seed: not negative.
    """
    statistics = np.zeros((resamples, strata[0].shape[1]))
    for s, differences in enumerate(strata):
        queries, outcomes = differences.shape
        weighted = np.zeros((-(-queries // 8) * 8, outcomes))
        weighted[:queries] = differences / (queries * len(strata))
        # Eight queries share one random byte; each byte's 256 possible sums are looked up.
        groups = weighted.reshape(-1, 8, outcomes)
        tables = np.einsum("vb,gbm->gvm", 2 * BITS_256 - 1, groups)
        flips = np.frombuffer(stream(seed, FLIPS, s).bytes(len(groups) * resamples), np.uint8)
        for table, byte in zip(tables, flips.reshape(len(groups), resamples), strict=True):
            statistics += table[byte]
    return statistics


def sign_flip_p(
    strata: Sequence[np.ndarray], resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Two-sided p of the macro mean difference, float64 [M]: p = (1 + #{|T*| >= |T|(1 - 1e-12)}) /
    (B + 1), never 0.

    T* that equal T in real arithmetic count, also where T itself is nearly nothing: sums are
    compared up to the rounding of their largest possible value.
    """
    observed = np.abs(np.mean([differences.mean(0) for differences in strata], axis=0))
    largest = np.mean([np.abs(differences).mean(0) for differences in strata], axis=0)
    threshold = observed * (1 - 1e-12) - 16 * np.finfo(np.float64).eps * largest
    reached = np.abs(sign_flip_statistics(strata, resamples, seed)) >= threshold
    return (1 + reached.sum(0)) / (resamples + 1)


def interval(samples: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """The percentile interval of bootstrap values [B], linearly interpolated."""
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], method="linear")
    return float(low), float(high)
