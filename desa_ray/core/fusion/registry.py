"""The fusion rules that a method can name: how ranks become one order, and how deep the lists must
be read to prove its top.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion import depth, exp4fuse, release, rrf
from desa_ray.core.fusion.cutoffs import prefix_tops
from desa_ray.core.fusion.depth import Replay
from desa_ray.core.rules.arrays import fused_order, sorted_replay
from desa_ray.core.rules.held_lists import ranked_lists
from desa_ray.core.rules.registry import Rule, rule_of

__all__ = ["FUSIONS", "Fusion", "fusion_of", "plain_fusion"]

Ranking = NDArray[np.int32]
Channels = Sequence[Ranking]
Weights = Sequence[Fraction]
Order = Callable[[Channels, Weights, Fraction, int | None], Ranking]
Replaying = Callable[[Channels, Weights, Fraction, int], Replay]
OnPrefixes = Callable[[Channels, Sequence[int], Weights, Fraction, int], Replay | None]


@dataclass(frozen=True)
class Fusion:
    """A fusion.

    Attributes:
        order: channels, weights, kappa and m (None = all) to the first m documents, best first.
        replay: channels, weights, kappa and k to the certification depths of the ordered top k.
        tops: channels, weights, kappa, k and cutoffs to the first k documents of the fused
            prefixes, a cutoff each.
        both: channels, weights, kappa, m, k and cutoffs to what `order` and `tops` give.
        prefixes: heads of channels, their whole lengths, weights, kappa and k to the certification
            depths, or None where the heads do not prove the top; None where a rule needs whole
            lists.
    """

    order: Order
    replay: Replaying
    tops: Callable[[Channels, Weights, Fraction, int, Sequence[int]], list[Ranking]]
    both: Callable[
        [Channels, Weights, Fraction, int | None, int, Sequence[int]], tuple[Ranking, list[Ranking]]
    ]
    prefixes: OnPrefixes | None = None


def plain_fusion(order: Order, replay: Replaying) -> Fusion:
    """A fusion that finds the tops of prefixes one cutoff after another."""

    def tops(
        channels: Channels, weights: Weights, kappa: Fraction, k: int, cutoffs: Sequence[int]
    ) -> list[Ranking]:
        return prefix_tops(order, channels, weights, kappa, k, cutoffs)

    def both(
        channels: Channels,
        weights: Weights,
        kappa: Fraction,
        m: int | None,
        k: int,
        cutoffs: Sequence[int],
    ) -> tuple[Ranking, list[Ranking]]:
        return order(channels, weights, kappa, m), tops(channels, weights, kappa, k, cutoffs)

    return Fusion(order, replay, tops, both)


def by_ranks(name: str) -> Fusion:
    """The fusion by a rule of ranks (`desa_ray.core.rules.registry`)."""

    def rule(weights: Weights, kappa: Fraction) -> Rule:
        return rule_of(name, weights, kappa=kappa)

    def order(channels: Channels, weights: Weights, kappa: Fraction, m: int | None) -> Ranking:
        own = rule(weights, kappa)
        return fused_order(own, ranked_lists(own, channels), m)

    def prefixes(
        channels: Channels, lengths: Sequence[int], weights: Weights, kappa: Fraction, k: int
    ) -> Replay | None:
        own = rule(weights, kappa)
        return sorted_replay(own, ranked_lists(own, channels, lengths), k)

    def replay(channels: Channels, weights: Weights, kappa: Fraction, k: int) -> Replay:
        found = prefixes(channels, [own.size for own in channels], weights, kappa, k)
        assert found is not None, "whole lists prove everything"
        return found

    return replace(plain_fusion(order, replay), prefixes=prefixes)


FUSIONS: dict[str, Fusion] = {
    "rrf": Fusion(
        rrf.fuse_order,
        depth.replay,
        rrf.fuse_prefixes,
        rrf.fuse_with_prefixes,
        depth.replay_prefixes,
    ),
    "exp4fuse": plain_fusion(exp4fuse.fuse_order, exp4fuse.replay),
    **{name: by_ranks(name) for name in ("qdrant_rrf", "isr", "log_isr")},
}
AS_RELEASED = {"rrf": plain_fusion(release.fuse_order, release.replay)}


def fusion_of(name: str, replay: str = "exact") -> Fusion:
    """The fusion of a name; as the paper's authors do it for `release`, where they do."""
    return AS_RELEASED.get(name, FUSIONS[name]) if replay == "release" else FUSIONS[name]
