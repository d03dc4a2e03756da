"""Depths other than the certification depth: with random access, and without a reading order
(method.md section 6.15).

`threshold_depths` reads in S6's order too, but looks up all ranks of a document as soon as it sees
it (the threshold algorithm of Fagin, Lotem and Naor, 2003). `least_depths` asks for no order at
all: which pairs of depths of two lists certify the ordered top K, and which of them is smallest.

Legend: C channels, W documents, N documents of all lists.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion import reference
from desa_ray.core.fusion.access_kernels import staircase
from desa_ray.core.fusion.counted import head_of
from desa_ray.core.fusion.exact import NEAR, constants_of
from desa_ray.core.fusion.rrf import exact_score, fuse_order, rank_matrix

Lists = Sequence[NDArray[np.int32]]


@dataclass(frozen=True)
class Least:
    """The least certifying depths of two lists.

    Attributes:
        depths: the pair of least sum, of equal sums the one with the smaller first depth.
        pairs: how many minimal pairs there are, none of which is below another in both depths.
    """

    depths: tuple[int, int]
    pairs: int


def threshold_depths(
    ranks_WC: NDArray[np.int32],
    lengths: Sequence[int],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
) -> tuple[int, ...]:
    """Items read of every channel when the threshold algorithm stops.

    It reads in S6's order and knows all ranks of what it saw. It stops as soon as it saw K
    documents and the K-th best of them has F > the sum of all u_c, strictly, since an unseen
    document of equal score may have a smaller number; or when everything is read.

    Args:
        ranks_WC: int32 [W, C], the ranks in the whole channels, 0 where one lacks it, of the
            documents within rank m of some channel (`desa_ray.core.fusion.counted.head_of`), or of
            more.
        lengths: how long the channels are.
    """
    if k == 0:
        return (0,) * len(lengths)
    reads = head_of(lengths, weights, kappa, k).reads
    # a length matters only as far as it says what is open
    ends = tuple(min(length, read + 1) for length, read in zip(lengths, reads, strict=True))
    bounds, states = _reading(reads, ends, tuple(weights), kappa)
    floats = np.array(bounds, float)
    ready: list[int] = []
    all_ranks: list[list[int]] = ranks_WC.tolist()
    for ranks in all_ranks:
        places = [int(np.searchsorted(states[:, c], r)) for c, r in enumerate(ranks) if r]
        seen = min(places, default=len(bounds))
        if seen < len(bounds):
            score = exact_score(ranks, weights, kappa)
            step = int(np.count_nonzero(floats > float(score) * (1 + NEAR)))
            while step < len(bounds) and bounds[step] >= score:
                step += 1
            ready.append(max(seen, step))
    ready.sort()
    if len(ready) < k or ready[k - 1] == len(bounds):
        return tuple(lengths)
    return tuple(states[ready[k - 1]].tolist())


@lru_cache(maxsize=8)
def _reading(
    limits: tuple[int, ...],
    lengths: tuple[int, ...],
    weights: tuple[Fraction, ...],
    kappa: Fraction,
) -> tuple[list[Fraction], NDArray[np.int64]]:
    """The sum of all u_c, and the items read of each channel (int64 [steps, C]), before the first
    read and after each one until `limits` are read, a state of S6's order.
    """
    turns = reference.reading(limits, weights, kappa)
    steps = np.zeros((len(turns) + 1, len(limits)), np.int64)
    steps[np.arange(1, len(turns) + 1), turns] = 1
    states = steps.cumsum(axis=0)
    bounds: list[Fraction] = []
    for state in states.tolist():
        unread = (
            reference.unread_bound(weight, kappa, read)
            for weight, read, length in zip(weights, state, lengths, strict=True)
            if read < length
        )
        bounds.append(sum(unread, Fraction(0)))
    return bounds, states


def least_depths(
    channels: Lists, weights: Sequence[Fraction], kappa: Fraction, k: int
) -> Least | None:
    """The least depths that certify the ordered top k of two channels, in whatever order they are
    read; None for another number of channels, and for constants beyond the kernels' integers.

    Certifying pairs of depths form an up-set (S11, S12), so its border is a staircase, which is
    walked from the end of the first list to its beginning.
    """
    if len(channels) != 2:
        return None
    sizes = [channel.size for channel in channels]
    top = fuse_order(channels, weights, kappa, k)
    if k == 0 or sum(sizes) == 0:
        return Least((0, 0), 1)
    if top.size < k:  # all must be read to know that there are no more
        return Least((sizes[0], sizes[1]), 1)
    scale = constants_of(weights, kappa).scale(max(sizes))
    if scale is None:
        return None
    ranks_NC = rank_matrix(channels)
    others_N = np.ones(ranks_NC.shape[0], np.bool_)
    others_N[top] = False
    # of the other documents, the best rank in a list among those behind each place of the other one
    nearest = np.full((2, max(sizes) + 2), -1, np.int32)
    for c in range(2):
        _nearest(nearest[c], channels[c], ranks_NC[:, 1 - c], others_N, sizes[1 - c])
    rivals = _rivals(ranks_NC, top, others_N, weights, kappa)
    found = np.zeros(3, np.int64)
    staircase(top, rivals, nearest, ranks_NC, np.array(sizes, np.int32), scale, found)
    return Least((int(found[0]), int(found[1])), int(found[2]))


def _nearest(
    nearest: NDArray[np.int32],
    channel: NDArray[np.int32],
    elsewhere_N: NDArray[np.int32],
    others_N: NDArray[np.bool_],
    size: int,
) -> None:
    """Fills in, for each number of items read of the other list, the first document of `channel`
    that is not in the top and not read there; -1 where there is none.
    """
    own = channel[others_N[channel]]
    places = elsewhere_N[own]  # rank there; 0: never read there
    places = np.where(places == 0, size + 1, places)
    first = np.full(size + 2, own.size, np.int64)
    np.minimum.at(first, places, np.arange(own.size))
    # a document at rank r there is unread while fewer than r items are read
    first = np.minimum.accumulate(first[::-1])[::-1]
    there = np.flatnonzero(first[1:] < own.size)
    nearest[there] = own[first[1:][there]]


def _rivals(
    ranks_NC: NDArray[np.int32],
    top: NDArray[np.int32],
    others_N: NDArray[np.bool_],
    weights: Sequence[Fraction],
    kappa: Fraction,
) -> NDArray[np.int32]:
    """The documents outside the top that may score as much as one contribution of its last member,
    by score descending, up to rounding: they matter while the other one is not read.
    """
    weights_C, constant = np.array([float(w) for w in weights]), float(kappa)
    shares_NC = np.where(ranks_NC > 0, weights_C / (constant + np.maximum(ranks_NC, 1)), 0.0)
    own = shares_NC[top[-1]]
    least = own[own > 0].min()
    scores_N = shares_NC.sum(axis=1)
    found = np.flatnonzero(others_N & (scores_N >= least * (1 - 1e-9)))
    return found[np.argsort(-scores_N[found], kind="stable")].astype(np.int32)
