"""Scores as Anserini's `SimpleSearcher` gives them: BM25 scores after its tie adjuster (method.md
section 4.1).

The searcher orders hits by Lucene's score, ties by id, rounds each score to 1e-4 and takes 1e-6
times n from the n-th score in a row that is not more than 1e-4 below the one before, after that
one's own adjustment. In a long run of near ties the scores reach 0 and go below; such hits are
dropped, as the paper's authors did. All arithmetic is float32, in Java's order.
"""

from collections.abc import Mapping

import numpy as np
from numba import njit

from desa_ray.core.arrays import Float32s
from desa_ray.core.ranking import sparse_order
from desa_ray.core.sparse import SparseHits


def adjusted(hits: SparseHits) -> SparseHits:
    """The hit list with adjusted scores > 0, by ascending number.

    Args:
        hits: the complete list, float32 scores; the adjuster needs all of it.
    """
    order = np.searchsorted(hits.docs, sparse_order(hits.docs, hits.scores))
    scores = np.empty(order.size, np.float32)
    scores[order] = _adjust(hits.scores[order].astype(np.float32))
    kept = scores > 0
    return SparseHits(hits.docs[kept], scores[kept])


def adjusted_sources(hits: Mapping[str, SparseHits]) -> dict[str, SparseHits]:
    """Every source's list adjusted on its own; the query's hits without those that the expanded
    query lost.
    """
    found = {source: adjusted(own) for source, own in hits.items()}
    if {"query", "expanded"} <= found.keys():
        own = found["query"]
        both = np.isin(own.docs, found["expanded"].docs, assume_unique=True)
        found["query"] = SparseHits(own.docs[both], own.scores[both])
    return found


@njit(cache=True, nogil=True)
def _adjust(scores: Float32s) -> Float32s:
    """Adjusts float32 scores, best first, in place, and returns them."""
    wide, step = np.float32(1e4), np.float32(1e-6)
    near = np.float32(1e-4)
    repeats = 0
    for i in range(scores.size):
        scaled = np.float32(scores[i] * wide)
        whole = np.float32(np.floor(np.float64(scaled) + 0.5))  # Java's Math.round
        scores[i] = np.float32(whole / wide)
        if i == 0 or np.float32(scores[i - 1] - scores[i]) > near:
            repeats = 0
        else:
            repeats += 1
            scores[i] = np.float32(scores[i] - np.float32(step * np.float32(repeats)))
    return scores
