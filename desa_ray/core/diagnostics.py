"""Mechanism diagnostics: what an expanded sparse ranking did to the original one (method.md section
9).

A ranking is int32 document numbers, best first; all of it, since its length is the sparse support.
The dense side's diagnostic, the angle between expanded and original query, comes with the residual
operator itself.
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
    """Mean of 1/rank - 1/original rank over the relevant documents that are in both; None without
    such a document.

    Args:
        relevant: distinct numbers of the documents judged relevant (grade > 0), in any order.
    """
    size = 1 + max(int(own.max(initial=-1)) for own in (ranking, original))
    known = np.sort(relevant[relevant < size])
    return mean_rr_change(_ranks(ranking, size)[known], _ranks(original, size)[known])


def mean_rr_change(new: NDArray[np.integer], old: NDArray[np.integer]) -> float | None:
    """`rr_change` from the ranks of the relevant documents, by ascending number; 0 where one is
    absent.
    """
    both = (new > 0) & (old > 0)
    if not both.any():
        return None
    return float(np.mean(1 / new[both] - 1 / old[both]))


def support_retained(ranking: Ranking, original: Ranking) -> float:
    """Share of the original support that the ranking still holds; 1 where that support is empty."""
    if original.size == 0:
        return 1.0
    held = np.zeros(1 + max(int(own.max(initial=-1)) for own in (ranking, original)), np.bool_)
    held[ranking] = True
    return np.count_nonzero(held[original]) / original.size


def _ranks(ranking: Ranking, size: int) -> NDArray[np.int64]:
    """Rank from 1 of every number below `size`, 0 = not in the ranking."""
    ranks = np.zeros(size, np.int64)
    ranks[ranking] = np.arange(1, ranking.size + 1)
    return ranks
