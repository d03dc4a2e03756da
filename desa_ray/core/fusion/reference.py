"""Fusion and replay in Python's own rationals: slow, but with numerators and denominators of any
size.

Weights or a kappa whose common integers are too wide for the kernels come here, so that nothing can
overflow. The replay bisects over the step, as S12 of method.md section 6 allows, with the rules
S7-S10 written out.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor

import numpy as np
from numpy.typing import NDArray

from desa_ray.errors import DesaError

Lists = Sequence[NDArray[np.int32]]


def unread_bound(weight: Fraction, kappa: Fraction, read: int) -> Fraction:
    """u_c(L) = w_c / (kappa + L + 1): the most that an item of a channel contributes when L items
    of it are read.
    """
    return weight / (kappa + read + 1)


def closed_window(share: Fraction, kappa: Fraction, k: int) -> int:
    """The last rank r with share / (kappa + r) >= 1 / (kappa + k).

    With the sum of all weights over that of a list of k documents as its share, no document behind
    r in every list precedes that list's first k: they have at least w / (kappa + k) each, and it
    less than sum(w) / (kappa + r).
    """
    return floor(share * (kappa + k) - kappa)


def fuse_order(
    channels: Lists, weights: Sequence[Fraction], kappa: Fraction, m: int
) -> NDArray[np.int32]:
    """As `desa_ray.core.fusion.rrf.fuse_order`, for checked arguments."""
    scores: dict[int, Fraction] = {}
    for c, (channel, weight) in enumerate(zip(channels, weights, strict=True)):
        if len(set(channel.tolist())) < channel.size or channel.min(initial=0) < 0:
            raise DesaError(
                "a document number is negative or is listed twice", where=f"channel {c}"
            )
        for rank, document in enumerate(channel.tolist(), 1):
            scores[document] = scores.get(document, Fraction(0)) + weight / (kappa + rank)
    return np.array(
        sorted(scores, key=lambda document: (-scores[document], document))[:m], np.int32
    )


def certified_state(
    channels: Lists, weights: Sequence[Fraction], kappa: Fraction, topk: NDArray[np.int32]
) -> list[int]:
    """Items read of each channel at the first step that certifies `topk`, the first K >= 1 of the
    complete order.
    """
    ranks: list[dict[int, int]] = []
    for channel in channels:
        ranks.append({document: rank for rank, document in enumerate(channel.tolist(), 1)})
    return stop_state(ranks, [len(own) for own in ranks], weights, kappa, topk.tolist())


def stop_state(
    ranks: Sequence[Mapping[int, int]],
    lengths: Sequence[int],
    weights: Sequence[Fraction],
    kappa: Fraction,
    candidates: Sequence[int],
) -> list[int]:
    """Items read of each channel at the first step that certifies `candidates`, the first K >= 1 of
    the complete order.

    Args:
        ranks: of each channel, document -> rank: of all its documents, or of all that can stand in
            the way of a certified top.
        lengths: how long the channels are.
    """
    union = set[int]().union(*ranks)
    turns = reading(tuple(lengths), weights, kappa)

    def state(step: int) -> list[int]:
        times = Counter(turns[:step])
        return [times[c] for c in range(len(lengths))]

    def certified(step: int) -> bool:
        seen = state(step)
        if step == len(turns):
            return True
        unread = [
            unread_bound(weight, kappa, count) if count < length else Fraction(0)
            for length, weight, count in zip(lengths, weights, seen, strict=True)
        ]

        def bounds(document: int) -> tuple[Fraction, Fraction]:
            low = high = Fraction(0)
            for c, weight in enumerate(weights):
                rank = ranks[c].get(document, 0)
                known = weight / (kappa + rank) if 0 < rank <= seen[c] else Fraction(0)
                low, high = low + known, high + (known or unread[c])
            return low, high

        def precedes(first: int, second: int) -> bool:
            low, high = bounds(first)[0], bounds(second)[1]
            return low > high or (low == high and first < second)

        last = candidates[-1]
        return (
            bounds(last)[0] > sum(unread)
            and all(precedes(*pair) for pair in pairwise(candidates))
            and all(precedes(last, other) for other in union - set(candidates))
        )

    return state(bisect_left(range(len(turns) + 1), True, key=certified))


def reading(lengths: tuple[int, ...], weights: Sequence[Fraction], kappa: Fraction) -> list[int]:
    """The channel of every read, in order (S5, S6).

    The bounds of a channel fall with every read of it, so always reading the largest is reading in
    the order of the bounds, ties to the first channel.
    """
    reads = [
        (-unread_bound(weights[c], kappa, read), c)
        for c, length in enumerate(lengths)
        for read in range(length)
    ]
    return [c for _, c in sorted(reads)]
