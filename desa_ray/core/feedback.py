"""Pseudo-relevance feedback: RM3 and Rocchio, which weigh terms of a query's own best documents
(method.md section 4.2).

Both follow Anserini's `Rm3Reranker` and `RocchioReranker`, its float32 arithmetic included: which
terms may be used, how many each document gives, and how weights are made. Sums over terms are made
in the order of terms, where Anserini's follow a hash table: they may differ in the last bit.

RM3: Abdul-Jaleel et al., UMass at TREC 2004; Lavrenko and Croft, SIGIR 2001. Rocchio: Rocchio,
"Relevance feedback in information retrieval", 1971.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

Weights = dict[str, np.float32]

LETTERS = 2, 20  # of a term that feedback may use, in UTF-16 units
COMMON = np.float32(0.1)  # share of the documents: a more frequent term counts as a stop word
EMPTY = np.float32(0.001)  # a document whose norm is not above this gives no terms
PLAIN = re.compile("[a-z0-9]+")


@dataclass(frozen=True)
class FeedbackDocument:
    """A document of the first ranking.

    Attributes:
        terms: its analysed terms, each with its frequency.
        score: what it scored, float32.
    """

    terms: Mapping[str, int]
    score: np.float32


def usable(term: str, share: float, *, plain: bool) -> bool:
    """Whether feedback may use a term.

    Args:
        share: of the documents, those that hold the term.
        plain: only letters a to z and digits.
    """
    units = len(term.encode("utf-16-le")) // 2
    if not LETTERS[0] <= units <= LETTERS[1] or (plain and not PLAIN.fullmatch(term)):
        return False
    return bool(np.float32(share) <= COMMON)


def rm3(
    query: Sequence[str],
    documents: Sequence[FeedbackDocument],
    shares: Mapping[str, float],
    *,
    fb_terms: Fraction,
    weight: Fraction,
    **_: Fraction,
) -> Weights:
    """The query's terms interpolated with a relevance model of its best documents.

    Args:
        query: its analysed terms.
        documents: the best documents of the first ranking, best first.
        shares: of every term of theirs, the share of the collection's documents that hold it.
        fb_terms: how many terms each document gives, and the relevance model has.
        weight: of the query's own terms; the model has the rest of 1.

    Returns:
        The weight of each term, float32.
    """
    own = _scaled(_counted(query), _l1)
    vectors = [_pruned(_vector(one, shares, plain=True), int(fb_terms)) for one in documents]
    norms = [np.float32(_l1(vector)) for vector in vectors]
    model: Weights = {}
    for term in sorted({term for vector in vectors for term in vector}):
        total = np.float32(0)
        for document, vector, norm in zip(documents, vectors, norms, strict=True):
            if norm > EMPTY:
                total += vector.get(term, np.float32(0)) / norm * document.score
        model[term] = total
    model = _scaled(_pruned(model, int(fb_terms)), _l1)
    first, none = np.float32(weight), np.float32(0)
    rest = 1.0 - float(first)
    return {
        term: np.float32(float(first * own.get(term, none)) + rest * float(model.get(term, none)))
        for term in sorted({*own, *model})
    }


def rocchio(
    query: Sequence[str],
    documents: Sequence[FeedbackDocument],
    shares: Mapping[str, float],
    *,
    fb_terms: Fraction,
    alpha: Fraction,
    beta: Fraction,
    **_: Fraction,
) -> Weights:
    """`alpha` times the query's vector plus `beta` times the mean of its best documents' vectors,
    each of length 1; arguments and result as in `rm3`.

    Args:
        fb_terms: how many terms of the mean are kept.
    """
    own = _scaled(_counted(query), _l2)
    vectors = [_vector(one, shares, plain=False) for one in documents]
    norms = [np.float32(_l2(vector)) for vector in vectors]
    mean: Weights = {}
    for term in sorted({term for vector in vectors for term in vector}):
        total = np.float32(0)
        for vector, norm in zip(vectors, norms, strict=True):
            if norm > EMPTY:
                total += vector.get(term, np.float32(0)) / norm
        mean[term] = total / np.float32(len(vectors))
    mean = _scaled(_pruned(mean, int(fb_terms)), _l2)
    first, second, none = np.float32(alpha), np.float32(beta), np.float32(0)
    weights = {
        term: first * own.get(term, none) + second * mean.get(term, none)
        for term in sorted({*own, *mean})
    }
    return {term: weight for term, weight in weights.items() if weight > 0}


# Sparse sources that are made of the query's own first ranking.
FEEDBACK: dict[str, Callable[..., Weights]] = {"rm3": rm3, "rocchio": rocchio}


def _counted(terms: Sequence[str]) -> Weights:
    return {term: np.float32(count) for term, count in Counter(terms).items()}


def _vector(document: FeedbackDocument, shares: Mapping[str, float], *, plain: bool) -> Weights:
    return {
        term: np.float32(frequency)
        for term, frequency in document.terms.items()
        if usable(term, shares[term], plain=plain)
    }


def _pruned(vector: Weights, size: int) -> Weights:
    """The heaviest terms; of equal ones, the first in the order of UTF-16."""
    ordered = sorted(vector.items(), key=lambda pair: (-pair[1], pair[0].encode("utf-16-be")))
    return dict(ordered[:size])


def _scaled(vector: Weights, norm: Callable[[Weights], float]) -> Weights:
    length = norm(vector)
    return {term: np.float32(float(weight) / length) for term, weight in vector.items()}


def _l1(vector: Weights) -> float:
    return sum(abs(float(vector[term])) for term in sorted(vector))


def _l2(vector: Weights) -> float:
    return math.sqrt(sum(float(vector[term]) ** 2 for term in sorted(vector)))
