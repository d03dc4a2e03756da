"""Your own rankings, fused by any rule: `desa_ray.fuse_rule` (method.md section 6.12)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from desa_ray.core.identifiers import exact_score, numbered, rational, told, whole_number
from desa_ray.core.rules.certify import certify, refusal
from desa_ray.core.rules.fuse import fuse, shown_score
from desa_ray.core.rules.kinds import kind_of
from desa_ray.core.rules.normalise import ScoreBounds
from desa_ray.core.rules.registry import Rule, ScoredList, rule_of
from desa_ray.errors import DesaError

SETTINGS = ("name", "weights", "kappa", "normaliser", "mean", "least", "most")


@dataclass(frozen=True)
class RuleFused:
    """The top k of one query's lists by a rule, and how deep the lists must be read to prove it.

    Attributes:
        documents: ids of the ordered top k.
        scores: fused scores, as the nearest float64; the order is that of the exact ones.
        sorted_depths: per list, the items to read if lists can only be read in order; None if the
            rule has no certificate.
        random_depths: the same if each document read is looked up in all lists.
        refused: why there is no certificate; None if there is one.
    """

    documents: tuple[str, ...]
    scores: tuple[float, ...]
    sorted_depths: tuple[int, ...] | None
    random_depths: tuple[int, ...] | None
    refused: str | None


def fuse_rule(
    channels: Sequence[Sequence[str] | Mapping[str, float]],
    rule: str | Mapping[str, Any],
    *,
    k: int = 20,
    frozen: bool = False,
) -> RuleFused:
    """Fuse one query's rankings by a rule of method.md section 6.12, exactly.

    Args:
        channels: dicts from ids to scores, or lists of ids, best first, for rank-based rules.
        rule: a name (rrf, weighted_rrf, qdrant_rrf, isr, log_isr, convex, combsum, combmnz, dbsf,
            zscore, opensearch), or a dict with `name` and any of `weights`, `kappa`, `normaliser`,
            `mean`, `least` and `most`; the last two are lists, one number (or None) per channel.
        k: how many documents, 1 or more.
        frozen: statistics of whole lists count as known before anything is read.

    Raises:
        DesaError: as for `rule_of` and `Rule.contributions`; ids that `desa_ray.fuse` refuses.
    """
    k = whole_number(k, "k", 1)
    if not isinstance(channels, Sequence) or isinstance(channels, str | bytes):
        what = f"{told(channels)} is not a list"
        raise DesaError(what, where="channels", hint="give a list of channels")
    made = rule_from(rule, len(channels))
    ids, arrays = numbered(channels)
    lists = []
    for given, own in zip(channels, arrays, strict=True):
        documents = own.tolist()
        if isinstance(given, Mapping):
            scores = [exact_score(given[ids[n]]) for n in documents]
            lists.append(ScoredList(documents, scores))
        else:
            lists.append(ScoredList(documents))
    return fused_by(made, ids, lists, k, frozen=frozen)


def fused_by(
    rule: Rule, ids: Sequence[str], lists: Sequence[ScoredList], k: int, *, frozen: bool = False
) -> RuleFused:
    """`fuse_rule` of numbered lists."""
    reason = refusal(rule, frozen)
    depths: tuple[tuple[int, ...] | None, tuple[int, ...] | None] = None, None
    if reason is None:
        proof = certify(rule, lists, k, frozen=frozen)
        top, depths = proof.top, (proof.sorted_depths, proof.random_depths)
    else:
        top = fuse(rule, lists, k)
    documents = tuple(ids[number] for number, _ in top)
    return RuleFused(documents, tuple(shown_score(rule, s) for _, s in top), *depths, reason)


def rule_from(given: str | Mapping[str, Any], lists: int) -> Rule:
    """A rule for so many lists from its name or its settings.

    Raises:
        DesaError: a setting that no rule has, numbers of the wrong count, and as `rule_of`.
    """
    if not isinstance(given, str | Mapping):
        hint = "give its name, or a dict with name and settings"
        raise DesaError(f"{told(given)} is no rule", where="rule", hint=hint)
    settings = {"name": given} if isinstance(given, str) else dict(given)
    if unknown := sorted(map(str, set(settings) - set(SETTINGS))):
        known = ", ".join(SETTINGS)
        raise DesaError(f"no rule has {unknown[0]!r}", where="rule", hint=f"use {known}")
    name = str(settings.get("name", ""))
    equal = kind_of(name).fitted([Fraction(1)] * lists)
    weights = _numbers(settings, "weights", lists) or equal
    least = _numbers(settings, "least", lists) or [None] * lists
    most = _numbers(settings, "most", lists) or [None] * lists
    return rule_of(
        name,
        [own if given is None else given for given, own in zip(weights, equal, strict=True)],
        kappa=rational(settings.get("kappa", 60), "kappa"),
        normaliser=settings.get("normaliser"),
        mean=settings.get("mean"),
        bounds=[ScoreBounds(*own) for own in zip(least, most, strict=True)],
    )


def _numbers(settings: Mapping[str, Any], name: str, lists: int) -> list[Fraction | None] | None:
    values = settings.get(name)
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise DesaError(f"{told(values)} is not a list", where=name, hint="give one per list")
    if len(values) != lists:
        what = f"{len(values)} {name} for {lists} lists"
        raise DesaError(what, where=name, hint="give one per list")
    return [None if value in (None, "") else rational(value, name) for value in values]
