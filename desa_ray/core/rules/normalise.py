"""Normalisers: how a list's scores are rescaled before they are combined (method.md section 6.12).

Each takes the scores of one list, best first, with the declared bounds of that list, and gives as
many exact fractions. None of them changes the order of two scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

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
class Normaliser:
    """A way to normalise the scores of one list.

    Attributes:
        apply: scores, best first, and declared bounds to normalised scores.
        whole: what it must know of the whole list, such as "its smallest score"; "" where the
            declared bounds and the first score suffice.
        needs: the bounds that must be declared.
    """

    apply: Callable[[Scores, ScoreBounds], list[Fraction]]
    whole: str = ""
    needs: tuple[str, ...] = ()


def plain(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """The scores as they are."""
    return list(scores)


def theoretical(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """(s - least) / (max - least) with the declared least; 0 where the first score is the least."""
    assert bounds.least is not None
    return _scaled(scores, bounds.least, scores[0], Fraction(0)) if scores else []


def declared(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """(s - least) / (most - least) with declared bounds."""
    assert bounds.least is not None
    assert bounds.most is not None
    return _scaled(scores, bounds.least, bounds.most, Fraction(0))


def min_max(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """(s - min) / (max - min) of the list; 1 where all scores are equal."""
    return _scaled(scores, scores[-1], scores[0], Fraction(1)) if scores else []


def z_score(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """(s - mean) / sigma with the sample's standard deviation; 0 where all scores are equal."""
    mean, sigma = moments(scores)
    return [(s - mean) / sigma if sigma else Fraction(0) for s in scores]


def three_sigma(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """(s - mean + 3 sigma) / (6 sigma), Qdrant's; 1/2 where all scores are equal."""
    mean, sigma = moments(scores)
    return [(s - mean + 3 * sigma) / (6 * sigma) if sigma else HALF for s in scores]


def euclidean(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """The score over the root of the sum of squares; 0 where all scores are 0."""
    if scores and scores[-1] < 0:
        raise DesaError("l2 takes no score below 0", hint="use min_max or z_score")
    norm = root(sum((s * s for s in scores), Fraction(0)))
    return [s / norm if norm else Fraction(0) for s in scores]


def floored_min_max(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """OpenSearch's min_max: that of the list, 0 read as 0.001."""
    return [x or FLOOR for x in min_max(scores, bounds)]


def floored_z_score(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
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
    if not sigma:
        return list(scores)
    return [max((s - mean) / sigma, Fraction(0)) or FLOOR for s in scores]


def clipped(scores: Scores, bounds: ScoreBounds) -> list[Fraction]:
    """OpenSearch's min_max with lower and upper bounds in mode clip: below reads 0.001, above 1."""
    low, high = bounds.least, bounds.most
    assert low is not None
    assert high is not None
    if not scores or scores[0] == scores[-1]:
        return [Fraction(1)] * len(scores)
    if scores[0] < low or scores[-1] > high:
        raise DesaError("no score lies within the declared bounds", hint="declare others")
    return [min(max(s - low, Fraction(0)) / (high - low), Fraction(1)) or FLOOR for s in scores]


def moments(scores: Scores) -> tuple[Fraction, Fraction]:
    """Mean and the sample's standard deviation (n - 1; 0 for one score), the latter a float64."""
    count = len(scores)
    if not count:
        return Fraction(0), Fraction(0)
    mean = sum(scores, Fraction(0)) / count
    squares = sum(((s - mean) ** 2 for s in scores), Fraction(0))
    return mean, root(squares / max(count - 1, 1))


def _scaled(scores: Scores, low: Fraction, high: Fraction, same: Fraction) -> list[Fraction]:
    return [(s - low) / (high - low) if high > low else same for s in scores]


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
