"""From paired differences to what a table prints: effect, interval, p, Holm, wins, effect size,
detectable effect.

Differences come as one array [Q, M] per data set (stratum); the effect is the macro, the mean of
the data sets' means.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling

TIE = 1e-12
DEFAULT = Sampling()


@dataclass(frozen=True)
class Paired:
    """One outcome of a paired comparison, as in method.md section 10.

    Attributes:
        effect: the macro mean difference, in the outcome's unit.
        low, high: its 95 % percentile bootstrap interval.
        p: two-sided sign-flip p.
        wins, ties, losses: queries with a difference above 1e-12, within, below -1e-12.
        effect_size: the effect in standard deviations of the within-data-set differences (Cohen's
            d_z, every data set weighing the same); NaN where nothing differs within a data set.
        detectable: the smallest effect that a two-sided test at 0.05 would find with probability
            0.8 at these numbers of queries and this scatter (normal approximation).
        queries: how many in all.
    """

    effect: float
    low: float
    high: float
    p: float
    wins: int
    ties: int
    losses: int
    effect_size: float
    detectable: float
    queries: int


def paired_outcomes(strata: Sequence[np.ndarray], sampling: Sampling = DEFAULT) -> list[Paired]:
    """One `Paired` per column of the differences [Q, M]; the same queries and signs are drawn for
    all columns.
    """
    effects = np.mean([differences.mean(0) for differences in strata], axis=0)
    samples_BM = sampling.bootstrap_means(strata).mean(1)
    p = sampling.sign_flip_p(strata)
    pooled = np.concatenate(strata)
    found: list[Paired] = []
    for m, effect in enumerate(effects):
        columns = [differences[:, m] for differences in strata]
        wins, losses = int((pooled[:, m] > TIE).sum()), int((pooled[:, m] < -TIE).sum())
        low, high = interval(samples_BM[:, m])
        spread = within_deviation(columns)
        found.append(
            Paired(
                effect=float(effect),
                low=low,
                high=high,
                p=float(p[m]),
                wins=wins,
                ties=len(pooled) - wins - losses,
                losses=losses,
                effect_size=float(effect) / spread if spread > 0 else float("nan"),
                detectable=minimal_detectable_effect(columns),
                queries=len(pooled),
            )
        )
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of one family, in the given order: the running maximum of
    p_(i) (m - i + 1), at most 1 (method.md section 10.2).

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    adjusted = [0.0] * len(p)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, p[index] * (len(p) - place)))
        adjusted[index] = largest
    return adjusted


def within_deviation(strata: Sequence[np.ndarray]) -> float:
    """Root of the mean, over data sets, of the variance of their differences [Q]; 0 where none has
    two queries.
    """
    return float(np.sqrt(np.mean([_variance(differences) for differences in strata])))


def standard_error(strata: Sequence[np.ndarray]) -> float:
    """Of the macro mean of independent strata [Q]: sqrt(sum of variance / Q) / S."""
    return float(np.sqrt(sum(_variance(values) / len(values) for values in strata)) / len(strata))


def minimal_detectable_effect(
    strata: Sequence[np.ndarray], alpha: float = 0.05, power: float = 0.8
) -> float:
    """(z(1 - alpha/2) + z(power)) standard errors of the macro mean difference."""
    normal = NormalDist()
    return (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) * standard_error(strata)


def _variance(values: np.ndarray) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0
