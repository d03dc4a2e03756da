"""Unjudged documents: the judged share of a top list, and how high effectiveness could be
(method.md section 8).

The usual value counts an unjudged document as not relevant; it is the lower bound.
"""

from collections.abc import Mapping, Sequence
from math import log2

import polars as pl

from desa_ray.core.evaluation import metric_name, scored

JUDGED = ("Judged@10", "Judged@20")
NDCG_CUTOFF, RECALL_CUTOFF = 10, 20
NDCG_UPPER, RECALL_UPPER = "ndcg_upper_at_10", "recall_upper_at_20"
COLUMNS = (*map(metric_name, JUDGED), NDCG_UPPER, RECALL_UPPER)  # of records: shares of 1


def ndcg_upper(ranking: Sequence[str], grades: Mapping[str, int], cutoff: int) -> float:
    """nDCG@cutoff if each unjudged document among the first had the query's highest grade.

    The ideal ranking is that of the judgments and the value at most 1: whatever grades up to that
    one the unjudged documents have, nDCG is not above it.

    Args:
        ranking: document ids, best first.
        grades: document -> grade, at least one of them positive.
        cutoff: how many documents count, at least 1.
    """
    highest = max(grades.values())
    gains = [grades.get(document, highest) for document in ranking[:cutoff]]
    ideal = sorted(grades.values(), reverse=True)[:cutoff]
    return min(1.0, _discounted(gains) / _discounted(ideal))


def recall_upper(ranking: Sequence[str], grades: Mapping[str, int], cutoff: int) -> float:
    """Recall@cutoff if each unjudged document among the first were relevant, and no other; no
    choice of relevant ones among them gives more. Arguments as `ndcg_upper`.
    """
    head = ranking[:cutoff]
    unjudged = sum(document not in grades for document in head)
    found = sum(grades.get(document, 0) > 0 for document in head)
    return (found + unjudged) / (sum(grade > 0 for grade in grades.values()) + unjudged)


def judged_columns(
    queries: Sequence[str],
    tops: Mapping[str, Sequence[str]],
    grades: Mapping[str, Mapping[str, int]],
) -> list[pl.Series]:
    """`COLUMNS` of the queries, Float64; null for a query without a positive judgment, and beyond
    the ends of lists.

    Args:
        tops: query -> its first documents; 20 of them are enough.
        grades: as from `positive_grades`.
    """
    shares = scored(grades, tops, JUDGED)
    found: dict[str, list[float | None]] = {name: [] for name in COLUMNS}
    for query in queries:
        own = grades.get(query)
        for name in JUDGED:
            found[metric_name(name)].append(shares.get((query, name)))
        found[NDCG_UPPER].append(ndcg_upper(tops[query], own, NDCG_CUTOFF) if own else None)
        found[RECALL_UPPER].append(recall_upper(tops[query], own, RECALL_CUTOFF) if own else None)
    return [pl.Series(name, values, pl.Float64()) for name, values in found.items()]


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / log2(place + 2) for place, gain in enumerate(gains))
