"""Fusion and replay in Python's own rationals: slow, without any bound on numerators and denominators.

Weights or a kappa whose common integers need more than 31 bits come here, so that nothing can overflow. The replay
bisects over the step, as S12 of method.md section 6 allows, with the rules S7-S10 written out.
"""

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from desa_ray.errors import DesaError

Lists = Sequence[NDArray[np.int32]]


def unread_bound(weight: Fraction, kappa: Fraction, read: int) -> Fraction:
    """u_c(L) = w_c / (kappa + L + 1): the most that an item of a channel contributes when L items of it are read."""
    return weight / (kappa + read + 1)


def fuse_order(channels: Lists, weights: Sequence[Fraction], kappa: Fraction, m: int) -> NDArray[np.int32]:
    """As `desa_ray.core.fusion.fuse_order`, for checked arguments."""
    scores: dict[int, Fraction] = {}
    for c, (channel, weight) in enumerate(zip(channels, weights, strict=True)):
        if len(set(channel.tolist())) < channel.size or channel.min(initial=0) < 0:
            raise DesaError("a document number is negative or stands there twice", where=f"channel {c}")
        for rank, document in enumerate(channel.tolist(), 1):
            scores[document] = scores.get(document, Fraction(0)) + weight / (kappa + rank)
    return np.array(sorted(scores, key=lambda document: (-scores[document], document))[:m], np.int32)


def certified_state(
    channels: Lists, weights: Sequence[Fraction], kappa: Fraction, topk: NDArray[np.int32]
) -> list[int]:
    """Items read of each channel at the first step that certifies `topk`, the first K >= 1 of the complete order."""
    ranks = [{document: rank for rank, document in enumerate(channel.tolist(), 1)} for channel in channels]
    candidates, union = topk.tolist(), set().union(*ranks)
    states = _reading(tuple(map(len, channels)), weights, kappa)

    def certified(step: int) -> bool:
        seen = states[step]
        if step == len(states) - 1:
            return True
        unread = [
            unread_bound(weight, kappa, count) if count < len(channel) else Fraction(0)
            for channel, weight, count in zip(channels, weights, seen, strict=True)
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

    return list(states[bisect_left(range(len(states)), True, key=certified)])


def _reading(lengths: tuple[int, ...], weights: Sequence[Fraction], kappa: Fraction) -> list[tuple[int, ...]]:
    """Items read of each channel before the first read and after every one (S5, S6)."""
    seen = [0] * len(lengths)
    states = [tuple(seen)]
    for _ in range(sum(lengths)):
        open_channels = [c for c, length in enumerate(lengths) if seen[c] < length]
        largest = max(open_channels, key=lambda c: (unread_bound(weights[c], kappa, seen[c]), -c))
        seen[largest] += 1
        states.append(tuple(seen))
    return states
