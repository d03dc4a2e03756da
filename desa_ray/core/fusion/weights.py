"""Confidence weights: how much each ranking of one query counts, read off its own two best scores.

QuDAR (Kim et al. 2026) weighs its four rankings by margin-derived confidence and by an LLM's blind
relevance scores. Only the first half can be had without further LLM calls, and its paper leaves
room for several formulas: this is the reading of method.md section 5, a diagnostic and not the
official definition. Weights are exact rationals, so that weighted fusion stays exact.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import fsum

PARTS = 10_000


def margin(first: float | None, second: float | None) -> float:
    """(first - second) / first of a ranking's two best scores; 0 without two hits or where the best
    is <= 0.
    """
    if first is None or second is None or first <= 0:
        return 0.0
    return (first - second) / first


def confidence_weights(margins: Sequence[float]) -> list[Fraction]:
    """Margins >= 0 as weights that sum to 1: multiples of 1/10,000, all equal where every margin is
    0.

    Each share is rounded to the nearest multiple (halves to even), and the largest weight, the
    first of equals, takes what rounding left over. A weight may be 0: such a channel is left out of
    the fusion.
    """
    total = fsum(margins)
    if total == 0:
        return [Fraction(1, len(margins))] * len(margins)
    parts = [round(value / total * PARTS) for value in margins]
    parts[parts.index(max(parts))] += PARTS - sum(parts)
    return [Fraction(part, PARTS) for part in parts]
