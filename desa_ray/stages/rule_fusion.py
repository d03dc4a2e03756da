"""Fusion by score-based rules as a fusion stage: records from the top scores of each channel
(method.md section 6.12).

Of rankings, complete or not, it takes only lengths and support; the fused lists are the same. Rules
with a certificate have depths, others have none. Under a cutoff every list is normalised by what is
left of it, as an engine does that reads no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from desa_ray.core.fusion.depth import Replay
from desa_ray.core.rules.arrays import fused_order, sorted_replay
from desa_ray.core.rules.certify import refusal
from desa_ray.core.rules.held_lists import scored_lists
from desa_ray.core.rules.kinds import KINDS
from desa_ray.core.rules.normalise import ScoreBounds
from desa_ray.core.rules.registry import Rule, rule_of
from desa_ray.errors import DesaError
from desa_ray.pipeline.sizes import Params
from desa_ray.stages.fused_records import FusedQuery, head_needed, mechanism, query_record
from desa_ray.stages.fusion import FusionWork
from desa_ray.stages.fusion_inputs import Inputs, Numbers, Weighed
from desa_ray.stages.score_fusion import NO_DEPTHS

SCORE_RULES = tuple(name for name, kind in KINDS.items() if kind.by_scores)


@dataclass(frozen=True)
class RuleFusionWork(FusionWork):
    """As `FusionWork`, by scores; needs `scores:NAME` of every channel."""

    smaller = ""  # scores are fused from complete rankings alone

    def fuse_one(self, inputs: Inputs, row: int, query: str) -> FusedQuery:
        return _fused(inputs, row, query)


def score_rule(params: Params, weights: Sequence[Fraction], places: Sequence[int]) -> Rule:
    """The rule of a fusion stage for the channels in use, its weights fitted to them.

    Raises:
        DesaError: as `desa_ray.core.rules.registry.rule_of`.
    """
    name, settings = params["fusion"], params["rule"]
    bounds = [ScoreBounds(*map(_number, settings["bounds"][place])) for place in places]
    normaliser, mean = settings["normaliser"], settings["mean"]
    return rule_of(
        name, KINDS[name].fitted(weights), normaliser=normaliser, mean=mean, bounds=bounds
    )


def why_no_depths(params: Params) -> str | None:
    """Why a fusion by a rule of scores has no certification depths; None where it has, and for
    other fusions.
    """
    if "rule" not in params:
        return None
    weights = [Fraction(1)] * len(params["channels"])
    return refusal(score_rule(params, weights, range(len(weights))))


def _number(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)


def _fused(inputs: Inputs, row: int, query: str) -> FusedQuery:
    params, weighed = inputs.params, Weighed(inputs, row)
    k, cut = params["k"], params["prefix"]
    rule = score_rule(params, weighed.weights, weighed.places)
    documents: list[Numbers] = []
    scores: list[list[Fraction]] = []
    for own in weighed.used(inputs.scores):
        docs, values = own.best(row)
        documents.append(docs[:cut])
        scores.append([Fraction(score) for score in values[:cut].tolist()])
    try:
        lists = scored_lists(rule, documents, scores)
        order = fused_order(rule, lists, head_needed(params))
        tops = [_top(rule, documents, scores, cutoff, k) for cutoff in params["cutoffs"]]
    except DesaError as error:
        raise DesaError(
            error.what, where=f"query {query}, {error.where}", hint=error.hint
        ) from None
    proved = sorted_replay(rule, lists, k) if refusal(rule) is None else None
    nothing = Replay((0,) * len(lists), (False,) * len(lists), 0, order[:k])
    record = query_record(inputs, row, query, weighed, proved or nothing)
    if proved is None:
        record |= dict.fromkeys(NO_DEPTHS)
    if params.get("ranking") is None:  # complete
        record["ranking_hashes"] = [info["hash"] for info in weighed.infos]
        if inputs.original_sparse is not None and not record["fallback"]:
            place = weighed.kinds.index("sparse")
            record |= mechanism(inputs, row, query, inputs.rankings[place].docs(row))
    return FusedQuery(record, proved or nothing, order, tops)


def _top(
    rule: Rule,
    documents: Sequence[Numbers],
    scores: Sequence[Sequence[Fraction]],
    cutoff: int,
    k: int,
) -> np.ndarray:
    """The first k of lists that are cut, and normalised by what is left of them."""
    heads, cut = [own[:cutoff] for own in documents], [own[:cutoff] for own in scores]
    return fused_order(rule, scored_lists(rule, heads, cut, checked=True), k)
