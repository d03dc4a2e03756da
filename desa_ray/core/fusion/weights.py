"""Confidence weights: how much each ranking of one query counts, computed from its own best scores.

QuDAR (Kim et al. 2026) weighs its four rankings by margin-derived confidence and by an LLM's blind
relevance scores. Only the first half is available without further LLM calls. The formula is that of
the paper's authors (method.md section 5.1): of each ranking the best 1,000 scores, min-max
normalised; the margin between the first two; a softmax of half the margins. Weights are exact
rationals, so that weighted fusion stays exact.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import exp

import numpy as np
from numpy.typing import NDArray

TOP_SCORES = 1000  # scores of a ranking that are looked at
EPSILON = 1e-12  # keeps the denominator above 0 where all scores are equal
UNIT = 1 << 40  # weights are multiples of 1/UNIT: C libraries differ in the last bit of exp


def min_max(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """(x - min) / (max - min + 1e-12), float64, of scores in descending order."""
    values = scores.astype(np.float64)
    return (values - values[-1]) / (values[0] - values[-1] + EPSILON) if values.size else values


def margin(scores: NDArray[np.floating]) -> float:
    """First less second of the min-max scores of a ranking's best; 0 for fewer than two hits.

    Args:
        scores: at most the best `TOP_SCORES`, in descending order.
    """
    normal = min_max(scores)
    return max(0.0, float(normal[0] - normal[1])) if normal.size > 1 else 0.0


def confidence_weights(margins: Sequence[float], rounded: bool = True) -> list[Fraction]:
    """Softmax of half the margins, each rounded to the nearest multiple of 2^-40 (halves to even);
    the float64 values themselves where not `rounded`.

    Every weight is above 0. Rounded weights may miss a sum of 1 by some 2^-40, which no order
    depends on.
    """
    largest = max(margins) / 2
    powers = [exp(value / 2 - largest) for value in margins]
    total = 0.0
    for power in powers:
        total += power
    shares = [power / total for power in powers]
    if not rounded:
        return [Fraction(share) for share in shares]
    return [Fraction(round(share * UNIT), UNIT) for share in shares]
