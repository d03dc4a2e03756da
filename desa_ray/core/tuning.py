"""Which of many variants is better than the default? Two separate answers (method.md section 10.6).

One selects on half of the queries and tests the one selected on the other half, once. The other
tests all variants on all queries, adjusted for their number, and selects nothing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.statistics.families import LEVEL, step_down
from desa_ray.core.statistics.inference import Paired, paired_outcomes, standard_error
from desa_ray.core.statistics.sampling import Sampling

POWER = 0.8
KEEP = "no difference shown: keep the default"
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Halves:
    """Selected on one half, tested on the other.

    Attributes:
        selected: the variant with the largest mean on the first half; the first of equals.
        gain: its mean difference to the default there, which selection flatters.
        test: its paired test on the second half; None where the default was selected.
        needed: queries in the second half that would find the effect seen there with probability
            0.8; None where there is none above 0.
    """

    selected: int
    gain: float
    test: Paired | None
    needed: int | None


@dataclass(frozen=True)
class AllVariants:
    """All variants tested together on all queries.

    Attributes:
        effects: mean differences to the default, float64 [V].
        adjusted: p of step-down max-T, float64 [V]; 1 for the default.
        detectable: the smallest effect of each variant that would have been found with probability
            0.8, float64 [V]; 0 where a variant never differs.
        needed: queries that would find the best variant's effect with probability 0.8; None where
            there is none above 0.
    """

    effects: Values
    adjusted: Values
    detectable: Values
    needed: int | None

    @property
    def winners(self) -> list[int]:
        """Variants that are better, the best first."""
        found = np.flatnonzero((self.adjusted <= LEVEL) & (self.effects > 0)).tolist()
        return sorted(found, key=lambda place: (-self.effects[place], place))


def first_half(queries: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each query is of the half that selects: the first half by SHA-256 of the ids."""
    digests = [hashlib.sha256(query.encode()).digest() for query in queries]
    order = sorted(range(len(queries)), key=lambda place: (digests[place], queries[place]))
    chosen = np.zeros(len(queries), bool)
    chosen[order[: len(queries) // 2]] = True
    return chosen


def by_halves(values_QV: Values, selects_Q: NDArray[np.bool_], sampling: Sampling) -> Halves:
    """Selects among variants of which the first is the default.

    Args:
        values_QV: float64 [Q, V].
        selects_Q: the queries that select; at least one of either kind.
    """
    means = values_QV[selects_Q].mean(0)
    selected = int(np.argmax(means >= means.max() - 1e-12))
    gain = float(means[selected] - means[0])
    if means[0] >= means.max() - 1e-12:
        return Halves(0, 0.0, None, None)
    tested = values_QV[~selects_Q]
    differences = tested[:, selected] - tested[:, 0]
    (found,) = paired_outcomes([differences[:, None]], sampling)
    quantile = NormalDist().inv_cdf(1 - LEVEL / 2)
    return Halves(selected, gain, found, _needed(differences, quantile))


def together(values_QV: Values, sampling: Sampling) -> AllVariants:
    """Tests every variant against the first, the default, with signs that all share."""
    differences = values_QV[:, 1:] - values_QV[:, :1]
    effects = differences.mean(0)
    if not differences.shape[1]:
        return AllVariants(np.zeros(1), np.ones(1), np.zeros(1), None)
    found = step_down([differences], sampling.resamples, sampling.seed)
    normal = NormalDist().inv_cdf(POWER)
    errors = np.array([standard_error([column]) for column in differences.T])
    best = int(np.argmax(effects))
    return AllVariants(
        np.concatenate([[0.0], effects]),
        np.concatenate([[1.0], found.adjusted]),
        np.concatenate([[0.0], (found.critical + normal) * errors]),
        _needed(differences[:, best], found.critical),
    )


def _needed(differences: Values, quantile: float) -> int | None:
    """Queries at which the mean difference is quantile + z(0.8) standard errors."""
    effect = float(differences.mean())
    if effect <= 0 or len(differences) < 2:
        return None
    deviation = float(differences.std(ddof=1))
    return max(2, ceil(((quantile + NormalDist().inv_cdf(POWER)) * deviation / effect) ** 2))


def halves_verdict(found: Halves, names: Sequence[str]) -> str:
    """What follows from one selection and one test, in a sentence."""
    if found.test is None:
        return f"{KEEP} (it is the best of {len(names)} variants on the first half)"
    name, test = names[found.selected], found.test
    what = f"{test.effect:+.4f} on the second half, p {test.p:.4f}"
    if test.p <= LEVEL and test.effect > 0:
        return f"use {name}: {what}"
    ask = f", this one with {found.needed} queries" if found.needed else ""
    least = f"an effect of {test.detectable:.4f} would have been detected with probability {POWER}"
    return f"{KEEP} ({name}: {what}; {least}{ask})"


def together_verdict(found: AllVariants, names: Sequence[str]) -> str:
    """What follows from all tests together, in a sentence."""
    others = len(names) - 1
    if winners := found.winners:
        best = winners[0]
        what = f"{found.effects[best]:+.4f}, p {found.adjusted[best]:.4f}"
        return f"use {names[best]}: {what}; {len(winners)} of {others} variants are better"
    best = int(np.argmax(found.effects))
    what = f"the best of {others} variants, {names[best]}: {found.effects[best]:+.4f}"
    if not best:
        return f"{KEEP} (none of {others} variants has a larger mean)"
    ask = f", this one with {found.needed} queries" if found.needed else ""
    limit = found.detectable[best]
    least = f"an effect of {limit:.4f} would have been detected with probability {POWER}"
    return f"{KEEP} ({what}, p {found.adjusted[best]:.4f}; {least}{ask})"
