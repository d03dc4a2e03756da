"""The exact order of a rule: score descending, then document number (method.md section 6.12)."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby

from desa_ray.core.rules.combine import power_of
from desa_ray.core.rules.registry import Rule, ScoredList

Scored = tuple[int, Fraction]


def contributions_of(
    rule: Rule, lists: Sequence[ScoredList]
) -> tuple[list[list[Fraction]], dict[int, list[Fraction | None]]]:
    """Every list's contributions by place, and every document's by list (None: not in it)."""
    values = rule.contributions(lists)
    found: dict[int, list[Fraction | None]] = {}
    for place, (own, given) in enumerate(zip(lists, values, strict=True)):
        for document, value in zip(own.documents, given, strict=True):
            found.setdefault(document, [None] * len(lists))[place] = value
    return values, found


def fuse(rule: Rule, lists: Sequence[ScoredList], count: int | None = None) -> list[Scored]:
    """The first `count` documents (None = all) with their fused scores, exact.

    A geometric mean is given to the power of `power_of(rule.weights)`; see `shown_score`.
    """
    _, found = contributions_of(rule, lists)
    return ordered({document: rule.combined(own) for document, own in found.items()})[:count]


def ordered(scores: dict[int, Fraction]) -> list[Scored]:
    """Documents by score descending, then by number. Nearest floats never exchange two fractions,
    so exact comparison is left to what they cannot tell apart.
    """
    floats = {document: -float(score) for document, score in scores.items()}
    found: list[Scored] = []
    for _, group in groupby(sorted(floats, key=lambda d: (floats[d], d)), key=floats.__getitem__):
        same = list(group)
        if len(same) > 1:
            same.sort(key=lambda document: (-scores[document], document))
        found += [(document, scores[document]) for document in same]
    return found


def shown_score(rule: Rule, score: Fraction) -> float:
    """A fused score as a float64, for people: of a geometric mean the root is taken."""
    if rule.mean == "geometric":
        return float(score) ** (1 / power_of(rule.weights))
    return float(score)
