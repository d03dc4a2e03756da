"""Complete fusion: the exact order of all documents by F descending, ties by number (SPEC section 6).

Float64 scores pick and presort the documents; neighbours that floats cannot tell apart are then put in order exactly.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

import numpy as np
from numba import njit
from numpy.typing import NDArray

from desa_ray.core import wide
from desa_ray.core.compare import NEAR, P, Q, checked, precedes, scaled
from desa_ray.errors import DesaError


def fuse_order(
    channels: Sequence[NDArray[np.int32]], weights: Sequence[Fraction], kappa: Fraction, m: int | None = None
) -> NDArray[np.int32]:
    """The first m documents (all of them for None) of the complete exact fused order.

    Args:
        channels: C arrays of distinct document numbers, best first; any may be empty.
        weights: one exact rational > 0 a channel.
        kappa: an exact rational > -1.

    Returns:
        int32 [min(m, size of the union)], best first.

    Raises:
        DesaError: a weight or kappa out of range, a negative number, a document twice in one channel.
    """
    checked(channels, weights, kappa)
    union_bound = sum(channel.size for channel in channels)
    m = union_bound if m is None else min(m, union_bound)
    if m <= 0:
        return np.empty(0, np.int32)
    scale = scaled(weights, kappa, max(channel.size for channel in channels))
    if scale is None:
        return wide.fuse_order(channels, weights, kappa, m)
    ranks_NC = rank_matrix(channels)
    scores_N = _scores(ranks_NC, scale)
    order = _above(scores_N, m)
    order = order[np.argsort(-scores_N[order], kind="stable")]
    _settle(order, scores_N, np.array([channel.size for channel in channels], np.int32), ranks_NC, scale)
    return order[:m]


def exact_score(ranks: Sequence[int], weights: Sequence[Fraction], kappa: Fraction) -> Fraction:
    """F of one document from its ranks in the C channels, 0 = absent."""
    return sum((weight / (kappa + rank) for rank, weight in zip(ranks, weights, strict=True) if rank), Fraction(0))


def rank_matrix(channels: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """int32 [N, C]: rank from 1 of every document number in every channel, 0 = absent."""
    documents = 1 + max(int(channel.max(initial=-1)) for channel in channels)
    ranks_NC = np.zeros((documents, len(channels)), np.int32)
    for c, channel in enumerate(channels):
        frozen = np.asarray(channel).view()
        frozen.setflags(write=False)  # one array type for numba, whether made or mapped
        bad = _fill(ranks_NC, c, frozen) if frozen.min(initial=0) >= 0 else int(frozen.min())
        if bad is not None:
            raise DesaError(f"document number {bad} is negative or stands there twice", where=f"channel {c}")
    return ranks_NC


@njit(cache=True, nogil=True)
def _fill(ranks_NC, c, channel):
    """Writes the ranks of one channel; returns a document that it holds twice, else None."""
    for i in range(channel.size):
        if ranks_NC[channel[i], c] > 0:
            return channel[i]
        ranks_NC[channel[i], c] = i + 1
    return None


@njit(cache=True, nogil=True, error_model="numpy")
def _scores(ranks_NC, scale):
    """float64 [N]: F up to a constant factor and rounding; 0 exactly where a document is in no channel."""
    p, q = scale[P], scale[Q]
    scores_N = np.zeros(ranks_NC.shape[0])
    for d in range(ranks_NC.shape[0]):
        for c in range(ranks_NC.shape[1]):
            if ranks_NC[d, c] > 0:
                scores_N[d] += scale[c] / (p + q * ranks_NC[d, c])
    return scores_N


def _above(scores_N: NDArray[np.float64], m: int) -> NDArray[np.int32]:
    """Numbers, ascending, of a superset of the m best: the m-th best of a sample is a floor for that of all."""
    sample = scores_N[:: max(1, isqrt(scores_N.size // m))]
    floor = np.partition(sample, -m)[-m] * (1 - NEAR) if m <= sample.size else 0.0
    return np.flatnonzero((scores_N >= floor) & (scores_N > 0)).astype(np.int32)


@njit(cache=True, nogil=True)
def _settle(order, scores_N, lengths, ranks_NC, scale):
    """Insertion sort by the exact order; moves only among neighbours whose float scores are within 1e-12."""
    for i in range(1, order.size):
        j = i
        while j > 0:
            before, after = np.int64(order[j - 1]), np.int64(order[j])
            if scores_N[before] > scores_N[after] * (1 + NEAR):
                break
            if precedes(before, after, lengths, lengths, ranks_NC, scale):
                break
            order[j - 1], order[j] = after, before
            j -= 1
