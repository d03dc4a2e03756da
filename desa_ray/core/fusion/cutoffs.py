"""Fixed cutoffs: how a fusion of prefixes differs from the fusion of complete rankings
(method.md section 7).

Papers on hybrid retrieval fuse the first L documents of every ranking. A document behind L in one
ranking loses that ranking's share, so the cutoff changes the fused order itself; these functions
say what the order becomes.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

CUTOFFS = (10, 20, 50, 100, 200, 500, 1000)

Ranking = NDArray[np.int32]
Order = Callable[[Sequence[Ranking], Sequence[Fraction], Fraction, int | None], Ranking]


def cut(channels: Sequence[Ranking], length: int | None) -> list[Ranking]:
    """The first `length` documents of every channel; all of them for None."""
    return [channel[:length] for channel in channels]


def prefix_tops(
    order: Order,
    channels: Sequence[Ranking],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
    cutoffs: Sequence[int] = CUTOFFS,
) -> list[Ranking]:
    """The first k documents of the fused prefixes, one int32 array of at most k numbers a cutoff.

    Args:
        order: the fusion, such as `desa_ray.core.fusion.rrf.fuse_order`; takes channels, weights,
            kappa and k.
        channels, weights, kappa: as for a complete fusion.
        cutoffs: prefix lengths L >= 1, in any order.
    """
    if not cutoffs:
        return []
    # The fusion then costs what the prefixes hold, not what the collection holds.
    numbers, small = renumbered(cut(channels, max(cutoffs)))
    return [numbers[order(cut(small, length), weights, kappa, k)] for length in cutoffs]


def renumbered(channels: Sequence[Ranking]) -> tuple[Ranking, list[Ranking]]:
    """The distinct numbers in the channels, ascending, and the channels with their places there:
    the same order.
    """
    numbers, places = np.unique(np.concatenate(channels), return_inverse=True)
    edges = np.cumsum([0, *(channel.size for channel in channels)])
    return numbers, [places[a:b].astype(np.int32) for a, b in pairwise(edges)]
