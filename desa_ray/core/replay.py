"""Replay: how deep every channel must be read until the ordered top K is certain (SPEC section 6, S1-S12).

Most replays stop after a few thousand items of lists of hundreds of thousands, so the kernels see prefixes of the lists
first and longer ones only if those do not suffice.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core import wide
from desa_ray.core.certify import BROKEN, TOO_SHORT, certify
from desa_ray.core.compare import BASE, checked, scaled
from desa_ray.core.cutoffs import renumbered
from desa_ray.core.fusion import fuse_order
from desa_ray.errors import DesaError

FIRST_PREFIX = 4096  # items of each channel that are looked at first; then four times as many, and so on
SCRATCH_DOCUMENTS = 1 << 24  # prefixes with larger numbers are renumbered, so that scratch stays below 300 MB
LAST_BASE = 1 << 30  # ranks in the scratch arrays stay below 2^31
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
    """One thread's scratch arrays over documents, kept from replay to replay: clearing them takes as long as a replay.

    Whatever earlier replays left there is at most `base`.
    """

    def __init__(self) -> None:
        self.ranks, self.chosen = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self.low = np.zeros(0, np.float64)
        self.base = 1
        self._views: dict[int, NDArray[np.int32]] = {}  # ranks_NC by the number of channels

    def arrays(self, documents: int, channels: int) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]]:
        """ranks_NC; low_N, what a document has gained so far; chosen_N, the base where it is among the K best."""
        view = self._views.get(channels)
        if view is None or len(view) < documents or self.low.size < documents:
            self.ranks, self.low = _grown(self.ranks, documents * channels), _grown(self.low, documents)
            self.chosen = _grown(self.chosen, documents)
            self._views = {channels: self.ranks[: documents * channels].reshape(documents, channels)}
            view = self._views[channels]
        return view, self.low, self.chosen

    def leave(self, longest: int) -> None:
        """End a replay that looked at `longest` items of a channel."""
        self.base += longest + 1
        if self.base > LAST_BASE:
            self.ranks.fill(0)
            self.chosen.fill(0)
            self.base = 1


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
    found = _certified(channels, sizes, lengths, scale, top, known)
    assert found is not None, "complete lists always certify"
    return found


def replay_prefixes(
    prefixes: Sequence[NDArray[np.int32]],
    lengths: Sequence[int],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
) -> Replay | None:
    """As `replay`, from the first documents of every channel alone; None where they do not suffice.

    Args:
        prefixes: C arrays, each the beginning of a channel (all of it, where it is as long as that).
        lengths: how long each channel is.

    The bound on what a channel's unread items contribute needs its length, never its items, so what comes out is what
    `replay` finds on the complete lists.
    """
    checked(prefixes, weights, kappa)
    sizes = [prefix.size for prefix in prefixes]
    assert all(size <= length for size, length in zip(sizes, lengths, strict=True))
    if sizes == list(lengths):
        return replay(prefixes, weights, kappa, k)
    scale = scaled(weights, kappa, max(lengths))
    if scale is None:  # beyond the kernels' integers: only complete lists
        return None
    top = np.full(min(k, sum(lengths)), -1, np.int32)
    if k == 0:
        return _stopped(np.zeros(len(sizes), np.int32), np.array(lengths, np.int32), top)
    numbers, small = None, prefixes
    if max(int(prefix.max(initial=0)) for prefix in prefixes) >= SCRATCH_DOCUMENTS:
        numbers, small = renumbered(prefixes)
    found = _certified(small, sizes, np.array(lengths, np.int32), scale, top, known=False)
    if found is None or numbers is None:
        return found
    return replace(found, topk=numbers[found.topk])


def _certified(
    channels: Sequence[NDArray[np.int32]],
    sizes: Sequence[int],
    lengths: NDArray[np.int32],
    scale: NDArray[np.int64],
    top: NDArray[np.int32],
    known: bool,
) -> Replay | None:
    """The stop of a replay that sees `sizes` of the `lengths` items of every channel; None if it needs more."""
    prefix, longest = max(sizes) if known else FIRST_PREFIX, max(sizes)
    reads, seen = np.zeros(len(sizes), np.int32), np.zeros(len(sizes), np.int32)
    scale = scale.copy()
    scale[BASE] = _workspace.base
    status = TOO_SHORT
    try:
        while status == TOO_SHORT:
            lists_CP = _prefixes(channels, prefix)
            given = np.array([min(size, lists_CP.shape[1]) for size in sizes], np.int32)
            arrays = _workspace.arrays(1 + int(lists_CP.max(initial=0)), len(sizes))
            status = certify(lists_CP, given, lengths, scale, top, known, *arrays, reads, seen)
            if lists_CP.shape[1] == longest:
                break
            prefix *= 4
    finally:
        _workspace.leave(longest)
    if status == TOO_SHORT:
        return None
    if status <= BROKEN:
        raise DesaError("a document number is negative or stands there twice", where=f"channel {BROKEN - status}")
    return _stopped(seen, lengths, top[:status])


def _stopped(seen: NDArray[np.integer], lengths: NDArray[np.int32], topk: NDArray[np.int32]) -> Replay:
    depths = tuple(seen.tolist())
    return Replay(depths, tuple((seen == lengths).tolist()), sum(depths), topk)


def _prefixes(channels: Sequence[NDArray[np.int32]], prefix: int) -> NDArray[np.int32]:
    """int32 [C, P]: the first P items of every channel, zeros behind the end of shorter ones."""
    prefix = min(prefix, max(channel.size for channel in channels))
    if all(channel.size >= prefix for channel in channels):
        return np.concatenate([channel[:prefix] for channel in channels]).reshape(len(channels), prefix)
    lists_CP = np.zeros((len(channels), prefix), np.int32)
    for row, channel in zip(lists_CP, channels, strict=True):
        row[: channel.size] = channel[:prefix]
    return lists_CP
