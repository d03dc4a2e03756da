"""Replay: how deep every channel must be read until the ordered top K is certain (SPEC section 6, S1-S12).

Most replays stop after a few thousand items of lists of hundreds of thousands, so the kernels see prefixes of the lists
first and longer ones only if those do not suffice.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core import wide
from desa_ray.core.certify import BROKEN, TOO_SHORT, certify
from desa_ray.core.compare import checked, scaled
from desa_ray.core.fusion import fuse_order
from desa_ray.errors import DesaError

FIRST_PREFIX = 4096  # items of each channel that are looked at first; then four times as many, and so on
SORTED_K = 256  # a larger top K is taken from the complete fusion instead of being kept sorted while reading


@dataclass(frozen=True)
class Replay:
    """Where the reading stopped.

    Attributes:
        depths: items read of each channel.
        exhausted: whether a channel was read to its end; true for an empty one.
        steps: reads in all, the sum of the depths.
        topk: int32 [min(K, union)], the certified documents in order; equal to the complete fusion's.
    """

    depths: tuple[int, ...]
    exhausted: tuple[bool, ...]
    steps: int
    topk: NDArray[np.int32]


class _Workspace(threading.local):
    """One thread's scratch arrays, all zero between replays.

    They are kept because clearing them for 382,000 documents anew would take longer than a replay does.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.ranks = np.zeros(0, np.int32)
        self.low = np.zeros(0, np.float64)
        self.chosen = np.zeros(0, np.bool_)

    def arrays(self, documents: int, channels: int) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
        """ranks_NC; low_N, what a document has gained so far; chosen_N, whether it is among the K best."""
        self.ranks, self.low = _grown(self.ranks, documents * channels), _grown(self.low, documents)
        self.chosen = _grown(self.chosen, documents)
        return self.ranks[: documents * channels].reshape(documents, channels), self.low, self.chosen


def _grown(array: NDArray, size: int) -> NDArray:
    """The array, with zeros behind it where it is shorter than `size`."""
    if array.size >= size:
        return array
    return np.concatenate((array, np.zeros(size - array.size, array.dtype)))


_workspace = _Workspace()


def replay(channels: Sequence[NDArray[np.int32]], weights: Sequence[Fraction], kappa: Fraction, k: int) -> Replay:
    """The certification depths of the ordered top k.

    Args:
        channels: C arrays of distinct document numbers, best first, in reading order for ties; any may be empty.
        weights: one exact rational > 0 a channel.
        kappa: an exact rational > -1.
        k: how many documents to certify; 0 needs no reading.

    Raises:
        DesaError: a weight, kappa or k out of range, a negative number, a document twice in the part of a channel read.
    """
    checked(channels, weights, kappa)
    if k < 0:
        raise DesaError(f"k = {k} is negative")
    sizes = [channel.size for channel in channels]
    lengths, total = np.array(sizes, np.int32), sum(sizes)
    scale = scaled(weights, kappa, max(sizes))
    known = scale is None or min(k, total) > SORTED_K
    top = fuse_order(channels, weights, kappa, k) if known else np.full(min(k, total), -1, np.int32)
    if k == 0:
        return _stopped(np.zeros(len(sizes), np.int32), lengths, top)
    if top.size < k and (known or total == 0):
        return _stopped(lengths, lengths, top)
    if scale is None:
        return _stopped(np.array(wide.stop(channels, weights, kappa, top)), lengths, top)
    prefix = total if known else FIRST_PREFIX
    reads, seen = np.zeros(len(sizes), np.int32), np.zeros(len(sizes), np.int32)
    status = TOO_SHORT
    try:
        while status == TOO_SHORT:
            lists_CP = _prefixes(channels, prefix)
            arrays = _workspace.arrays(1 + int(lists_CP.max()), len(sizes))
            status = certify(lists_CP, lengths, scale, top, known, *arrays, reads, seen)
            prefix *= 4
    finally:
        if status == TOO_SHORT:  # interrupted half-way
            _workspace.reset()
    if status <= BROKEN:
        raise DesaError("a document number is negative or stands there twice", where=f"channel {BROKEN - status}")
    return _stopped(seen, lengths, top[:status])


def _stopped(seen: NDArray[np.integer], lengths: NDArray[np.int32], topk: NDArray[np.int32]) -> Replay:
    depths = tuple(seen.tolist())
    return Replay(depths, tuple((seen == lengths).tolist()), sum(depths), topk)


def _prefixes(channels: Sequence[NDArray[np.int32]], prefix: int) -> NDArray[np.int32]:
    """int32 [C, P]: the first P items of every channel, zeros behind the end of shorter ones."""
    prefix = min(prefix, max(channel.size for channel in channels))
    lists_CP = np.zeros((len(channels), prefix), np.int32)
    for row, channel in zip(lists_CP, channels, strict=True):
        row[: channel.size] = channel[:prefix]
    return lists_CP
