"""The certification depth: how far each ranking must be read to prove the ordered top K (method.md
section 6, S1-S12).

The rule. C ranked lists (channels) with weights w_c are read from the top. After reading l_c items
of channel c, the most that an unread item of it can still contribute is

    u_c(l_c) = w_c / (kappa + l_c + 1)        while the channel has unread items, else 0.

For every document d the ranks read so far give a lower bound LB(d), the sum of its known
contributions, and an upper bound UB(d) = LB(d) plus u_c of every channel where d was not read. A
document that was read nowhere has the upper bound sum of u_c. The ordered top K is certified as
soon as K documents were read such that each one's lower bound is above the next one's upper bound,
and the last one's lower bound is above the upper bound of every other document, read or unread
(ties are decided by document number, which is unknown for an unread document). The check comes
before the first read and after every single one; the next item is read from the channel with the
largest u_c, the first one of equals. The depths are the l_c at which the reading stops. No rule
that reads in this order and stops earlier can be right for all lists.

`desa_ray.core.fusion.reference` states the same in a few lines of exact rationals. This module is
fast: most replays stop after a few thousand items of lists of hundreds of thousands, so the kernels
see prefixes of the lists first and longer ones only if those do not suffice.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import eq
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion import reference
from desa_ray.core.fusion.cutoffs import renumbered
from desa_ray.core.fusion.depth_kernels import (
    BROKEN,
    GIVEN,
    LENGTHS,
    SEEN,
    TOO_NARROW,
    TOO_SHORT,
    certify,
)
from desa_ray.core.fusion.exact import BASE, RrfConstants, checked
from desa_ray.core.fusion.rrf import fuse_order
from desa_ray.errors import DesaError

FIRST_PREFIX = (
    4096  # items of each channel that are looked at first; then four times as many, and so on
)
# Prefixes with larger numbers are renumbered, so that scratch stays below 300 MB
SCRATCH_DOCUMENTS = 1 << 24
LAST_BASE = 1 << 30  # ranks in the scratch arrays stay below 2^31
# a larger top K is taken from the complete fusion instead of being kept sorted while reading
SORTED_K = 256
Number = TypeVar("Number", np.int32, np.float64)


@dataclass(frozen=True)
class Replay:
    """Where the reading stopped.

    Attributes:
        depths: items read of each channel.
        exhausted: whether a channel was read to its end; true for an empty one.
        steps: reads in all, the sum of the depths.
        topk: int32 [min(K, union)], the certified documents in order; equal to the complete
            fusion's.
    """

    depths: tuple[int, ...]
    exhausted: tuple[bool, ...]
    steps: int
    topk: NDArray[np.int32]


def _grown(array: NDArray[Number], size: int) -> NDArray[Number]:
    """The array, with zeros behind it where it is shorter than `size`."""
    if array.size >= size:
        return array
    return np.concatenate((array, np.zeros(size - array.size, array.dtype)))


class _Workspace(threading.local):
    """One thread's scratch arrays, kept from replay to replay: clearing those over documents takes
    as long as a replay.

    Whatever earlier replays left in `ranks` and `chosen` is at most `base`.
    """

    def __init__(self) -> None:
        self.ranks, self.chosen = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self.low, self._no_low = np.zeros(0, np.float64), np.zeros(0, np.float64)
        self.base = 1
        self._ranks_NC, self._lists_CP = np.zeros((0, 0), np.int32), np.zeros((0, 0), np.int32)

    def over_documents(
        self, documents: int, channels: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]]:
        """ranks_NC, low_N and chosen_N for at least `documents` documents."""
        view = self._ranks_NC
        if view.shape[0] < documents or view.shape[1] != channels:
            documents = max(documents, self.ranks.size // channels)
            self.ranks, self.chosen = (
                _grown(self.ranks, documents * channels),
                _grown(self.chosen, documents),
            )
            view = self._ranks_NC = self.ranks[: documents * channels].reshape(documents, channels)
            if channels != 2:
                self.low = _grown(self.low, documents)
        return view, self.low if channels != 2 else self._no_low, self.chosen

    def lists(self, channels: int, prefix: int) -> NDArray[np.int32]:
        """Room for lists_CP, P at least `prefix`; small ones are kept."""
        if prefix > FIRST_PREFIX:
            return np.empty((channels, prefix), np.int32)
        if self._lists_CP.shape != (channels, FIRST_PREFIX):
            self._lists_CP = np.empty((channels, FIRST_PREFIX), np.int32)
        return self._lists_CP

    def leave(self, longest: int) -> None:
        """End a replay that looked at `longest` items of a channel."""
        self.base += longest + 1
        if self.base > LAST_BASE:
            self.ranks.fill(0)
            self.chosen.fill(0)
            self.base = 1


_workspace = _Workspace()


def replay(
    channels: Sequence[NDArray[np.int32]], weights: Sequence[Fraction], kappa: Fraction, k: int
) -> Replay:
    """The certification depths of the ordered top k.

    Args:
        channels: C arrays of distinct document numbers, best first, in reading order for ties; any
            may be empty.
        weights: one exact rational > 0 per channel.
        kappa: an exact rational > -1.
        k: how many documents to certify; 0 needs no reading.

    Raises:
        DesaError: a weight, kappa or k out of range, a negative number, a document twice in the
            part of a channel read.
    """
    terms = checked(channels, weights, kappa)
    if k < 0:
        raise DesaError(f"k = {k} is negative", hint="use 0 or more")
    sizes = [channel.size for channel in channels]
    total = sum(sizes)
    scale = terms.scale(max(sizes))
    known = scale is None or min(k, total) > SORTED_K
    top = fuse_order(channels, weights, kappa, k) if known else _unknown(min(k, total))
    if k == 0:
        return _stopped([0] * len(sizes), sizes, top)
    if top.size < k and (known or total == 0):
        return _stopped(sizes, sizes, top)
    if scale is None:
        return _stopped(reference.certified_state(channels, weights, kappa, top), sizes, top)
    found = _certified(channels, sizes, sizes, terms, scale, top, known)
    assert found is not None, "complete lists always certify"
    return found


def replay_prefixes(
    prefixes: Sequence[NDArray[np.int32]],
    lengths: Sequence[int],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
) -> Replay | None:
    """As `replay`, from the first documents of every channel alone; None if they do not suffice.

    Args:
        prefixes: C arrays, each the beginning of a channel (all of it, if it is that long).
        lengths: how long each channel is.

    The bound on what a channel's unread items contribute needs its length, never its items, so the
    result is that of `replay` on the complete lists.
    """
    terms = checked(prefixes, weights, kappa)
    sizes = [prefix.size for prefix in prefixes]
    assert all(size <= length for size, length in zip(sizes, lengths, strict=True))
    if sizes == list(lengths):
        return replay(prefixes, weights, kappa, k)
    scale = terms.scale(max(lengths))
    if scale is None:  # beyond the kernels' integers: only complete lists
        return None
    top = _unknown(min(k, sum(lengths)))
    if k == 0:
        return _stopped([0] * len(sizes), lengths, top)
    numbers, small = None, prefixes
    if max(int(prefix.max(initial=0)) for prefix in prefixes) >= SCRATCH_DOCUMENTS:
        numbers, small = renumbered(prefixes)
    found = _certified(small, sizes, lengths, terms, scale, top, known=False)
    if found is None or numbers is None:
        return found
    return replace(found, topk=numbers[found.topk])


def _certified(
    channels: Sequence[NDArray[np.int32]],
    sizes: Sequence[int],
    lengths: Sequence[int],
    terms: RrfConstants,
    scale: NDArray[np.int64],
    top: NDArray[np.int32],
    known: bool,
) -> Replay | None:
    """The stop of a replay that sees `sizes` of the `lengths` items of every channel; None if it
    needs more.
    """
    state_4C = np.zeros((4, len(sizes)), np.int32)
    state_4C[LENGTHS] = lengths
    longest, workspace = max(sizes), _workspace
    prefix, documents = longest if known else FIRST_PREFIX, 1 + int(top.max()) if known else 1
    scale = scale.copy()
    scale[BASE] = workspace.base
    try:
        while True:
            lists_CP = workspace.lists(len(sizes), min(prefix, longest))
            shares_CR = terms.shares(min(prefix, longest))
            for c, (channel, size) in enumerate(zip(channels, sizes, strict=True)):
                given = min(size, prefix)
                lists_CP[c, :given] = channel[:given]
                state_4C[GIVEN, c] = given
            ranks_NC, low_N, chosen_N = workspace.over_documents(documents, len(sizes))
            status = certify(
                lists_CP, state_4C, scale, top, known, ranks_NC, shares_CR, low_N, chosen_N
            )
            if status == TOO_NARROW:
                documents = 1 + max(int(channel[:prefix].max(initial=0)) for channel in channels)
                continue
            if status != TOO_SHORT or prefix >= longest:
                break
            prefix *= 4
    finally:
        workspace.leave(longest)
    if status == TOO_SHORT:
        return None
    if status <= BROKEN:
        raise DesaError(
            "a document number is negative or is listed twice",
            where=f"channel {BROKEN - status}",
        )
    return _stopped(state_4C[SEEN].tolist(), lengths, top[:status])


def _unknown(k: int) -> NDArray[np.int32]:
    top = np.empty(k, np.int32)
    top.fill(-1)
    return top


def _stopped(seen: Sequence[int], lengths: Sequence[int], topk: NDArray[np.int32]) -> Replay:
    return Replay(tuple(seen), tuple(map(eq, seen, lengths)), sum(seen), topk)
