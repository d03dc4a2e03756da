"""Complete-list BM25 from postings, bit-identical to Lucene's own scores, in a process without a
JVM.

Lucene's BM25Similarity (Lucene 10; Robertson & Zaragoza 2009 without the constant k1 + 1) scores a
document d by

    score(d) = sum over distinct query terms t of  w_t - w_t / (1 + tf(t, d) * c(d)),     w_t =
    count(t) * idf(t), idf(t)   = ln(1 + (n - df(t) + 0.5) / (df(t) + 0.5)),        1 / c(d) = k1 *
    (1 - b + b * length(d) / mean length),

where count(t) is how often the query holds t, n is the number of documents with any term, and
length(d) went through Lucene's one-byte form (`SmallFloat.intToByte4`). Everything is float32 in
this order of operations; only the logarithm and the sum over terms are float64, and the sum is
rounded to float32 once. method.md section 4 asks for these scores themselves: `SimpleSearcher`
rewrites them to break ties.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numba import njit

from desa_ray.engines.postings import Postings


class BM25:
    """Scores of every document that shares a term with a query. One object per thread: it keeps
    scratch of N entries.
    """

    def __init__(self, postings: Postings, k1: float = 0.9, b: float = 0.4):
        """Args: `postings` of N documents; `k1` >= 0; `b` in 0..1 (Anserini's defaults, as in the
        paper).
        """
        self.postings = postings
        self._inverse = _inverse_norms(postings, k1, b)
        self._known: dict[str, tuple[int, np.float32] | None] = {}  # looked up once a distinct term
        self._sums = np.zeros(0, np.float64)
        self._hits = np.zeros(0, np.bool_)

    def scores(
        self, terms: Sequence[str], start: int = 0, stop: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Complete result list of a bag of analysed terms.

        Args:
            terms: analysed query terms, in any order; a repeated term weighs as often as it occurs,
                an unknown one matches nothing, none at all match nothing.
            start, stop: only documents start..stop-1 (default: all) are looked at; scratch is as
                large as that.

        Returns:
            docs: int32 [n], every such document with a query term, ascending (also those whose
                score rounds to 0).
            scores: float32 [n], Lucene's BM25 scores.
        """
        indices, weights = self._weighed(terms)
        p = self.postings
        stop = p.n_documents if stop is None else min(stop, p.n_documents)
        if len(self._hits) < stop - start:
            self._sums, self._hits = (
                np.zeros(stop - start, np.float64),
                np.zeros(stop - start, np.bool_),
            )
        scratch = (self._sums[: stop - start], self._hits[: stop - start])
        return _score(
            indices, weights, p.indptr, p.docs, p.freqs, p.norms, self._inverse, *scratch, start
        )

    def scores_of(self, terms: Sequence[str], docs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the documents `docs` (int32, ascending) that hold a query term, and the scores
        that `scores` gives them, from their own postings alone.
        """
        indices, weights = self._weighed(terms)
        p, sums, hits = self.postings, np.zeros(docs.size), np.zeros(docs.size, np.bool_)
        lists = (p.indptr, p.docs, p.freqs, p.norms)
        _score_of(indices, weights, *lists, self._inverse, docs, sums, hits)
        return docs[hits], sums[hits].astype(np.float32)

    def _weighed(self, terms: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The distinct known terms, ascending: a bag's score must not depend on word order; and the
        weight of each.
        """
        weights = {}
        for term, count in Counter(terms).items():
            if found := self._find(term):
                index, idf = found
                weights[index] = np.float32(count) * idf
        indices = np.array(sorted(weights), np.int64)
        return indices, np.array([weights[index] for index in indices], np.float32)

    def _find(self, term: str) -> tuple[int, np.float32] | None:
        """The term's index and idf, or None if no document has it."""
        if term not in self._known:
            p, key = self.postings, term.encode()
            index = bisect_left(range(p.n_terms), key, key=p.term)
            found = index < p.n_terms and p.term(index) == key
            self._known[term] = (index, self._idf(index)) if found else None
        return self._known[term]

    def _idf(self, index: int) -> np.float32:
        df = int(self.postings.indptr[index + 1] - self.postings.indptr[index])
        return np.float32(math.log(1 + (self.postings.doc_count - df + 0.5) / (df + 0.5)))


def _inverse_norms(postings: Postings, k1: float, b: float) -> np.ndarray:
    """float32 [256]: c(d) of the module's formula for each of Lucene's one-byte lengths."""
    mean_length = np.float32(
        postings.sum_total_term_freq / max(postings.doc_count, 1)
    ) or np.float32(1)
    lengths = np.array([_decode_length(byte) for byte in range(256)], np.float32)
    k1_, b_, one = np.float32(k1), np.float32(b), np.float32(1)
    with np.errstate(
        divide="ignore"
    ):  # k1 = 0 gives infinity, hence score = weight: what Lucene does, too
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
