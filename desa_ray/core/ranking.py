"""Complete rankings: scores that are the same on every machine, and one order for them (method.md
sections 3 and 4).

int26 scoring rounds every component to a multiple of 2^-26 and multiplies these integers in
float64. Norms of at most 1.001 keep every partial sum below 2^53, so the sum is exact in whatever
order a library adds, on any number of threads; one rounding to float32 follows. Documents are
ordered by score descending, ties by number, with a stable radix sort.

Legend: Q queries, N documents, D dimensions, S hits.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from desa_ray.core.arrays import Int32s, UInt32s
from desa_ray.errors import DesaError

BITS = 26
LARGEST_NORM = 1.001


def quantise(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """rint(v 2^26) of float32 [..., D] vectors of norm <= 1.001, as whole numbers in float64."""
    integers = vectors.astype(np.float64)
    integers *= 2.0**BITS  # exact, as a power of two
    np.rint(integers, out=integers)
    squares = np.einsum("...d,...d->...", integers, integers)
    assert bool(np.all(squares <= (LARGEST_NORM * 2.0**BITS) ** 2)), (
        "a vector is longer than 1.001 or not finite"
    )
    return integers


def exact_scores(
    queries_QD: NDArray[np.float64], documents_ND: NDArray[np.float64]
) -> NDArray[np.float32]:
    """float32 [Q, N] dot products of quantised vectors: the same bits for any batch, library and
    threads; no -0.
    """
    return ((queries_QD @ documents_ND.T) * 2.0 ** (-2 * BITS) + 0.0).astype(np.float32)


def float32_scores(
    queries_QD: NDArray[np.float32], documents_ND: NDArray[np.float32]
) -> NDArray[np.float32]:
    """float32 [Q, N] dot products by plain float32 BLAS: faster; last bits depend on batch, library
    and machine.
    """
    return queries_QD @ documents_ND.T


def complete_order(scores_QN: NDArray[np.float32]) -> NDArray[np.int32]:
    """int32 [Q, N]: all documents of every row, by score descending, ties by number.

    Raises:
        DesaError: a score is NaN.
    """
    order_QN = np.empty(scores_QN.shape, np.int32)
    for row, scores in enumerate(scores_QN):
        if np.isnan(scores).any():
            raise DesaError("a score is not a number", where=f"query row {row}")
        radix_sort(score_bits(scores), np.arange(scores.size, dtype=np.int32), order_QN[row])
    return order_QN


def sparse_order(docs: NDArray[np.int32], scores: NDArray[np.floating]) -> NDArray[np.int32]:
    """int32 [S]: hits, given by ascending number, by score descending, ties by number; those that
    scored 0 come last.

    Raises:
        DesaError: a score is NaN.
    """
    if np.isnan(scores).any():
        raise DesaError("a score is not a number")
    return docs[np.argsort(-scores, kind="stable")]


def score_bits(scores: NDArray[np.float32]) -> NDArray[np.uint32]:
    """uint32: keys whose ascending order is the scores' descending order; -0 and 0 share one."""
    bits = (scores + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, bits, bits ^ np.uint32(0x7FFFFFFF))


@njit(cache=True, nogil=True)
def radix_sort(keys: UInt32s, values: Int32s, result: Int32s) -> None:
    """Writes the values by ascending key, stably: radix sort by 11, 11 and 10 bits. Keys and values
    are overwritten.
    """
    counts = np.zeros((3, 2048), np.int64)
    for key in keys:
        counts[0, key & 2047] += 1
        counts[1, (key >> 11) & 2047] += 1
        counts[2, key >> 22] += 1
    other_keys = np.empty_like(keys)
    for turn in range(3):
        place = 0
        for digit in range(2048):
            place, counts[turn, digit] = place + counts[turn, digit], place
        target = result if turn != 1 else values
        source = values if turn != 1 else result
        for i in range(keys.size):
            digit = (keys[i] >> (11 * turn)) & 2047
            place = counts[turn, digit]
            counts[turn, digit] = place + 1
            other_keys[place] = keys[i]
            target[place] = source[i]
        keys, other_keys = other_keys, keys
