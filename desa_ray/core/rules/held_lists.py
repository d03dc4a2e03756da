"""The lists of one query as rules on arrays read them: documents, values with the bound of their
error, and the same exactly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.rules.normalise import Scaling
from desa_ray.core.rules.registry import Rule, ScoredList

EPS = 2.0**-50  # four units in the last place of 1
Documents = NDArray[np.int32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeldList:
    """One list of a query as a rule sees it.

    Attributes:
        documents: int32, best first; a head of the list, or all of it.
        values: float64, what the list gives them; `error` bounds how wrong they are.
        exact: the same by place, as fractions.
        length: of the whole list.
        first: nothing gets more; None where that is unknown.
        least: nothing gets less.
        ranks: whether contributions are known before anything is read.
    """

    documents: Documents
    values: Floats
    error: float
    exact: Callable[[int], Fraction]
    length: int
    first: Fraction | None
    least: Fraction
    ranks: bool

    def head(self, count: int) -> "HeldList":
        """What is left where at most so many items are held."""
        if count >= self.documents.size:
            return self
        kept = self.documents[:count], self.values[:count]
        rest = self.exact, self.length, self.first, self.least, self.ranks
        return HeldList(*kept, self.error, *rest)

    def bound(self, read: int) -> Fraction | None:
        """The largest contribution of an unread item."""
        if self.ranks:
            return self.exact(read)
        return self.exact(read - 1) if read else self.first


def ranked_lists(
    rule: Rule, channels: Sequence[Documents], lengths: Sequence[int] | None = None
) -> list[HeldList]:
    """Lists for a rule of ranks; without lengths they are whole."""
    share = rule.kind.share
    assert share is not None
    found: list[HeldList] = []
    whole = [own.size for own in channels] if lengths is None else lengths
    for weight, documents, length in zip(rule.weights, channels, whole, strict=True):
        ranks = np.arange(1, documents.size + 1, dtype=np.float64)
        values: Floats = np.asarray(share(float(weight), float(rule.kappa), ranks))  # pyright: ignore

        def exact(place: int, weight: Fraction = weight) -> Fraction:
            return share(weight, rule.kappa, place + 1)

        error = EPS * float(values[0]) if values.size else 0.0
        first, least = (exact(0), exact(length - 1)) if length else (Fraction(0), Fraction(0))
        found.append(HeldList(documents, values, error, exact, length, first, least, True))
    return found


def scored_lists(
    rule: Rule,
    channels: Sequence[Documents],
    scores: Sequence[Sequence[Fraction]],
    *,
    checked: bool = False,
) -> list[HeldList]:
    """Lists for a rule of scores, whole.

    Args:
        checked: as for `Rule.scaling`.

    Raises:
        DesaError: as `Rule.contributions`.
    """
    found: list[HeldList] = []
    for place, (documents, given) in enumerate(zip(channels, scores, strict=True)):
        listed = ScoredList(documents.tolist(), given)
        scaling = rule.scaling(place, listed, checked=checked)
        found.append(_scored(rule, place, documents, given, scaling))
    return found


def _scored(
    rule: Rule, place: int, documents: Documents, scores: Sequence[Fraction], scaling: Scaling
) -> HeldList:
    scale, bounds, normaliser = rule.scale[place], rule.bounds[place], rule.normaliser
    assert normaliser is not None
    values, error = scaling.floats(np.array([float(score) for score in scores]))
    values = values * float(scale)

    def exact(item: int) -> Fraction:
        return scale * scaling.exact(scores[item])

    scaled = bool(normaliser.needs)
    least, first = Fraction(0), scale if scaled else None
    if not scaled and bounds.least is not None:
        least = bounds.least * scale
        first = None if bounds.most is None else bounds.most * scale
    if normaliser.whole and scores:
        first, least = exact(0), exact(len(scores) - 1)
    largest = float(np.abs(values).max(initial=0.0))
    error = error * float(scale) + EPS * largest
    return HeldList(documents, values, error, exact, len(scores), first, least, False)
