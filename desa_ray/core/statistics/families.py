"""Many comparisons at once: step-down max-T with sign flips that all hypotheses share, and which
families Holm's adjustment can reject in, given the number of resamples (method.md section 10).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from desa_ray.core.statistics.resampling import RESAMPLES, sign_flip_statistics

LEVEL = 0.05


def holm_can_reject(hypotheses: int, resamples: int) -> bool:
    """Whether the smallest p of B sign flips, 1/(B + 1), times the number of hypotheses is at most
    0.05: B + 1 >= 20 hypotheses.
    """
    return resamples + 1 >= round(1 / LEVEL) * hypotheses


@dataclass(frozen=True)
class MaxT:
    """Step-down max-T over H hypotheses.

    Attributes:
        statistic: T, float64 [H]; 0 where nothing differs.
        adjusted: p, float64 [H], never 0.
        critical: what the largest |T*| of all exceeds in one of twenty sign flips.
        scale: float64 [H]; a macro mean difference is T times it.
    """

    statistic: np.ndarray
    adjusted: np.ndarray
    critical: float
    scale: np.ndarray


def max_t(
    strata: Sequence[np.ndarray], resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """T and adjusted p of `step_down`."""
    found = step_down(strata, resamples, seed)
    return found.statistic, found.adjusted


def step_down(strata: Sequence[np.ndarray], resamples: int = RESAMPLES, seed: int = 0) -> MaxT:
    """Step-down max-T over the columns of paired differences; the same signs are drawn for all.

    The statistic of a hypothesis is its macro mean difference over its root of squares, which no
    sign flip changes, so that outcomes in any unit can be combined. With hypotheses in order of
    |T|, p_(i) is the largest, over the hypotheses up to the i-th, of the share of sign flips in
    which the largest |T*| of all hypotheses from there on reaches |T_(i)|.

    Args:
        strata: differences, float64 [Q, H] each; NaN where a query does not count in a hypothesis.
        resamples: B.
        seed: not negative.

    Source: Westfall & Young (1993), "Resampling-Based Multiple Testing", algorithm 4.1; Romano &
    Wolf (2005).
    """
    weighted: list[np.ndarray] = []
    scale = np.zeros(strata[0].shape[1])
    for differences in strata:
        counted = np.maximum((~np.isnan(differences)).sum(0), 1)
        own = np.nan_to_num(differences) * (len(differences) / counted)
        weighted.append(own)
        scale += (own**2).sum(0) / len(own) ** 2
    deviation = np.sqrt(scale) / len(strata)
    deviation[deviation == 0] = np.inf
    observed = np.mean([own.mean(0) for own in weighted], axis=0) / deviation
    flipped = np.abs(sign_flip_statistics(weighted, resamples, seed)) / deviation
    order = np.argsort(-np.abs(observed), kind="stable")
    # Largest |T*| of the hypotheses from each place on.
    tails = np.maximum.accumulate(flipped[:, order[::-1]], axis=1)[:, ::-1]
    thresholds = np.abs(observed[order]) * (1 - 1e-12) - 1e-14
    raw = (1 + (tails >= thresholds).sum(0)) / (resamples + 1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(raw)
    critical = float(np.quantile(tails[:, 0], 1 - LEVEL)) if len(order) else 0.0
    return MaxT(observed, adjusted, critical, deviation)
