"""Sums of impacts equal those of plain dictionaries, however documents are divided into ranges."""

from itertools import pairwise

import numpy as np
import pytest

from desa_ray.core.impacts import LARGEST
from desa_ray.engines.impact_postings import Impacts, check_exact, postings_of
from desa_ray.engines.merged_postings import merge_ranges
from desa_ray.engines.ranged_postings import RangedPostings
from desa_ray.errors import DesaError

TERMS = [*(f"t{n}" for n in range(60)), "\uff5emark", "\U0001d4d0script", "\u00e9t\u00e9"]


def bags(seed: int, count: int, most: int) -> list[dict[str, int]]:
    """Some are empty."""
    random = np.random.default_rng(seed)
    found: list[dict[str, int]] = []
    for size in random.integers(0, most, count):
        own = random.choice(len(TERMS), size, replace=False)
        found.append({TERMS[n]: int(random.integers(1, 400)) for n in own})
    return found


DOCUMENTS = bags(1, 230, 12)
QUERIES = [*bags(2, 25, 9), {}, {"unknown": 3}, dict.fromkeys(TERMS, 7)]


def oracle(query: dict[str, int], start: int = 0, stop: int = 230) -> dict[int, int]:
    """Document -> score, of those that share a term."""
    found: dict[int, int] = {}
    for number in range(start, stop):
        shared = query.keys() & DOCUMENTS[number].keys()
        if shared:
            found[number] = sum(query[term] * DOCUMENTS[number][term] for term in shared)
    return found


@pytest.fixture(params=[[0, 230], [0, 100, 230], [0, 1, 40, 150, 222, 230]], ids=len)
def impacts(request, tmp_path) -> Impacts:
    edges = request.param
    parts = [postings_of(DOCUMENTS[start:stop]) for start, stop in pairwise(edges)]
    merged = merge_ranges(parts, tmp_path)
    assert merged.content_hash() == postings_of(DOCUMENTS).content_hash()
    return Impacts(RangedPostings(merged.statistics, edges, lambda number: parts[number]))


def test_scores_equal_those_of_dictionaries(impacts):
    for query in QUERIES:
        for start, stop in ((0, 230), (0, 57), (40, 151), (229, 230), (90, 90)):
            docs, scores = impacts.scores(query, start, stop)
            assert (docs.dtype, scores.dtype) == (np.int32, np.int64)
            expected = oracle(query, start, stop)
            assert docs.tolist() == sorted(expected)
            assert dict(zip(docs.tolist(), scores.tolist(), strict=True)) == expected


def test_documents_asked_for_score_the_same(impacts):
    random = np.random.default_rng(3)
    for query in QUERIES:
        for size in (0, 1, 30, 230):
            asked = np.sort(random.choice(230, size, replace=False)).astype(np.int32)
            docs, scores = impacts.scores_of(query, asked)
            expected = oracle(query)
            kept = {doc: expected[doc] for doc in asked.tolist() if doc in expected}
            assert dict(zip(docs.tolist(), scores.tolist(), strict=True)) == kept
            assert docs.tolist() == sorted(kept)


def test_scores_that_could_overflow_are_refused():
    impacts = Impacts(postings_of([{"a": LARGEST, "b": 1}]))
    most = (1 << 53) // LARGEST
    _, scores = impacts.scores({"a": most - 1, "b": LARGEST - 1})
    assert scores.tolist() == [(1 << 53) - 1]
    with pytest.raises(DesaError, match="2\\^53"):
        impacts.scores({"a": most})
    with pytest.raises(DesaError, match="overflow"):
        impacts.scores({"a": 1 << 43})


def test_products_beyond_exact_floats_are_refused():
    check_exact(np.array([2.0**53 - 1]))
    with pytest.raises(DesaError, match=r"sparse\.scale"):
        check_exact(np.array([3.0, 2.0**53]))
    check_exact(np.empty(0))


def test_a_collection_without_impacts_matches_nothing():
    postings = postings_of([{}, {}])
    assert (postings.n_documents, postings.n_terms, postings.doc_count) == (2, 0, 0)
    assert Impacts(postings).scores({"a": 1})[0].size == 0
