"""Fusion from heads and counted ranks: the certified top, its depths and the diagnostics without
complete rankings (method.md section 6.14).

Records equal those of complete rankings in every column but the hashes of rankings, which are null;
the fused run ends where the measures do, as in a lazy run. A query whose lists are held whole, or
cut by the method within what is held, is fused and replayed on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from desa_ray.config import MethodConfig, RunConfig
from desa_ray.core.diagnostics import mean_rr_change, turnover
from desa_ray.core.evaluation import depth_needed
from desa_ray.core.fusion.counted import counted_order, counted_replay, members
from desa_ray.core.fusion.cutoffs import CUTOFFS
from desa_ray.core.fusion.depth import Replay, replay_prefixes
from desa_ray.core.fusion.reference import closed_window
from desa_ray.core.operators import SparseOperator
from desa_ray.errors import DesaError
from desa_ray.pipeline.stage import Stage
from desa_ray.stages.counts import opened_counts
from desa_ray.stages.fused_records import FusedQuery, query_record
from desa_ray.stages.fusion import FusionWork
from desa_ray.stages.fusion_inputs import Inputs, Weighed
from desa_ray.stages.lazy_fusion import check_lazy
from desa_ray.stages.plugged import operator_of, rule_of
from desa_ray.stages.ranking import Rankings

LEAST_WITHIN = 128  # documents of each list that are asked for: kappas up to 88 share one count
# e^(1/2) bounds the ratio of two confidence weights, whose margins lie in 0..1
CONFIDENCE_RATIO = Fraction(5, 3)


def check_counted(config: RunConfig, measures: Sequence[str]) -> list[DesaError]:
    """What a configuration asks for that only complete rankings give."""
    found = check_lazy(config, measures, "counted")
    cut = config.method.prefix
    if config.method.fusion not in ("rrf", "score") and cut is not None and cut > max(CUTOFFS):
        what = f"fusion {config.method.fusion!r} reads {cut} documents of every list"
        where = f"method {config.method.name}"
        hint = f"use ranking=complete, or a prefix of at most {max(CUTOFFS)}"
        found.append(DesaError(what, where=where, hint=hint))
    for channel in config.method.channels:
        if channel.kind != "sparse":
            continue
        operator = operator_of("sparse", channel.operator)
        if isinstance(operator, SparseOperator) and not operator.local:
            what = f"operator {channel.operator!r} scores a document by the whole list"
            where = f"method {config.method.name}, channel {channel.name}"
            found.append(DesaError(what, where=where, hint="use ranking=complete or ranking=lazy"))
        if config.sparse.scores == "adjusted":
            what = "adjusted scores depend on the whole list"
            found.append(
                DesaError(what, where="sparse.scores", hint="use raw, or ranking=complete")
            )
            break
    return found


@dataclass(frozen=True)
class CountedPlan:
    """How much of every list a counted run holds, and of how many documents it counts the ranks.

    Attributes:
        depth: documents of a list that are held.
        within: documents within this rank of some list are asked for; 0 where what is held always
            suffices.
    """

    depth: int
    within: int


def counted_plan(
    method: MethodConfig, kappa: Fraction, k: int, measures: Sequence[str]
) -> CountedPlan:
    """What suffices for every query of a method, however long its lists are, and with confidence
    weights whatever these are.
    """
    wanted = max(k, depth_needed(measures) or 0)
    used = [channel for channel in method.channels if channel.weight > 0]
    weights = [Fraction(channel.weight) for channel in used]
    if method.weighting == "confidence":
        ratio = CONFIDENCE_RATIO
        share = 1 + (len(method.channels) - 1) * ratio
    else:
        # A dense list holds every document: some dense list has k of them, or all lists are whole.
        dense = [w for w, channel in zip(weights, used, strict=True) if channel.kind == "dense"]
        ratio = max(weights) / min(weights)
        share = sum(weights) / (max(dense) if dense else min(weights))
    window = closed_window(share, kappa, wanted)
    depth = max(*CUTOFFS, closed_window(ratio, kappa, window))
    if len(method.channels) == 1 or (method.prefix is not None and method.prefix <= depth):
        return CountedPlan(depth, 0)
    within = max(LEAST_WITHIN, 1 << (window - 1).bit_length())
    return CountedPlan(max(depth, within), within)


@dataclass(frozen=True)
class CountedFusionWork(FusionWork):
    """As `FusionWork`, from prefix stages and `counts:NAME` instead of ranking stages."""

    def fuse_one(self, inputs: Inputs, row: int, query: str) -> FusedQuery:
        return _fused(inputs, row, query)

    def worker_bytes(self, stage: Stage, queries: int) -> int | None:
        return None


def _fused(inputs: Inputs, row: int, query: str) -> FusedQuery:
    params, weighed = inputs.params, Weighed(inputs, row)
    kappa, k, weights = Fraction(params["kappa"]), params["k"], weighed.weights
    rule = rule_of(params["fusion"], expected=params.get("plugin"))
    held = [ranking.docs(row) for ranking in inputs.rankings]
    lengths = weighed.used(weighed.cut_lengths)
    channels = weighed.used(
        [docs[:length] for docs, length in zip(held, weighed.cut_lengths, strict=True)]
    )
    measured = depth_needed(params["measures"])
    assert measured is not None, "a measure of whole rankings"
    wanted = max(k, measured)
    if [docs.size for docs in channels] == lengths:
        replayed = rule.replay(channels, weights, kappa, k)
        head = rule.order(channels, weights, kappa, wanted)
    elif not params["within"]:  # one list: its head is the fused order
        replayed, head = _single(channels[0], lengths[0], weights, kappa, k), channels[0][:wanted]
    else:
        documents = members(channels, params["within"])
        ranks = counted_ranks(inputs, row, weighed, channels, documents)
        replayed = counted_replay(channels, lengths, documents, ranks, weights, kappa, k)
        head = documents[counted_order(documents, ranks, weights, kappa, wanted)]
    record = query_record(inputs, row, query, weighed, replayed)
    if inputs.original_sparse is not None and not record["fallback"]:
        record |= _mechanism(inputs, inputs.original_sparse, row, query)
    tops = rule.tops(channels, weights, kappa, k, params["cutoffs"])
    return FusedQuery(record, replayed, head, tops)


def _single(
    head: np.ndarray, length: int, weights: Sequence[Fraction], kappa: Fraction, k: int
) -> Replay:
    found = replay_prefixes([head], [length], weights, kappa, k)
    assert found is not None, "a single list is certain after k items"
    return found


def counted_ranks(
    inputs: Inputs,
    row: int,
    weighed: Weighed,
    channels: Sequence[np.ndarray],
    documents: np.ndarray,
) -> np.ndarray:
    """int32 [W, C]: the counted ranks of documents in the channels in use; 0 behind the place where
    the method cuts a list.
    """
    names = weighed.used([channel["name"] for channel in inputs.params["channels"]])
    ranks = np.zeros((documents.size, len(names)), np.int32)
    places = zip(names, channels, weighed.used(weighed.cut_lengths), strict=True)
    for c, (name, docs, length) in enumerate(places):
        own = opened_counts(inputs.cache, inputs.counts[f"counts:{name}"]).ranks(row, documents)
        ranks[:, c] = np.where(own <= length, own, 0)
        first = docs[: inputs.params["within"]]
        counted = ranks[np.searchsorted(documents, first), c]
        same = np.array_equal(counted, np.arange(1, first.size + 1))
        assert same, f"two passes over channel {name} score differently"
    return ranks


def _mechanism(inputs: Inputs, original: Rankings, row: int, query: str) -> dict[str, float | None]:
    """The diagnostics of method.md section 9, from heads and counts."""
    kinds = [channel["kind"] for channel in inputs.params["channels"]]
    place = kinds.index("sparse")
    name = inputs.params["channels"][place]["name"]
    head = inputs.rankings[place].docs(row)
    counts = opened_counts(inputs.cache, inputs.counts[f"counts:{name}"])
    others = opened_counts(inputs.cache, inputs.counts["counts_of_original"])
    relevant = np.sort(inputs.relevant.get(query, np.empty(0, np.int32)))
    support = original.info(row)["length"]
    return {
        "turnover": turnover(head, original.docs(row)),
        "rr_change": mean_rr_change(counts.ranks(row, relevant), others.ranks(row, relevant)),
        "support_retained": counts.shared(row) / support if support else 1.0,
    }
