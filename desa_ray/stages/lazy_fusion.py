"""Fusion of prefixes: the certified top and its depths without complete rankings, the paper's
online ranked access.

The lazy rule: every query is replayed on the prefixes of its channels; the queries whose top is not
yet certified get prefixes twice as deep, all of a shard's queries together, until none is left. The
result is that of complete rankings, since the replay never reads past its certification depth. Only
complete rankings give the mechanism diagnostics and the hashes of whole rankings; these stay null.
The fused run ends where certification does: at the top that the measures need.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from desa_ray.config import RunConfig
from desa_ray.core.evaluation import depth_needed
from desa_ray.core.fusion.depth import Replay
from desa_ray.core.fusion.registry import FUSIONS
from desa_ray.errors import DesaError
from desa_ray.stages.fused_records import FusedQuery, query_record
from desa_ray.stages.fusion import FusionWork
from desa_ray.stages.fusion_inputs import Inputs, Weighed
from desa_ray.stages.plugged import rule_of
from desa_ray.stages.prefix import deepened

# documents that a lazy run certifies at most; a longer head is cheaper from complete rankings
MOST_CERTIFIED = 1000
GROWTH = 2


def check_lazy(
    config: RunConfig, measures: Sequence[str], ranking: str = "lazy"
) -> list[DesaError]:
    """What a configuration asks for that only complete rankings give; `ranking` is what it has."""
    found: list[DesaError] = []
    hint, limit = "use ranking=complete", f"a {ranking} run certifies at most {MOST_CERTIFIED}"
    for name in measures:
        depth = depth_needed([name])
        if depth is None or depth > MOST_CERTIFIED:
            reads = "the whole ranking" if depth is None else f"{depth} documents"
            what = f"measure {name!r} reads {reads}, {limit}"
            found.append(DesaError(what, where="evaluation.measures", hint=hint))
    if config.fusion.k > MOST_CERTIFIED:
        what = f"k is {config.fusion.k}, {limit} documents"
        found.append(DesaError(what, where="fusion.k", hint=hint))
    if config.fusion.replay != "exact":
        what = "replay 'release' looks at how many documents all lists hold"
        found.append(DesaError(what, where="fusion.replay", hint=f"{hint}, or replay=exact"))
    rule = FUSIONS.get(config.method.fusion)
    by_heads = rule is not None and rule.prefixes is not None
    allowed = by_heads if ranking == "lazy" else config.method.fusion == "rrf"
    if not allowed and config.method.prefix is None:
        what = f"fusion {config.method.fusion!r} reads complete rankings"
        found.append(
            DesaError(
                what,
                where=f"method {config.method.name}",
                hint=f"{hint}, or give the method a prefix",
            )
        )
    if config.encoder.scoring != "int26" and any(
        channel.kind == "dense" for channel in config.method.channels
    ):
        what = (
            f"scoring {config.encoder.scoring!r} differs between batches, so two passes would not"
            " be consistent"
        )
        found.append(
            DesaError(
                what, where="encoder.scoring", hint="use encoder.scoring=int26, or ranking=complete"
            )
        )
    return found


@dataclass(frozen=True)
class LazyFusionWork(FusionWork):
    """As `FusionWork`, from prefix stages instead of ranking stages."""

    def fuse(self, inputs: Inputs, rows: Sequence[int], queries: Sequence[str]) -> list[FusedQuery]:
        states = {row: _State(inputs, row) for row in rows}
        while unsure := [state for state in states.values() if not state.certify()]:
            for c, stage in enumerate(inputs.channels):
                for depth in sorted({state.depth for state in unsure}):
                    asking = [
                        s.row
                        for s in unsure
                        if s.depth == depth and s.lists[c].size < s.weighed.lengths[c]
                    ]
                    if not asking:
                        continue
                    for row, docs in deepened(inputs.cache, stage, asking, GROWTH * depth).items():
                        states[row].lists[c] = docs
            for state in unsure:
                state.depth *= GROWTH
        return [
            _fused(inputs, states[row], query) for row, query in zip(rows, queries, strict=True)
        ]


class _State:
    """One query: what is held of its channels, and what was found with it."""

    def __init__(self, inputs: Inputs, row: int):
        self.row, self.params, self.weighed = row, inputs.params, Weighed(inputs, row)
        self.lists: list[np.ndarray] = [ranking.docs(row) for ranking in inputs.rankings]
        self.depth: int = min(stage.params["depth"] for stage in inputs.channels)
        self.replayed: Replay | None = None
        self.head: Replay | None = None

    def certify(self) -> bool:
        """Replays for the top k, and for what the measures look at; says whether both
        are certain.
        """
        measured = depth_needed(self.params["measures"])
        assert measured is not None, "a measure of whole rankings"
        k = self.params["k"]
        self.replayed = self._replay(k)
        if self.replayed is not None:
            self.head = self._replay(measured) if measured > k else self.replayed
        return self.replayed is not None and self.head is not None

    def channels(self) -> list[np.ndarray]:
        """What is held of the channels in use, cut where the method cuts them."""
        lengths = self.weighed.cut_lengths
        return self.weighed.used(
            [docs[:length] for docs, length in zip(self.lists, lengths, strict=True)]
        )

    def _replay(self, k: int) -> Replay | None:
        channels, lengths = self.channels(), self.weighed.used(self.weighed.cut_lengths)
        kappa, weights = Fraction(self.params["kappa"]), self.weighed.weights
        rule = rule_of(self.params["fusion"], expected=self.params.get("plugin"))
        if [docs.size for docs in channels] == lengths:
            return rule.replay(channels, weights, kappa, k)
        if rule.prefixes is None:
            return None
        return rule.prefixes(channels, lengths, weights, kappa, k)


def _fused(inputs: Inputs, state: _State, query: str) -> FusedQuery:
    replayed, head, params = state.replayed, state.head, state.params
    assert replayed is not None
    assert head is not None
    record = query_record(inputs, state.row, query, state.weighed, replayed)
    kappa, weights = Fraction(params["kappa"]), state.weighed.weights
    tops = rule_of(params["fusion"], expected=params.get("plugin")).tops(
        state.channels(), weights, kappa, params["k"], params["cutoffs"]
    )
    return FusedQuery(record, replayed, head.topk, tops)
