"""Complete fusion: the exact order of all documents by F descending, ties broken by number
(method.md section 6).

Float64 scores pick and presort the documents; neighbours that floats cannot tell apart are then put
in order exactly. If only the head of the order is wanted, the ranks of every document are found,
but only the scores of those that can belong to it: a document after rank L in every channel gains
at most the sum of the shares of rank L + 1.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.arrays import Integer
from desa_ray.core.fusion import reference
from desa_ray.core.fusion.cutoffs import CUTOFFS, cut, prefix_tops, renumbered
from desa_ray.core.fusion.exact import NEAR, P, Q, checked
from desa_ray.core.fusion.rrf_kernels import (
    fill_ranks,
    place_ranks,
    prefix_heads,
    score_heads,
    settle,
)
from desa_ray.core.ranking import radix_sort
from desa_ray.errors import DesaError

SPARE = 8  # a head shorter than this part of a channel is found among the channels' heads
KEPT_K = 256  # a larger top k is sorted whole instead of being kept sorted


def fuse_order(
    channels: Sequence[NDArray[np.int32]],
    weights: Sequence[Fraction],
    kappa: Fraction,
    m: int | None = None,
) -> NDArray[np.int32]:
    """The first m documents (all of them for None) of the complete exact fused order.

    Args:
        channels: C arrays of distinct document numbers, best first; any may be empty.
        weights: one exact rational > 0 per channel.
        kappa: an exact rational > -1.

    Returns:
        int32 [min(m, size of the union)], best first.

    Raises:
        DesaError: a weight or kappa out of range, a negative number, a document twice in one
            channel.
    """
    terms = checked(channels, weights, kappa)
    union_bound = sum(channel.size for channel in channels)
    m = union_bound if m is None else min(m, union_bound)
    if m <= 0:
        return np.empty(0, np.int32)
    scale = terms.scale(max(channel.size for channel in channels))
    if scale is None:
        return reference.fuse_order(channels, weights, kappa, m)
    return _ordered(channels, scale, m)[0]


def fuse_with_prefixes(
    channels: Sequence[NDArray[np.int32]],
    weights: Sequence[Fraction],
    kappa: Fraction,
    m: int | None,
    k: int,
    cutoffs: Sequence[int] = CUTOFFS,
) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
    """`fuse_order`, and `desa_ray.core.fusion.cutoffs.prefix_tops` of the same channels, from one
    matrix of ranks.
    """
    terms = checked(channels, weights, kappa)
    longest = max(channel.size for channel in channels)
    scale = terms.scale(longest)
    if scale is None or k > KEPT_K or not cutoffs or not longest:
        return fuse_order(channels, weights, kappa, m), prefix_tops(
            fuse_order, channels, weights, kappa, k, cutoffs
        )
    sizes = np.array([channel.size for channel in channels], np.int32)
    order, ranks_NC = _ordered(
        channels, scale, int(sizes.sum()) if m is None else min(m, int(sizes.sum()))
    )
    lengths = np.minimum(sizes, np.array(cutoffs, np.int32)[:, None])
    heads = cut(channels, max(cutoffs))
    starts = np.cumsum([0, *(head.size for head in heads[:-1])])
    tops = np.full((len(cutoffs), max(k, 0)), -1, np.int32)
    prefix_heads(np.concatenate(heads), starts, ranks_NC, lengths, scale, tops)
    return order, [top[top >= 0] for top in tops]


def fuse_prefixes(
    channels: Sequence[NDArray[np.int32]],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
    cutoffs: Sequence[int] = CUTOFFS,
) -> list[NDArray[np.int32]]:
    """`desa_ray.core.fusion.cutoffs.prefix_tops` of this fusion; costs what the prefixes hold, not
    the collection.
    """
    numbers, small = renumbered(cut(channels, max(cutoffs, default=0)))
    return [numbers[top] for top in fuse_with_prefixes(small, weights, kappa, 0, k, cutoffs)[1]]


def exact_score(ranks: Sequence[int], weights: Sequence[Fraction], kappa: Fraction) -> Fraction:
    """F of one document from its ranks in the C channels, 0 = absent."""
    return sum(
        (weight / (kappa + rank) for rank, weight in zip(ranks, weights, strict=True) if rank),
        Fraction(0),
    )


def rank_matrix(channels: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """int32 [N, C]: rank from 1 of every document number in every channel, 0 = absent."""
    documents = 1 + max(int(channel.max(initial=-1)) for channel in channels)
    ranks_NC = np.zeros((documents, len(channels)), np.int32)
    for c, channel in enumerate(channels):
        _refuse(
            c,
            (
                place_ranks(ranks_NC, c, _frozen(channel))
                if channel.min(initial=0) >= 0
                else int(channel.min())
            ),
        )
    return ranks_NC


def _ordered(
    channels: Sequence[NDArray[np.int32]], scale: NDArray[np.int64], m: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The m first documents of the fused order, 0 <= m <= the size of all channels; and
    `rank_matrix`.
    """
    if SPARE * m < max(channel.size for channel in channels):
        ranks_NC = rank_matrix(channels)
        documents, scores_N = _heads(channels, ranks_NC, scale, m)
    else:
        ranks_NC, scores_N = _ranked(channels, scale)
        documents = _above(scores_N, m)
    order = _descending(documents, scores_N)
    settle(
        order, scores_N, np.array([channel.size for channel in channels], np.int32), ranks_NC, scale
    )
    return order[:m], ranks_NC


def _heads(
    channels: Sequence[NDArray[np.int32]],
    ranks_NC: NDArray[np.int32],
    scale: NDArray[np.int64],
    m: int,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Numbers, ascending, of a superset of the m best; and float64 [N], which holds their scores
    and else nothing.
    """
    scores_N = np.empty(ranks_NC.shape[0])
    length, longest = 2 * m, max(channel.size for channel in channels)
    while m > 0:
        heads = cut(channels, length)
        sizes = np.array([head.size for head in heads], np.int32)
        found = np.empty(sizes.sum(), np.int32)
        found = found[
            : score_heads(
                np.concatenate(heads),
                np.cumsum(sizes) - sizes,
                sizes,
                ranks_NC,
                scale,
                scores_N,
                found,
            )
        ]
        scores = scores_N[found]
        unread = [c for c, channel in enumerate(channels) if channel.size > length]
        behind = sum(float(scale[c]) / float(scale[P] + scale[Q] * (length + 1)) for c in unread)
        floor = np.partition(scores, -m)[-m] * (1 - NEAR) if m <= scores.size else 0.0
        if behind < floor * (1 - NEAR) or length >= longest:
            return np.sort(found[scores >= floor]), scores_N
        length *= 2
    return np.empty(0, np.int32), scores_N


def _frozen(channel: NDArray[np.int32]) -> NDArray[np.int32]:
    """One array type for numba, whether the channel was made or mapped."""
    frozen = np.asarray(channel).view()
    frozen.setflags(write=False)
    return frozen


def _refuse(c: int, bad: Integer | None) -> None:
    if bad is not None:
        raise DesaError(
            f"document number {bad} is negative or is listed twice", where=f"channel {c}"
        )


def _ranked(
    channels: Sequence[NDArray[np.int32]], scale: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """`rank_matrix`; and float64 [N], F up to a constant factor and rounding, 0 where a document is
    in no channel.
    """
    documents = 1 + max(int(channel.max(initial=-1)) for channel in channels)
    ranks_NC, scores_N = np.zeros((documents, len(channels)), np.int32), np.zeros(documents)
    for c, channel in enumerate(channels):
        fits = channel.min(initial=0) >= 0
        _refuse(
            c,
            (
                fill_ranks(ranks_NC, scores_N, c, _frozen(channel), scale)
                if fits
                else int(channel.min())
            ),
        )
    return ranks_NC, scores_N


def _above(scores_N: NDArray[np.float64], m: int) -> NDArray[np.int32]:
    """Numbers, ascending, of a superset of the m best: the m-th best of a sample is a floor for
    that of all.
    """
    sample = scores_N[:: max(1, isqrt(scores_N.size // m))]
    floor = np.partition(sample, -m)[-m] * (1 - NEAR) if m <= sample.size else 0.0
    return np.flatnonzero((scores_N >= floor) & (scores_N > 0)).astype(np.int32)


def _descending(documents: NDArray[np.int32], scores_N: NDArray[np.float64]) -> NDArray[np.int32]:
    """Documents, given by ascending number, by their scores > 0 descending; radix sort of the low
    and high halves.
    """
    bits = ~scores_N[documents].view(np.uint64)  # positive floats ascend as their bits do
    by_low = np.empty(documents.size, np.int32)
    radix_sort(bits.astype(np.uint32), np.arange(documents.size, dtype=np.int32), by_low)
    order = np.empty_like(by_low)
    radix_sort((bits >> np.uint64(32)).astype(np.uint32)[by_low], by_low, order)
    return documents[order]
