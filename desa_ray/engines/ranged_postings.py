"""Postings of consecutive ranges of documents, with the statistics of them all.

Each range is an index of its own, made by whoever took it. Frequencies of terms, the number of
documents and their length are counted over all ranges, so that a document's score does not depend
on where ranges begin (method.md section 4).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numba import njit
from numpy.typing import NDArray

from desa_ray.engines.postings import Postings

Words = tuple[NDArray[np.uint8], NDArray[np.int64]]  # bytes end to end, and where each word begins


@dataclass(frozen=True, eq=False)
class CorpusStatistics:
    """What a score needs of the whole corpus beside the document's own postings.

    Attributes:
        terms: uint8 [B], the T terms' UTF-8 bytes end to end, terms in byte order.
        term_offsets: int64 [T+1], where each term starts in `terms`.
        indptr: int64 [T+1]; a term occurs in as many documents as its place and the next differ by.
        doc_count: number of documents with at least one term.
        sum_total_term_freq: number of term occurrences in all documents.
    """

    terms: np.ndarray
    term_offsets: np.ndarray
    indptr: np.ndarray
    doc_count: int
    sum_total_term_freq: int

    def __post_init__(self) -> None:
        for name in ("terms", "term_offsets", "indptr"):
            array = np.ascontiguousarray(getattr(self, name)).view()
            array.setflags(write=False)  # one array type for numba
            object.__setattr__(self, name, array)

    def documents_with(self, term: str) -> int:
        """How many documents hold the term."""
        place = places_of(words([term.encode()]), self.terms, self.term_offsets)[0]
        return int(self.indptr[place + 1] - self.indptr[place]) if place >= 0 else 0


class RangedPostings:
    """Postings of N documents in ranges, each opened when it is first needed.

    Args:
        statistics: those of all ranges together.
        edges: where each range begins, and where the last one ends.
        read: opens a range by its number; its documents count from 0.
    """

    def __init__(
        self, statistics: CorpusStatistics, edges: Sequence[int], read: Callable[[int], Postings]
    ):
        self.statistics, self.edges, self._read = statistics, list(edges), read
        self._open: dict[int, Postings] = {}

    @classmethod
    def whole(cls, postings: Postings) -> "RangedPostings":
        """Postings of one range."""
        numbers = postings.doc_count, postings.sum_total_term_freq
        lists = postings.terms, postings.term_offsets, postings.indptr
        statistics = CorpusStatistics(*lists, *numbers)
        return cls(statistics, [0, postings.n_documents], lambda _: postings)

    @property
    def n_documents(self) -> int:
        return self.edges[-1]

    def range(self, number: int) -> Postings:
        """The postings of a range, opened once."""
        if number not in self._open:
            self._open[number] = self._read(number)
        return self._open[number]

    def between(self, start: int, stop: int) -> Iterator[tuple[int, Postings]]:
        """The ranges that hold some of the documents start..stop-1: the number of its first
        document, and its postings.
        """
        for number, (first, end) in enumerate(pairwise(self.edges)):
            if first < stop and end > start:
                yield first, self.range(number)


def words(encoded: Sequence[bytes]) -> Words:
    """Words as arrays, for `places_of`."""
    ends = np.cumsum([0, *(len(word) for word in encoded)]).astype(np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def places_of(wanted: Words, terms: np.ndarray, term_offsets: np.ndarray) -> NDArray[np.int64]:
    """int64: where each word is among terms in byte order; of a word that is not there, -1 minus
    the number of terms before it.
    """
    return _places(*wanted, terms, term_offsets)


@njit(cache=True, nogil=True)
def _places(letters, ends, terms, term_offsets):
    found = np.empty(len(ends) - 1, np.int64)
    for k in range(len(found)):
        low, high = 0, len(term_offsets) - 1
        equal = False
        while low < high:
            middle = (low + high) >> 1
            sign = _compared(
                letters, ends[k], ends[k + 1], terms, term_offsets[middle], term_offsets[middle + 1]
            )
            if sign == 0:
                low = middle
                equal = True
                break
            if sign > 0:
                low = middle + 1
            else:
                high = middle
        found[k] = low if equal else -1 - low
    return found


@njit(cache=True, nogil=True)
def _compared(a, a_start, a_stop, b, b_start, b_stop):
    """-1, 0 or 1: the order of two pieces of bytes."""
    for n in range(min(a_stop - a_start, b_stop - b_start)):
        left, right = a[a_start + n], b[b_start + n]
        if left != right:
            return -1 if left < right else 1
    if a_stop - a_start == b_stop - b_start:
        return 0
    return -1 if a_stop - a_start < b_stop - b_start else 1
