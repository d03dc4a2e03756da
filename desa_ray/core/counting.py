"""Ranks by counting: the ranks of some documents with known scores, without sorting the ranking
(method.md section 6.14).

A ranking orders documents by score descending, ties by number, so a document's rank is 1 and the
number of documents whose (score, number) comes before its own. One pass over all scores, in blocks
of any size and order, counts that for all documents that are asked for: they are kept best first, a
table of buckets says in one step near which of them a score falls, and the counts of blocks or
machines add up.

Legend: W documents asked for, n documents of a block, B buckets.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from desa_ray.core.arrays import Float64s, Int32s, Int64s
from desa_ray.errors import DesaError

BUCKETS = 4  # for each document asked for


class Counting:
    """How many documents precede each of W given ones; asked for once, counted block by block."""

    def __init__(self, documents: NDArray[np.int32], scores: NDArray[np.floating]):
        """Args: int32 [W] distinct numbers; their scores, as the blocks will have them."""
        self._order = np.lexsort((documents, -scores))
        self._documents_W = np.ascontiguousarray(documents[self._order], np.int32)
        self._scores_W = scores[self._order].astype(np.float64) + 0.0
        if np.isnan(self._scores_W).any():
            raise DesaError("a score is not a number")
        finite = self._scores_W[np.isfinite(self._scores_W)]
        high, low = (finite[0], finite[-1]) if finite.size else (0.0, 0.0)
        buckets = max(1, BUCKETS * finite.size)
        step = buckets / (high - low) if high > low and np.isfinite(high - low) else 0.0
        own = ((high - finite) * step).astype(np.int64)
        first = np.searchsorted(own, np.arange(buckets + 2))
        self._first_B = first + np.count_nonzero(self._scores_W == np.inf)
        self._scale = np.array([high, low, step])
        self._passed_W = np.zeros(documents.size + 1, np.int64)

    def add(self, documents: NDArray[np.int32], scores: NDArray[np.floating]) -> None:
        """Counts the documents of a block, int32 [n] and float32 or float64 [n]."""
        if self._documents_W.size:
            _count(
                documents,
                scores.astype(np.float64),  # one type for the kernel
                self._documents_W,
                self._scores_W,
                self._first_B,
                self._scale,
                self._passed_W,
            )

    def counts(self) -> NDArray[np.int64]:
        """int64 [W], as the documents were given: how many of those added precede each."""
        counts = np.empty(self._order.size, np.int64)
        counts[self._order] = np.cumsum(self._passed_W)[:-1]
        return counts


@njit(cache=True, nogil=True)
def _count(
    documents: Int32s,
    scores: Float64s,
    documents_W: Int32s,
    scores_W: Float64s,
    first_B: Int64s,
    scale: Float64s,
    passed_W: Int64s,
) -> None:
    """Adds one, for each document, at the first place of those asked for that it precedes.

    `first_B[b]` is how many of those asked for lie in buckets before b: a bucket before a score's
    own holds higher scores alone, because rounding keeps the order.
    """
    asked, high, low, step = scores_W.size, scale[0], scale[1], scale[2]
    behind = first_B[first_B.size - 1]  # from here on scores of minus infinity
    for i in range(scores.size):
        score = scores[i]
        if score < low:
            if behind == asked:
                continue
            place = behind
        elif score > high:
            place = np.int64(0)
        else:
            place = first_B[np.int64((high - score) * step)]
        while place < asked and (
            scores_W[place] > score
            or (scores_W[place] == score and documents_W[place] <= documents[i])
        ):
            place += 1
        passed_W[place] += 1
