"""Fusion rules by name: what each list contributes, and how contributions become one score.

A rule is made once for some lists (`rule_of`) and then fuses query after query (`fuse.py`).
Definitions and sources: method.md section 6.12.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from desa_ray.core.fusion_constants import checked_kappa, checked_weights
from desa_ray.core.rules import combine
from desa_ray.core.rules.combine import Combine
from desa_ray.core.rules.kinds import KINDS, RuleKind, kind_of, named
from desa_ray.core.rules.normalise import (
    Normaliser,
    Scaling,
    ScoreBounds,
)
from desa_ray.errors import DesaError

MEANS: dict[str, Callable[[Sequence[Fraction]], Combine]] = {
    "arithmetic": combine.arithmetic,
    "geometric": combine.geometric,
    "harmonic": combine.harmonic,
}
LARGEST = Fraction(10) ** 100


@dataclass(frozen=True)
class ScoredList:
    """One list of a query: distinct document numbers, best first, and their scores (none if the
    rule uses only ranks).
    """

    documents: Sequence[int]
    scores: Sequence[Fraction] = ()


@dataclass(frozen=True)
class Rule:
    """A fusion rule for some lists.

    Attributes:
        name, weights: as given; weights one per list, exact.
        kind: its family.
        kappa: the constant of reciprocal ranks.
        normaliser: turns scores into contributions; None for rank-based rules.
        bounds: declared limits of every list's scores.
        combined: combines contributions into the fused score, or into a value with the same order.
        mean: of OpenSearch's combinations, else "".
    """

    name: str
    weights: tuple[Fraction, ...]
    kind: RuleKind
    kappa: Fraction
    normaliser: Normaliser | None
    bounds: tuple[ScoreBounds, ...]
    combined: Combine
    mean: str = ""

    @property
    def by_scores(self) -> bool:
        """Whether lists need scores."""
        return self.normaliser is not None

    @property
    def scale(self) -> tuple[Fraction, ...]:
        """What a normalised score is multiplied by: weights, which a mean applies itself."""
        return (Fraction(1),) * len(self.weights) if self.mean else self.weights

    def contributions(self, lists: Sequence[ScoredList]) -> list[list[Fraction]]:
        """The contribution of each list to each of its documents, in its order; never increasing.

        Raises:
            DesaError: a list without scores; scores that increase, exceed the declared bounds, or
                are not accepted by the rule.
        """
        if self.normaliser is None:
            return [
                self._of_ranks(weight, len(own.documents))
                for weight, own in zip(self.weights, lists, strict=True)
            ]
        found: list[list[Fraction]] = []
        for place, own in enumerate(lists):
            scaling, scale = self.scaling(place, own), self.scale[place]
            found.append([scale * scaling.exact(score) for score in own.scores])
        return found

    def scaling(self, place: int, own: ScoredList, *, checked: bool = False) -> Scaling:
        """How a list's scores are normalised; errors as for `contributions`.

        Args:
            checked: whether the list, or a longer one that begins so, has passed `check`.
        """
        assert self.normaliser is not None
        where = f"list {place}"
        if not checked:
            self.check(place, own)
        try:
            scaling = self.normaliser.fit(own.scores, self.bounds[place])
        except DesaError as error:
            raise DesaError(error.what, where=where, hint=error.hint) from None
        counts = self.kind.combined is combine.counted
        if counts and own.scores and scaling.exact(own.scores[-1]) < 0:
            what = f"{self.name} does not accept values below 0"
            raise DesaError(what, where=where, hint="normalise by min_max")
        return scaling

    @property
    def factors(self) -> tuple[Fraction, ...] | None:
        """What the sum of contributions is multiplied by for a document of 0, 1, ... lists; None
        for means, which are not such a product.
        """
        if self.mean:
            return None
        lists, one = len(self.weights), Fraction(1)
        filled = ([one] * n + [None] * (lists - n) for n in range(1, lists + 1))
        return (Fraction(0), *(self.combined(own) / n for n, own in enumerate(filled, 1)))

    def _of_ranks(self, weight: Fraction, count: int) -> list[Fraction]:
        share = self.kind.share
        assert share is not None
        return [share(weight, self.kappa, rank) for rank in range(1, count + 1)]

    def check(self, place: int, own: ScoredList) -> None:
        """Raises DesaError for a list that the rule does not accept."""
        bounds, where = self.bounds[place], f"list {place}"
        if len(own.scores) != len(own.documents):
            what = f"{self.name} needs scores"
            raise DesaError(what, where=where, hint="give ids with scores")
        if any(before < after for before, after in pairwise(own.scores)):
            raise DesaError("scores increase", where=where, hint="list the best first")
        if not own.scores:
            return
        if max(abs(own.scores[0]), abs(own.scores[-1])) > LARGEST:
            raise DesaError("a score is beyond 1e100", where=where, hint="give smaller scores")
        if self.kind.clips:
            return
        for limit, beyond, score in (
            ("least", bounds.least is not None and own.scores[-1] < bounds.least, own.scores[-1]),
            ("most", bounds.most is not None and own.scores[0] > bounds.most, own.scores[0]),
        ):
            if beyond:
                what = f"score {float(score)} is beyond the declared {limit}"
                raise DesaError(what, where=where, hint="declare bounds that hold for all scores")


def rule_of(
    name: str,
    weights: Sequence[Fraction],
    *,
    kappa: Fraction = Fraction(60),
    normaliser: str | None = None,
    mean: str | None = None,
    bounds: Sequence[ScoreBounds] = (),
) -> Rule:
    """A rule for as many lists as there are weights.

    Args:
        weights: exact, above 0; those of `convex` sum to 1.
        kappa: of reciprocal ranks, above -1; for `qdrant_rrf` Qdrant's k, at least 1.
        normaliser: of scores; each rule has its own default.
        mean: of `opensearch`: arithmetic, geometric or harmonic.
        bounds: limits of every list's scores, if they are known.

    Raises:
        DesaError: no such rule, normaliser or mean; numbers out of range; bounds that are missing.
    """
    kind = kind_of(name)
    _check_numbers(name, weights, kappa)
    chosen = None
    if kind.by_scores:
        if normaliser is not None and kind.fixed_normaliser:
            what = f"{name} has its own normaliser"
            raise DesaError(what, where="normaliser", hint="leave it out")
        chosen = named(kind.normalisers, normaliser or kind.normaliser, "normaliser")
    elif normaliser is not None:
        raise DesaError(f"{name} uses ranks only", where="normaliser", hint="leave it out")
    if mean is not None and not kind.takes_mean:
        raise DesaError(f"{name} has no setting mean", where="mean", hint="use rule opensearch")
    combined = kind.combined
    if combined is None:
        combined = named(MEANS, mean or "arithmetic", "mean")(weights)
        mean = mean or "arithmetic"
    limits = tuple(bounds) or (ScoreBounds(),) * len(weights)
    _check_bounds(limits, chosen, len(weights))
    return Rule(name, tuple(weights), kind, kappa, chosen, limits, combined, mean or "")


def _check_numbers(name: str, weights: Sequence[Fraction], kappa: Fraction) -> None:
    if not weights:
        raise DesaError("there are no lists", where="lists", hint="give at least one")
    checked_weights(weights, len(weights), of="list", where="weights")
    kind = KINDS[name]
    if kind.weights_sum_to_one and sum(weights) != 1:
        what = f"weights of {name} sum to {sum(weights)}, not to 1"
        raise DesaError(what, where="weights", hint="use weights such as 0.7,0.3")
    if kind.small_kappa(kappa):
        what, hint = f"{kind.kappa_name} is {kappa}", f"use {kind.least_kappa} or more"
        raise DesaError(what, where="kappa", hint=hint)
    if kind.wants_kappa:
        checked_kappa(kappa)


def _check_bounds(bounds: Sequence[ScoreBounds], chosen: Normaliser | None, count: int) -> None:
    if len(bounds) != count:
        what = f"{len(bounds)} bounds for {count} lists"
        raise DesaError(what, where="bounds", hint="give one per list")
    for own in bounds:
        if own.least is not None and own.most is not None and own.least >= own.most:
            what = f"least {own.least} is not below most {own.most}"
            raise DesaError(what, where="bounds", hint="exchange them")
        for need in chosen.needs if chosen else ():
            if getattr(own, need) is None:
                what = f"this normaliser needs the {need} possible score of every list"
                raise DesaError(what, where="bounds", hint=f"declare {need}, such as 0 for BM25")
