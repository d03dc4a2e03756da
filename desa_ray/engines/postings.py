"""Inverted lists as plain arrays: what is kept of a Lucene index, and what scores are computed
from.

Seven arrays hold everything, so that a store can write them, scorers can share them memory-mapped,
and a content hash is a walk over them. Their structure is checked whenever they are made or loaded;
nothing downstream checks again.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numba import njit

from desa_ray.errors import DesaError

POSTING_ARRAYS = {
    "terms": np.uint8,
    "term_offsets": np.int64,
    "indptr": np.int64,
    "docs": np.int32,
    "freqs": np.int32,
    "norms": np.uint8,
    "statistics": np.int64,
}
_FAULTS = {
    1: "a document number out of range",
    2: "documents out of order",
    3: "a frequency below 1",
    4: "a position out of the byte order of terms",
}


@dataclass(frozen=True, eq=False)
class Postings:
    """One field's inverted lists over documents 0..N-1, term after term; every array is read-only.

    Attributes:
        terms: uint8 [B], the T terms' UTF-8 bytes end to end, terms in byte order.
        term_offsets: int64 [T+1], where each term starts in `terms`.
        indptr: int64 [T+1], where each term's list starts in `docs` and `freqs`; no list is empty.
        docs: int32 [P], document numbers, ascending within a term.
        freqs: int32 [P], occurrences of the term in the document, at least 1.
        norms: uint8 [N], Lucene's one-byte document lengths; 0 for documents without a term.
        doc_count: number of documents with at least one term.
        sum_total_term_freq: number of term occurrences in all documents.

    Raises:
        DesaError: arrays that cannot be postings, with what is wrong.
    """

    terms: np.ndarray
    term_offsets: np.ndarray
    indptr: np.ndarray
    docs: np.ndarray
    freqs: np.ndarray
    norms: np.ndarray
    doc_count: int
    sum_total_term_freq: int

    def __post_init__(self):
        for name in ("terms", "term_offsets", "indptr", "docs", "freqs", "norms"):
            array = np.ascontiguousarray(getattr(self, name)).view()
            # Also one array type for numba, whether loaded, mapped or just made
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if fault := self._fault():
            raise DesaError(
                f"these are not the postings of an index: {fault}",
                where="postings",
                hint="build the index again",
            )

    @property
    def n_documents(self) -> int:
        return len(self.norms)

    @property
    def n_terms(self) -> int:
        return len(self.indptr) - 1

    def term(self, index: int) -> bytes:
        """UTF-8 bytes of the term at `index` (0..T-1)."""
        return self.terms[self.term_offsets[index] : self.term_offsets[index + 1]].tobytes()

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything as named arrays, for a store; `statistics` is int64 [doc_count,
        sum_total_term_freq].
        """
        statistics = np.array([self.doc_count, self.sum_total_term_freq], np.int64)
        return {
            name: statistics if name == "statistics" else getattr(self, name)
            for name in POSTING_ARRAYS
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Postings":
        """The inverse of `arrays`; memory-mapped arrays stay mapped. Raises DesaError as the
        constructor does.
        """
        if arrays.keys() != POSTING_ARRAYS.keys() or arrays["statistics"].shape != (2,):
            raise DesaError(
                f"postings need the arrays {', '.join(POSTING_ARRAYS)}",
                where="postings",
                hint="build the index again",
            )
        doc_count, sum_total_term_freq = map(int, arrays["statistics"])
        lists = {name: array for name, array in arrays.items() if name != "statistics"}
        return cls(**lists, doc_count=doc_count, sum_total_term_freq=sum_total_term_freq)

    def content_hash(self) -> str:
        """Hex SHA-256 over every array's name, length and little-endian values, in the order of
        `arrays`.
        """
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name} {array.dtype.str[1:]} {len(array)}\n".encode())
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
        return digest.hexdigest()

    def __reduce__(self):
        # Through the constructor: pickling forgets what is read-only
        return Postings.from_arrays, (self.arrays(),)

    def _fault(self) -> str:
        for name, dtype in POSTING_ARRAYS.items():
            array = getattr(self, name, None)
            if array is not None and (array.ndim != 1 or array.dtype != dtype):
                return (
                    f"{name} is {array.dtype} of {array.ndim} dimensions, not one of"
                    f" {np.dtype(dtype)}"
                )
        for name, starts, whole in (
            ("term_offsets", self.term_offsets, self.terms),
            ("indptr", self.indptr, self.docs),
        ):
            if (
                not len(starts)
                or starts[0] != 0
                or starts[-1] != len(whole)
                or (np.diff(starts) < 1).any()
            ):
                return f"{name} does not increase from 0 to {len(whole)}"
        if len(self.term_offsets) != len(self.indptr) or len(self.freqs) != len(self.docs):
            return "terms, lists and frequencies differ in number"
        code, term, n_seen, occurrences = _check(
            self.terms,
            self.term_offsets,
            self.indptr,
            self.docs,
            self.freqs,
            np.zeros(self.n_documents, np.bool_),
        )
        if code:
            return f"term {self.term(term).decode(errors='replace')!r} has {_FAULTS[code]}"
        if (n_seen, occurrences) != (self.doc_count, self.sum_total_term_freq):
            counted = f"{n_seen} documents with {occurrences} term occurrences"
            return (
                f"{counted}, but the statistics say {self.doc_count} and {self.sum_total_term_freq}"
            )
        return ""


@njit(cache=True)
def _check(terms, term_offsets, indptr, docs, freqs, seen):
    """(0 or a code of _FAULTS, the term it is about, documents seen, occurrences counted) in one
    pass; fills `seen`.
    """
    n_seen = 0
    occurrences = 0
    for term in range(len(indptr) - 1):
        if term > 0:
            start, middle, end = term_offsets[term - 1], term_offsets[term], term_offsets[term + 1]
            common = 0
            while (
                common < middle - start
                and common < end - middle
                and terms[start + common] == terms[middle + common]
            ):
                common += 1
            rises = common < end - middle and (
                common == middle - start or terms[start + common] < terms[middle + common]
            )
            if not rises:
                return 4, term, n_seen, occurrences
        previous = -1
        for at in range(indptr[term], indptr[term + 1]):
            doc = docs[at]
            if doc < 0 or doc >= len(seen):
                return 1, term, n_seen, occurrences
            if doc <= previous:
                return 2, term, n_seen, occurrences
            if freqs[at] < 1:
                return 3, term, n_seen, occurrences
            previous = doc
            occurrences += freqs[at]
            if not seen[doc]:
                seen[doc] = True
                n_seen += 1
    return 0, 0, n_seen, occurrences
