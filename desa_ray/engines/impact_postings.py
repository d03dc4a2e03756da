"""Exact sums of impacts from postings: what a document scores is the sum, over the query's terms,
of the document's impact times the query's weight, in int64 (method.md section 4.3).

Impacts lie where BM25 keeps term frequencies, so that lists, ranges, merging and content hashes are
the same code. Integers have one sum in whatever order they are added.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numba import njit

from desa_ray.core.impacts import EXACT, LARGEST
from desa_ray.engines.postings import Postings
from desa_ray.engines.ranged_postings import RangedPostings, Words, places_of, words
from desa_ray.errors import DesaError

Hits = tuple[np.ndarray, np.ndarray]  # documents int32, ascending, and their scores int64


class Impacts:
    """Scores of every document that shares a term with a query."""

    def __init__(self, postings: Postings | RangedPostings):
        whole = isinstance(postings, Postings)
        self.postings = RangedPostings.whole(postings) if whole else postings

    def scores(self, terms: Mapping[str, int], start: int = 0, stop: int | None = None) -> Hits:
        """Complete result list of a weighted query.

        Args:
            terms: whole weights of at least 1; an unknown term matches nothing.
            start, stop: only documents start..stop-1 (default: all) are looked at.

        Raises:
            DesaError: a score reaches 2^53.
        """
        wanted, weights = _weighed(terms)
        stop = self.postings.n_documents if stop is None else min(stop, self.postings.n_documents)
        found: list[Hits] = []
        for first, p in self.postings.between(start, stop):
            low, high = max(start - first, 0), min(stop - first, p.n_documents)
            begins, ends, own = _lists(wanted, weights, p)
            for n, (begin, end) in enumerate(zip(begins, ends, strict=True)):
                begins[n], ends[n] = begin + np.searchsorted(p.docs[begin:end], (low, high))
            docs, sums = _sum(own, begins, ends, p.docs, p.freqs, low, high - low)
            found.append((docs + np.int32(first), sums))
        return _joined(found)

    def scores_of(self, terms: Mapping[str, int], docs: np.ndarray) -> Hits:
        """Those of the documents `docs` (int32, ascending) that hold a query term, and the scores
        that `scores` gives them.
        """
        wanted, weights = _weighed(terms)
        edges, found = np.searchsorted(docs, self.postings.edges), list[Hits]()
        for number, first in enumerate(self.postings.edges[:-1]):
            asked = docs[edges[number] : edges[number + 1]] - np.int32(first)
            if not asked.size:
                continue
            p = self.postings.range(number)
            sums, hits = np.zeros(asked.size, np.int64), np.zeros(asked.size, np.bool_)
            for begin, end, weight in zip(*_lists(wanted, weights, p), strict=True):
                places = begin + np.searchsorted(p.docs[begin:end], asked)
                there = places < end
                there[there] = p.docs[places[there]] == asked[there]
                sums[there] += weight * p.freqs[places[there]].astype(np.int64)
                hits |= there
            found.append((asked[hits] + np.int32(first), sums[hits]))
        return _joined(found)


def _weighed(terms: Mapping[str, int]) -> tuple[Words, np.ndarray]:
    """Terms in byte order and their weights, int64, small enough that no sum can overflow."""
    weights = {term.encode(): int(weight) for term, weight in terms.items()}
    assert all(weight >= 1 for weight in weights.values()), "a query weight below 1"
    if sum(weights.values()) * LARGEST >= 1 << 63:
        what = f"the weights of a query add up to {sum(weights.values())}, which could overflow"
        raise DesaError(what, where="sparse.query_scale", hint="lower it")
    chosen = sorted(weights)
    return words(chosen), np.array([weights[term] for term in chosen], np.int64)


def _lists(
    wanted: Words, weights: np.ndarray, p: Postings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the lists of the terms that a range has begin and end, and their weights."""
    places = places_of(wanted, p.terms, p.term_offsets)
    own = places[places >= 0]
    return p.indptr[own].copy(), p.indptr[own + 1].copy(), weights[places >= 0]


def _joined(found: Sequence[Hits]) -> Hits:
    docs = np.concatenate([np.empty(0, np.int32), *(own for own, _ in found)])
    scores = np.concatenate([np.empty(0, np.int64), *(own for _, own in found)])
    check_exact(scores)
    return docs, scores


def check_exact(scores: np.ndarray) -> None:
    """Refuses scores that float64 may not hold exactly, as orders and stored heads do."""
    if scores.max(initial=0) >= EXACT:
        what = f"a score is {scores.max():.17g}, expected less than 2^53"
        raise DesaError(what, where="sparse", hint="lower sparse.scale or sparse.query_scale")


@njit(cache=True, nogil=True)
def _sum(weights, begins, ends, docs, impacts, start, size):
    """Accumulates list by list, then gathers the hits in document order."""
    sums = np.zeros(size, np.int64)
    for k in range(len(weights)):
        for at in range(begins[k], ends[k]):
            sums[docs[at] - start] += weights[k] * np.int64(impacts[at])
    # Weights and impacts are at least 1: whoever scores 0 is no hit
    found = np.flatnonzero(sums)
    return (found + start).astype(np.int32), sums[found]


def postings_of(bags: Iterable[Mapping[str, int]]) -> Postings:
    """The postings of consecutive documents, each given as impacts of at least 1."""
    known: dict[str, int] = {}
    owners, terms, impacts, documents, with_terms = [], [], [], 0, 0
    for bag in bags:
        own = [known.setdefault(term, len(known)) for term in bag]
        owners.append(np.full(len(own), documents, np.int32))
        terms.append(np.array(own, np.int64))
        impacts.append(np.array(list(bag.values()), np.int32))
        documents += 1
        with_terms += bool(own)
    encoded = {term.encode(): number for term, number in known.items()}
    order = sorted(encoded)
    ranks = np.empty(len(order), np.int64)
    ranks[[encoded[term] for term in order]] = np.arange(len(order))
    ranked = ranks[_flat(terms, np.int64)]
    by_term = np.argsort(ranked, kind="stable")
    values = _flat(impacts, np.int32)[by_term]
    letters, offsets = words(order)
    counts = np.bincount(ranked, minlength=len(order))
    return Postings(
        terms=letters,
        term_offsets=offsets,
        indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        docs=_flat(owners, np.int32)[by_term],
        freqs=values,
        norms=np.zeros(documents, np.uint8),
        doc_count=with_terms,
        sum_total_term_freq=int(values.sum(dtype=np.int64)),
    )


def _flat(arrays: Sequence[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype)


def bags(terms: Iterable[Sequence[str]], weights: Iterable[Sequence[int]]) -> Iterator[dict]:
    """Rows of two list columns as bags."""
    for row in zip(terms, weights, strict=True):
        yield dict(zip(*row, strict=True))
