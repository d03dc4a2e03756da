"""Measures of many variants of a fusion on one query, without fusing it once per variant.

A measure at a small cutoff needs only the ranks of the relevant documents, and a rank is a count:
for all weights at once the sums of a list's contributions are one matrix product. Sums that floats
cannot tell apart are compared as fractions, so values are those of the exact orders (method.md
sections 6.12 and 10.6).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.rules.held_lists import HeldList, ranked_lists, scored_lists
from desa_ray.core.rules.kinds import KINDS
from desa_ray.core.rules.normalise import ScoreBounds
from desa_ray.core.rules.registry import Rule, ScoredList, rule_of

NEAR = 1e-11  # relative to the largest sum


@dataclass(frozen=True)
class FusionVariant:
    """One way to fuse: `depth` documents of each list (None: all) by a rule."""

    rule: str
    weights: tuple[Fraction, ...]
    kappa: Fraction = Fraction(60)
    normaliser: str | None = None
    depth: int | None = None

    def __str__(self) -> str:
        words = [self.rule]
        if KINDS[self.rule].wants_kappa:
            words.append(f"k{self.kappa}")
        words.append(":".join(map(str, self.weights)))
        words += [self.normaliser] if self.normaliser else []
        return " ".join(words) + (f" cut {self.depth}" if self.depth else "")

    def made(self, bounds: Sequence[ScoreBounds]) -> Rule:
        """The rule; those of ranks get no bounds."""
        own = bounds if KINDS[self.rule].by_scores else ()
        normaliser = self.normaliser
        return rule_of(self.rule, self.weights, kappa=self.kappa, normaliser=normaliser, bounds=own)


@dataclass(frozen=True)
class Judged:
    """One query: its lists, and what is relevant.

    Attributes:
        lists: document numbers int32, best first.
        scores: of the lists, as fractions; empty where there are none.
        grades: document number -> positive grade, also of documents that no list holds (then under
            a negative number).
    """

    lists: Sequence[NDArray[np.int32]]
    scores: Sequence[Sequence[Fraction]]
    grades: Mapping[int, int]


def query_values(
    judged: Judged,
    variants: Sequence[FusionVariant],
    bounds: Sequence[ScoreBounds],
    measure: str,
    cutoff: int,
) -> NDArray[np.float64]:
    """NDCG or R at a cutoff of every variant, float64 [V].

    Args:
        bounds: declared limits of each list's scores.
        measure: `nDCG` (linear gain) or `R`.
    """
    values = np.zeros(len(variants))
    union = np.unique(np.concatenate([np.empty(0, np.int32), *judged.lists]))
    relevant = np.array([d for d in sorted(judged.grades) if d in set(union.tolist())], np.int32)
    if not relevant.size:
        return values
    gains = np.array([judged.grades[d] for d in relevant.tolist()], float)
    best = np.sort(np.array([*judged.grades.values()], float))[::-1][:cutoff]
    ideal = float((best / np.log2(np.arange(2, best.size + 2))).sum())
    at = np.searchsorted(union, relevant)
    by_scores = [variant for variant in variants if KINDS[variant.rule].by_scores]
    for place, own in enumerate(judged.lists if by_scores else ()):
        by_scores[0].made(bounds).check(place, ScoredList(own.tolist(), judged.scores[place]))
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, variant in enumerate(variants):
        own = None if KINDS[variant.rule].proportional else variant.weights
        key = variant.rule, variant.kappa, variant.normaliser, variant.depth, own
        groups.setdefault(key, []).append(place)
    for places in groups.values():
        some = [variants[place] for place in places]
        ranks_VR = _ranks(judged, union, at, some, bounds, cutoff)
        hits = ranks_VR <= cutoff
        if measure == "R":
            values[places] = hits.sum(1) / len(judged.grades)
        else:
            values[places] = (np.where(hits, gains / np.log2(ranks_VR + 1), 0.0)).sum(1) / ideal
    return values


def _ranks(
    judged: Judged,
    union: NDArray[np.int32],
    at: NDArray[np.intp],
    variants: Sequence[FusionVariant],
    bounds: Sequence[ScoreBounds],
    cutoff: int,
) -> NDArray[np.int64]:
    """Ranks of the relevant documents under variants that differ in weights alone, int64 [V, R];
    beyond the cutoff where they are not fused, or anywhere beyond it.
    """
    first = variants[0]
    lists = _lists(judged, first, bounds)
    value_CN = np.zeros((len(lists), union.size))
    there_CN = np.zeros(value_CN.shape, bool)
    for c, own in enumerate(lists):
        places = np.searchsorted(union, own.documents)
        value_CN[c, places] = own.values
        there_CN[c, places] = True
    held = there_CN.sum(0)
    factors = first.made(bounds).factors
    assert factors is not None, "a rule with means cannot be tuned"
    weights_VC = np.array([[*map(float, own.weights)] for own in variants])
    scaled_VC = weights_VC / np.array([float(w) for w in first.weights])
    factor_N = np.array([float(f) for f in factors])[held]
    sums_VN = (scaled_VC @ value_CN) * factor_N
    sums_VN[:, held == 0] = -np.inf
    size_V = (scaled_VC @ np.abs(value_CN)).max(1) * max(1.0, float(factor_N.max()))
    limit_V1 = (NEAR * size_V)[:, None]
    ranks_VR = np.empty((len(variants), at.size), np.int64)
    numbers = np.arange(union.size)
    for r, document in enumerate(at.tolist()):
        if not held[document]:
            ranks_VR[:, r] = union.size + cutoff
            continue
        gap_VN = sums_VN - sums_VN[:, document : document + 1]
        above = gap_VN > limit_V1
        near = (gap_VN >= -limit_V1) & ~above
        near[:, document] = False
        ranks_VR[:, r] = 1 + above.sum(1)
        unsure_V = near.any(1) & (ranks_VR[:, r] <= cutoff)
        for v, variant in enumerate(variants):
            if unsure_V[v]:
                others = numbers[near[v]]
                ranks_VR[v, r] += _before(judged, union, document, others, variant, bounds)
    return ranks_VR


def _lists(judged: Judged, variant: FusionVariant, bounds: Sequence[ScoreBounds]) -> list[HeldList]:
    rule = variant.made(bounds)
    cut = [own[: variant.depth] for own in judged.lists]
    if not rule.by_scores:
        return ranked_lists(rule, cut)
    return scored_lists(rule, cut, [own[: variant.depth] for own in judged.scores], checked=True)


def _before(
    judged: Judged,
    union: NDArray[np.int32],
    document: int,
    others: NDArray[np.intp],
    variant: FusionVariant,
    bounds: Sequence[ScoreBounds],
) -> int:
    """How many of some documents, by index, precede one, compared as fractions."""
    rule, lists = variant.made(bounds), _lists(judged, variant, bounds)
    numbers = union[others].tolist()
    places: list[dict[int, int]] = []
    for own in lists:
        found = np.flatnonzero(np.isin(own.documents, [int(union[document]), *numbers]))
        places.append(dict(zip(own.documents[found].tolist(), found.tolist(), strict=True)))

    def exact(number: int) -> Fraction:
        known = zip(lists, places, strict=True)
        return rule.combined([o.exact(p[number]) if number in p else None for o, p in known])

    own_number = int(union[document])
    score = exact(own_number)
    return sum((-exact(number), number) < (-score, own_number) for number in numbers)
