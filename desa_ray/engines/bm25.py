"""Complete-list BM25 from postings, bit-identical to Lucene's own scores, in a process without a
JVM.

Lucene's BM25Similarity (Lucene 10; Robertson & Zaragoza 2009 without the constant k1 + 1) scores a
document d by a sum over the distinct terms t of the query:

    score(d) = sum_t ( w_t - w_t / (1 + tf(t, d) * c(d)) )

    w_t      = count(t) * idf(t)
    idf(t)   = ln(1 + (n - df(t) + 0.5) / (df(t) + 0.5))
    1 / c(d) = k1 * (1 - b + b * length(d) / mean length)

Here count(t) is how often the query holds t, n is the number of documents with any term, and
length(d) went through Lucene's one-byte form (`SmallFloat.intToByte4`). Everything is float32 in
this order of operations; only the logarithm and the sum over terms are float64, and the sum is
rounded to float32 once. method.md section 4 asks for these scores themselves: `SimpleSearcher`
rewrites them to break ties.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numba import njit

from desa_ray.engines.postings import Postings
from desa_ray.engines.ranged_postings import (
    CorpusStatistics,
    RangedPostings,
    Words,
    places_of,
    words,
)

Terms = Sequence[str] | Mapping[str, np.float32]  # a bag of words, or the weight of each


class BM25:
    """Scores of every document that shares a term with a query. One object per thread: it keeps
    scratch of as many entries as documents are looked at together.
    """

    def __init__(self, postings: Postings | RangedPostings, k1: float = 0.9, b: float = 0.4):
        """Args: `postings` of N documents, whole or in ranges; `k1` >= 0; `b` in 0..1 (Anserini's
        defaults, as in the paper).
        """
        whole = isinstance(postings, Postings)
        self.postings = RangedPostings.whole(postings) if whole else postings
        self._inverse = _inverse_norms(self.postings.statistics, k1, b)
        self._known: dict[str, np.float32 | None] = {}  # looked up once a distinct term
        self._sums = np.zeros(0, np.float64)
        self._hits = np.zeros(0, np.bool_)

    def scores(
        self, terms: Terms, start: int = 0, stop: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Complete result list of a bag of analysed terms.

        Args:
            terms: analysed query terms, in any order; a repeated term weighs as often as it occurs,
                an unknown one matches nothing, none at all match nothing. Or the weight of each
                term, as of Lucene's `BoostQuery`; of weight 0 it matches and adds nothing.
            start, stop: only documents start..stop-1 (default: all) are looked at; scratch is as
                large as that, or as a range.

        Returns:
            docs: int32 [n], every such document with a query term, ascending (also those whose
                score rounds to 0).
            scores: float32 [n], Lucene's BM25 scores.
        """
        wanted, weights = self._weighed(terms)
        stop = self.postings.n_documents if stop is None else min(stop, self.postings.n_documents)
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for first, p in self.postings.between(start, stop):
            indices, own = _held(wanted, weights, p)
            low, high = max(start - first, 0), min(stop - first, p.n_documents)
            if len(self._hits) < high - low:
                size = high - low
                self._sums, self._hits = np.zeros(size, np.float64), np.zeros(size, np.bool_)
            scratch = (self._sums[: high - low], self._hits[: high - low])
            lists = (p.indptr, p.docs, p.freqs, p.norms)
            docs, scores = _score(indices, own, *lists, self._inverse, *scratch, low)
            found.append((docs + np.int32(first) if first else docs, scores))
        return _joined(found)

    def scores_of(self, terms: Terms, docs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the documents `docs` (int32, ascending) that hold a query term, and the scores
        that `scores` gives them, from their own postings alone.
        """
        wanted, weights = self._weighed(terms)
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for first, p, asked in self._by_range(docs):
            indices, own = _held(wanted, weights, p)
            sums, hits = np.zeros(asked.size), np.zeros(asked.size, np.bool_)
            lists = (p.indptr, p.docs, p.freqs, p.norms)
            _score_of(indices, own, *lists, self._inverse, asked, sums, hits)
            found.append((asked[hits] + np.int32(first), sums[hits].astype(np.float32)))
        return _joined(found)

    def _by_range(self, docs: np.ndarray) -> Iterator[tuple[int, Postings, np.ndarray]]:
        """The first document of each range that holds some of `docs`, its postings, and those."""
        begins = np.searchsorted(docs, self.postings.edges)
        for number, first in enumerate(self.postings.edges[:-1]):
            if begins[number] < begins[number + 1]:
                own = docs[begins[number] : begins[number + 1]] - np.int32(first)
                yield first, self.postings.range(number), own

    def _weighed(self, terms: Terms) -> tuple[Words, np.ndarray]:
        """The distinct known terms in byte order: a bag's score must not depend on word order; and
        the weight of each, float32.
        """
        weights: dict[bytes, np.float32] = {}
        counted = terms if isinstance(terms, Mapping) else Counter(terms)
        for term, count in counted.items():
            idf = self._idf(term)
            if idf is not None:
                weights[term.encode()] = np.float32(count) * idf
        chosen = sorted(weights)
        return words(chosen), np.array([weights[term] for term in chosen], np.float32)

    def _idf(self, term: str) -> np.float32 | None:
        """The term's idf, or None if no document has it."""
        if term not in self._known:
            statistics = self.postings.statistics
            df = statistics.documents_with(term)
            idf = np.float32(math.log(1 + (statistics.doc_count - df + 0.5) / (df + 0.5)))
            self._known[term] = idf if df else None
        return self._known[term]


def _held(wanted: Words, weights: np.ndarray, p: Postings) -> tuple[np.ndarray, np.ndarray]:
    """Those of the terms that a range has: their places there, and their weights."""
    places = places_of(wanted, p.terms, p.term_offsets)
    own = places >= 0
    return places[own], weights[own]


def _joined(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Documents and scores of ranges one after another."""
    if len(found) == 1:
        return found[0]
    docs = np.concatenate([np.empty(0, np.int32), *(own for own, _ in found)])
    return docs, np.concatenate([np.empty(0, np.float32), *(own for _, own in found)])


def _inverse_norms(statistics: CorpusStatistics, k1: float, b: float) -> np.ndarray:
    """float32 [256]: c(d) of the module's formula for each of Lucene's one-byte lengths."""
    mean_length = np.float32(
        statistics.sum_total_term_freq / max(statistics.doc_count, 1)
    ) or np.float32(1)
    lengths = np.array([_decode_length(byte) for byte in range(256)], np.float32)
    k1_, b_, one = np.float32(k1), np.float32(b), np.float32(1)
    with np.errstate(divide="ignore"):
        # k1 = 0 gives infinity, hence score = weight: what Lucene does, too
        return one / (k1_ * ((one - b_) + b_ * lengths / mean_length))


def _decode_length(byte: int) -> int:
    """Lucene's `SmallFloat.byte4ToInt`: exact below 40, then three bits behind the leading one."""
    if byte < 24:
        return byte
    bits, shift = (byte - 24) & 7, ((byte - 24) >> 3) - 1
    return 24 + (bits if shift < 0 else (bits | 8) << shift)


@njit(cache=True, nogil=True)
def _score(indices, weights, indptr, docs, freqs, norms, inverse, sums, hits, start):
    """Accumulate term by term, then gather the hits in document order, leaving `sums` and `hits`
    zero again.

    Arrays of n entries hold the documents start .. start + n - 1.
    """
    one = np.float32(1)
    n_hits = 0
    stop = start + len(hits)
    for k in range(len(indices)):
        weight = weights[k]
        low, high = indptr[indices[k]], indptr[indices[k] + 1]
        if stop < len(norms):
            high = _place(docs, low, high, stop)
        if start > 0:
            low = _place(docs, low, high, start)
        for at in range(low, high):
            doc = docs[at]
            part = weight - weight / (one + np.float32(freqs[at]) * inverse[norms[doc]])
            place = doc - start
            sums[place] += np.float64(part)
            if not hits[place]:
                hits[place] = True
                n_hits += 1
    found = np.empty(n_hits, np.int32)
    scores = np.empty(n_hits, np.float32)
    n = 0
    for place in range(len(hits)):
        if hits[place]:
            found[n] = start + place
            scores[n] = np.float32(sums[place])
            sums[place] = 0.0
            hits[place] = False
            n += 1
    return found, scores


@njit(cache=True, nogil=True)
def _score_of(indices, weights, indptr, docs, freqs, norms, inverse, asked, sums, hits):
    """Accumulates, term by term as `_score` does, what the documents asked for score."""
    one = np.float32(1)
    for k in range(len(indices)):
        weight = weights[k]
        low, high = indptr[indices[k]], indptr[indices[k] + 1]
        for place in range(len(asked)):
            doc = asked[place]
            low = _place(docs, low, high, doc)
            if low == high:
                break
            if docs[low] == doc:
                part = weight - weight / (one + np.float32(freqs[low]) * inverse[norms[doc]])
                sums[place] += np.float64(part)
                hits[place] = True


@njit(cache=True, nogil=True)
def _place(docs, low, high, doc):
    """The first place in low..high whose document is not below `doc`."""
    while low < high:
        middle = (low + high) >> 1
        if docs[middle] < doc:
            low = middle + 1
        else:
            high = middle
    return low
