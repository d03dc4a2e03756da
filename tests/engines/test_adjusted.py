"""Adjusted BM25 scores: by hand, and bit for bit those of Anserini's own searcher."""

import lucene_process
import numpy as np
import pytest

from desa_ray.core.adjusted import adjusted, adjusted_sources
from desa_ray.core.ranking import sparse_order
from desa_ray.core.sparse import SparseHits
from desa_ray.engines.bm25 import BM25


def hits(*scores: float) -> SparseHits:
    return SparseHits(np.arange(len(scores), dtype=np.int32), np.array(scores, np.float32))


def test_scores_are_rounded_and_ties_are_taken_apart():
    # As the searcher's own source explains it: 23.439316, 22.087432 twice, 21.602508.
    found = adjusted(hits(22.087432, 23.439316, 22.087432, 21.602508))
    assert found.docs.tolist() == [0, 1, 2, 3]
    expected = np.array([22.0874, 23.4393, 22.087399, 21.6025], np.float32)
    assert found.scores.tolist() == expected.tolist()


def test_a_tail_of_ties_falls_to_zero_and_is_dropped():
    # .0003 rounded, then less 1e-6, 2e-6, ...: the 300th tie reaches 0.
    tail = adjusted(hits(9.0, *[0.0003] * 400))
    assert 295 <= tail.docs.size - 1 <= 301
    assert tail.docs.tolist() == list(range(tail.docs.size))
    assert (tail.scores > 0).all()
    assert adjusted(hits(0.00004)).docs.size == 0  # rounds to 0


def test_a_document_lost_in_either_list_is_lost_in_both():
    given = {"query": hits(5.0, 4.0, 3.0), "expanded": hits(5.0, 0.00001, 3.0)}
    found = adjusted_sources(given)
    assert found["query"].docs.tolist() == found["expanded"].docs.tolist() == [0, 2]


@pytest.mark.parametrize("documents", [40, 3000])
def test_scores_are_bit_for_bit_those_of_the_searcher(in_lucene_process, documents):
    """Many equal texts: long runs of ties, beyond 0 for 3,000 documents."""
    rng = np.random.default_rng(documents)
    words = ["whale", "ocean", "ship", "harbour", "captain", "storm"]
    texts = [" ".join(rng.choice(words, rng.integers(1, 5))) for _ in range(documents)]
    names = {f"{number:06d}": text for number, text in enumerate(texts)}
    queries = ["whale", "ocean storm captain", "ships in a harbour", "nothing known"]
    theirs = in_lucene_process(lucene_process.searched, names, queries)
    postings, _ = in_lucene_process(lucene_process.postings, texts)
    terms = in_lucene_process(lucene_process.analyse, queries)
    for query, (ids, scores) in zip(terms, theirs, strict=True):
        found = adjusted(SparseHits(*BM25(postings).scores(query)))
        kept = scores > 0
        order = np.array([int(name) for name in ids], np.int32)[kept]
        places = np.argsort(order)
        assert found.docs.tolist() == order[places].tolist()
        assert found.scores.tobytes() == scores[kept][places].tobytes()
        assert sparse_order(found.docs, found.scores).tolist() == order.tolist()
    if documents == 3000:
        assert (theirs[0][1] <= 0).any() or theirs[0][1].size < 1200
