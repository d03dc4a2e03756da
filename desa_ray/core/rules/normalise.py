"""Normalisers: how a list's scores are rescaled before they are combined (method.md section 6.12).

Each takes the scores of one list, best first, with the declared bounds of that list, and gives a
scaling of single scores. None of them changes the order of two scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.rules.constants import root
from desa_ray.errors import DesaError

Scores = Sequence[Fraction]
FLOOR = Fraction(1, 1000)  # OpenSearch's smallest normalised score
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class ScoreBounds:
    """Declared limits of a list's scores: none is below `least`, none above `most`."""

    least: Fraction | None = None
    most: Fraction | None = None


@dataclass(frozen=True)
class Scaling:
    """(s - low) / span, the statistics of a list once they are known.

    Attributes:
        same: what every score gets where `span` is 0.
        floor: what values of at most 0 read as; None where they stay.
        cap: whether values above 1 read as 1.
    """

    low: Fraction
    span: Fraction
    same: Fraction = Fraction(0)
    floor: Fraction | None = None
    cap: bool = False

    def exact(self, score: Fraction) -> Fraction:
        if not self.span:
            return self.same
        value = (score - self.low) / self.span
        if self.cap and value > 1:
            return Fraction(1)
        return self.floor if self.floor is not None and value <= 0 else value

    def floats(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Values of float64 scores, and a bound of their errors."""
        if not self.span:
            return np.full(scores.size, float(self.same)), 2.0**-52 * abs(float(self.same))
        low, span = float(self.low), float(self.span)
        values = (scores - low) / span
        largest = float(np.abs(scores).max(initial=0.0)) + abs(low)
        if self.cap:
            values = np.minimum(values, 1.0)
        if self.floor is not None:
            values = np.where(values <= 0, float(self.floor), values)
        return values, 2.0**-50 * largest / span


@dataclass(frozen=True)
class Normaliser:
    """A way to normalise the scores of one list.

    Attributes:
        fit: scores, best first, and declared bounds to the scaling of each score.
        whole: what it must know of the whole list, such as "its smallest score"; "" where the
            declared bounds and the first score suffice.
        needs: the bounds that must be declared.
    """

    fit: Callable[[Scores, ScoreBounds], Scaling]
    whole: str = ""
    needs: tuple[str, ...] = ()

    def apply(self, scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
        """The normalised scores of a list."""
        scaling = self.fit(scores, bounds)
        return [scaling.exact(score) for score in scores]


def plain(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """The scores as they are."""
    return Scaling(Fraction(0), Fraction(1))


def theoretical(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """(s - least) / (max - least) with the declared least; 0 where the first score is the least."""
    assert bounds.least is not None
    return _between(bounds.least, scores[0] if scores else bounds.least, Fraction(0))


def declared(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """(s - least) / (most - least) with declared bounds."""
    assert bounds.least is not None
    assert bounds.most is not None
    return _between(bounds.least, bounds.most, Fraction(0))


def min_max(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """(s - min) / (max - min) of the list; 1 where all scores are equal."""
    low, high = (scores[-1], scores[0]) if scores else (Fraction(0), Fraction(0))
    return _between(low, high, Fraction(1))


def z_score(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """(s - mean) / sigma with the sample's standard deviation; 0 where all scores are equal."""
    return Scaling(*moments(scores))


def three_sigma(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """(s - mean + 3 sigma) / (6 sigma), Qdrant's; 1/2 where all scores are equal."""
    mean, sigma = moments(scores)
    return Scaling(mean - 3 * sigma, 6 * sigma, HALF)


def euclidean(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """The score over the root of the sum of squares; 0 where all scores are 0."""
    if scores and scores[-1] < 0:
        raise DesaError("l2 does not accept scores below 0", hint="use min_max or z_score")
    return Scaling(Fraction(0), root(sum((s * s for s in scores), Fraction(0))))


def floored_min_max(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """OpenSearch's min_max: that of the list, 0 read as 0.001."""
    return replace(min_max(scores, bounds), floor=FLOOR)


def floored_z_score(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """OpenSearch's z_score: what is at most 0 reads 0.001, a score equal to the mean the list's
    largest raw score (its source has it so for lists of one score).

    That exchanges scores where one other than the first equals the mean, and is refused there.
    """
    mean, sigma = moments(scores)
    if sigma and mean in scores:
        raise DesaError(
            "a score equals the mean of its list: OpenSearch's z_score gives it the largest raw"
            " score, above better documents",
            hint="use min_max",
        )
    return Scaling(mean, sigma, floor=FLOOR) if sigma else plain(scores, bounds)


def clipped(scores: Scores, bounds: ScoreBounds) -> Scaling:
    """OpenSearch's min_max with lower and upper bounds in mode clip: below reads 0.001, above 1."""
    low, high = bounds.least, bounds.most
    assert low is not None
    assert high is not None
    if not scores or scores[0] == scores[-1]:
        return Scaling(Fraction(0), Fraction(0), Fraction(1))
    if scores[0] < low or scores[-1] > high:
        raise DesaError(
            "no score lies within the declared bounds", hint="declare bounds that contain scores"
        )
    return Scaling(low, high - low, floor=FLOOR, cap=True)


def moments(scores: Scores) -> tuple[Fraction, Fraction]:
    """Mean and the sample's standard deviation (n - 1; 0 for one score), the latter a float64."""
    count = len(scores)
    if not count:
        return Fraction(0), Fraction(0)
    unit = lcm(*(s.denominator for s in scores))
    whole = [s.numerator * (unit // s.denominator) for s in scores]
    total = sum(whole)
    squares = count * sum(n * n for n in whole) - total * total
    variance = Fraction(squares, count * max(count - 1, 1) * unit * unit)
    return Fraction(total, count * unit), root(variance)


def _between(low: Fraction, high: Fraction, same: Fraction) -> Scaling:
    return Scaling(low, max(high - low, Fraction(0)), same)


NORMALISERS = {
    "none": Normaliser(plain),
    "theoretical": Normaliser(theoretical, needs=("least",)),
    "bounds": Normaliser(declared, needs=("least", "most")),
    "min_max": Normaliser(min_max, "its smallest score"),
    "z_score": Normaliser(z_score, "its mean and standard deviation"),
    "dbsf": Normaliser(three_sigma, "its mean and standard deviation"),
    "l2": Normaliser(euclidean, "the sum of its squares"),
}
OPENSEARCH = {
    "min_max": Normaliser(floored_min_max, "its smallest score"),
    "bounds": Normaliser(clipped, "whether all its scores are equal", ("least", "most")),
    "z_score": Normaliser(floored_z_score, "its mean and standard deviation"),
    "l2": Normaliser(euclidean, "the sum of its squares"),
}
