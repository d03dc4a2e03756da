"""Mechanism diagnostics: what an expanded sparse ranking did to the original one (paper appendix B, SPEC section 9).

A ranking is int32 document numbers, best first; all of it, since its length is the sparse support. The dense side's
diagnostic, the angle between expanded and original query, comes with the residual operator itself.
"""

import numpy as np
from numpy.typing import NDArray

TOP = 20  # the paper's K; turnover looks at this many documents whatever K a run certifies

Ranking = NDArray[np.int32]


def turnover(ranking: Ranking, original: Ranking) -> float:
    """1 - |top 20 of both| / min(20, size of the original support); 0 where that is empty."""
    if original.size == 0:
        return 0.0
    both = np.intersect1d(ranking[:TOP], original[:TOP], assume_unique=True)
    return 1 - both.size / min(TOP, original.size)


def rr_change(ranking: Ranking, original: Ranking, relevant: Ranking) -> float | None:
    """Mean of 1/rank - 1/original rank over the relevant documents that stand in both; None without such a document.

    Args:
        relevant: distinct numbers of the documents judged relevant (grade > 0), in any order.
    """
    (new_docs, new_ranks), (old_docs, old_ranks) = _found(ranking, relevant), _found(original, relevant)
    both, new, old = np.intersect1d(new_docs, old_docs, assume_unique=True, return_indices=True)
    if both.size == 0:
        return None
    return float(np.mean(1 / new_ranks[new] - 1 / old_ranks[old]))


def support_retained(ranking: Ranking, original: Ranking) -> float:
    """Share of the original support that the ranking still holds; 1 where that support is empty."""
    if original.size == 0:
        return 1.0
    return np.intersect1d(ranking, original, assume_unique=True).size / original.size


def _found(ranking: Ranking, documents: Ranking) -> tuple[Ranking, NDArray[np.int64]]:
    """Those of the documents that the ranking holds, best first, and their ranks from 1."""
    places = np.flatnonzero(np.isin(ranking, documents))
    return ranking[places], places + 1
