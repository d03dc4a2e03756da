"""Ranked prefixes: the first documents of a ranking without ordering all the others (method.md
section 6.8).

A scored document is one 64-bit key: 32 bits that ascend where float32 scores descend, then the
document's number. So ascending keys are the ranking, ties included, and a prefix is the smallest
keys. Blocks of documents may come in any order, from any shard or machine: what each keeps is
enough, and prefixes of parts merge by keeping the smallest again.

`TopK` looks at every score once and compares it with a threshold, the worst key kept so far; all
documents at or above it are kept, in a buffer of twice the prefix, which is cut back to the prefix
whenever it is full.

Legend: Q queries, n documents of a block, M keys of a buffer.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from desa_ray.core.arrays import Float32s, Integer, UInt32s
from desa_ray.errors import DesaError

Keys = NDArray[np.uint64]
EVERYTHING = np.uint64(0xFFFFFFFFFFFFFFFF)


class TopK:
    """The `depth` best documents of each of Q queries, gathered block by block."""

    def __init__(self, queries: int, depth: int, documents: int):
        """Args: `depth` >= 1; `documents`, how many there are in all (an upper bound)."""
        self.depth = depth
        self._keys_QM = np.empty((queries, max(1, min(2 * depth, documents))), np.uint64)
        self._counts_Q = np.zeros(queries, np.int64)
        self._limits_Q = np.full(queries, EVERYTHING)

    def add(self, scores_Qn: NDArray[np.float32], first: int) -> None:
        """Takes in the scores of documents first .. first + n - 1.

        Raises:
            DesaError: a score is NaN.
        """
        scores_Qn = np.ascontiguousarray(scores_Qn)
        for row, scores in enumerate(scores_Qn):
            guess = EVERYTHING
            if self._counts_Q[row] == 0 and scores.size > 8 * self.depth:
                guess = _guess(scores, self.depth)
            if not self._keep(row, scores, first, guess):
                raise DesaError("a score is not a number", where=f"query row {row}")

    def _keep(self, row: int, scores: NDArray[np.float32], first: int, guess: np.uint64) -> bool:
        """Keeps what may belong to the best of a query; false where a score is not a number."""
        limit = min(guess, self._limits_Q[row])
        count, reached = _keep(
            scores, first, self.depth, self._keys_QM[row], self._counts_Q[row], limit
        )
        if 0 <= count < self.depth and limit < self._limits_Q[row]:  # the guess let too few pass
            return self._keep(row, scores, first, EVERYTHING)
        self._counts_Q[row] = count
        self._limits_Q[row] = reached if count >= self.depth else EVERYTHING
        return bool(count >= 0)

    def keys(self, row: int) -> Keys:
        """uint64 [min(depth, n)]: what is kept of a query, best first."""
        return np.sort(self._keys_QM[row, : self._counts_Q[row]])[: self.depth]


def documents_of(keys: Keys) -> NDArray[np.int32]:
    """int32: the document numbers behind keys."""
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.int32)


def scores_of(keys: Keys) -> NDArray[np.float32]:
    """float32: the scores behind keys."""
    high = (keys >> np.uint64(32)).astype(np.uint32)
    return np.where(high >> 31, high, high ^ np.uint32(0x7FFFFFFF)).view(np.float32)


def best_hits(
    docs: NDArray[np.int32], scores: NDArray[np.floating], depth: int
) -> tuple[NDArray[np.int32], NDArray[np.floating]]:
    """The first `depth` hits of a list and their scores, by score descending, ties by number.

    Args:
        docs: int32 [S], ascending.
        scores: float32 or float64 [S].

    Raises:
        DesaError: a score is NaN.
    """
    if np.isnan(scores).any():
        raise DesaError("a score is not a number")
    if docs.size > depth:
        threshold = np.partition(scores, docs.size - depth)[docs.size - depth]
        kept = np.flatnonzero(scores >= threshold)  # all ties with it: numbers decide among them
        docs, scores = docs[kept], scores[kept]
    order = np.argsort(-scores, kind="stable")[:depth]
    return docs[order], scores[order]


def _guess(scores: NDArray[np.float32], depth: int) -> np.uint64:
    """A limit that lets somewhat more than `depth` of the scores pass, from every so-many-th one of
    them.
    """
    sample = np.sort(scores[:: max(1, scores.size // 1024)])
    expected = depth * sample.size / scores.size
    place = sample.size - 1 - int(1.25 * expected + 3 * expected**0.5 + 4)
    if place < 0 or np.isnan(sample[place]):
        return EVERYTHING
    bits = (sample[place : place + 1] + np.float32(0)).view(np.uint32)[0]
    high = bits if bits >> 31 else bits ^ np.uint32(0x7FFFFFFF)
    return np.uint64(high) << np.uint64(32) | np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _keep(
    scores_n: Float32s,
    first: Integer,
    depth: Integer,
    keys_M: Keys,
    count: Integer,
    limit: np.uint64,
) -> tuple[Integer, np.uint64]:
    """Appends the keys up to `limit`, which moves as better ones come; returns how many there are,
    and the limit.

    A count of -1 says that a score is not a number.
    """
    bits_n = scores_n.view(np.uint32)
    floor = np.empty(1, np.uint32)
    _set_floor(floor, limit)
    floors = floor.view(np.float32)
    for i in range(scores_n.size):
        score = scores_n[i]
        if score < floors[0]:
            continue
        if np.isnan(score):
            return -1, limit
        bits = bits_n[i]
        if bits == np.uint32(0x80000000):
            bits = np.uint32(0)  # -0 ranks as 0
        high = bits if bits & np.uint32(0x80000000) else bits ^ np.uint32(0x7FFFFFFF)
        key = (np.uint64(high) << np.uint64(32)) | np.uint64(first + i)
        if key > limit:
            continue
        keys_M[count] = key
        count += 1
        if count == keys_M.size and count > depth:
            limit = _cut_back(keys_M, depth)
            _set_floor(floor, limit)
            count = depth
    return count, limit


@njit(cache=True, nogil=True)
def _set_floor(floor: UInt32s, limit: np.uint64) -> None:
    """Sets `floor` to the bits of the score behind a key; -inf for the limit that lets everything
    pass.
    """
    high = np.uint32(limit >> np.uint64(32))
    if limit == np.uint64(0xFFFFFFFFFFFFFFFF):
        floor[0] = np.uint32(0xFF800000)
    else:
        floor[0] = high if high & np.uint32(0x80000000) else high ^ np.uint32(0x7FFFFFFF)


@njit(cache=True, nogil=True)
def _cut_back(keys: Keys, depth: Integer) -> np.uint64:
    """Moves the `depth` smallest keys to the front and returns the largest of these (quickselect,
    Hoare).
    """
    low, high, kth = 0, keys.size - 1, depth - 1
    while low < high:
        a, b, c = keys[low], keys[(low + high) >> 1], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if kth <= j:
            high = j
        elif kth >= i:
            low = i
        else:
            break
    return keys[kth]
