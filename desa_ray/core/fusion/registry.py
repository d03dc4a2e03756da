"""The fusions a method can name: how ranks become one order, and how deep the lists must be read to
prove its head.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion import depth, exp4fuse, rrf
from desa_ray.core.fusion.cutoffs import prefix_tops
from desa_ray.core.fusion.depth import Replay

__all__ = ["FUSIONS", "Fusion"]

Ranking = NDArray[np.int32]
Channels = Sequence[Ranking]
Weights = Sequence[Fraction]


@dataclass(frozen=True)
class Fusion:
    """A fusion.

    Attributes:
        order: channels, weights, kappa and m (None = all) to the first m documents, best first.
        replay: channels, weights, kappa and k to the certification depths of the ordered top k.
        tops: channels, weights, kappa, k and cutoffs to the first k documents of the fused
            prefixes, a cutoff each.
        both: channels, weights, kappa, m, k and cutoffs to what `order` and `tops` give.
    """

    order: Callable[[Channels, Weights, Fraction, int | None], Ranking]
    replay: Callable[[Channels, Weights, Fraction, int], Replay]
    tops: Callable[[Channels, Weights, Fraction, int, Sequence[int]], list[Ranking]]
    both: Callable[
        [Channels, Weights, Fraction, int | None, int, Sequence[int]], tuple[Ranking, list[Ranking]]
    ]


def _exp4fuse_tops(
    channels: Channels, weights: Weights, kappa: Fraction, k: int, cutoffs: Sequence[int]
) -> list[Ranking]:
    return prefix_tops(exp4fuse.fuse_order, channels, weights, kappa, k, cutoffs)


def _exp4fuse_both(
    channels: Channels,
    weights: Weights,
    kappa: Fraction,
    m: int | None,
    k: int,
    cutoffs: Sequence[int],
) -> tuple[Ranking, list[Ranking]]:
    tops = _exp4fuse_tops(channels, weights, kappa, k, cutoffs)
    return exp4fuse.fuse_order(channels, weights, kappa, m), tops


FUSIONS: dict[str, Fusion] = {
    "rrf": Fusion(rrf.fuse_order, depth.replay, rrf.fuse_prefixes, rrf.fuse_with_prefixes),
    "exp4fuse": Fusion(exp4fuse.fuse_order, exp4fuse.replay, _exp4fuse_tops, _exp4fuse_both),
}
