"""RM3 and Rocchio equal Anserini's own: expansion terms, weights, and Lucene's scores for them."""

import json
from pathlib import Path

import lucene_process
import pytest

from desa_ray.core.ranking import sparse_order
from desa_ray.stages.collection import read_rows
from desa_ray.stages.feedback import read_feedback
from desa_ray.stages.ranking import Rankings
from desa_ray.stages.sparse_ranking import sparse_hits
from desa_ray.stages.worker_cache import WorkerCache
from tests.desa_fixtures import dataset
from tests.pipeline.test_lazy import computed, typed


def assert_as_anserini(in_lucene_process, folder: Path, home: Path, model: str, **numbers: float):
    """The feedback stage and the ranking of a sparse channel, against Anserini's reranker on an
    index of the same texts.
    """
    options = {"fb_terms": numbers["terms"], "fb_docs": numbers["docs"]}
    options |= {name: value for name, value in numbers.items() if name not in ("terms", "docs")}
    channel = f"{{name:sparse,kind:sparse,operator:{model},options:{json.dumps(options)}}}"
    channel = channel.replace('"', "").replace(" ", "")
    config = typed(*dataset(folder), "method=bm25", f"method.channels=[{channel}]")
    cell, records, _ = computed(config, home)
    ranking = cell.fused[0].inputs["channel:sparse"]
    corpus = read_rows(ranking.inputs["postings"].inputs["corpus"])
    texts = dict(zip(corpus["id"], corpus["text"], strict=True))
    filled = {name: text for name, text in texts.items() if text.strip()}
    queries = read_rows(ranking.inputs["queries"])["text"].to_list()
    given = list(numbers.values())
    oracle = in_lucene_process(lucene_process.fed_back, filled, queries, model, given)
    weights, rankings, cache = (
        read_feedback(ranking.inputs[model]),
        Rankings(ranking),
        WorkerCache(),
    )
    ids = list(texts)
    for row, (expected, names, scores) in enumerate(oracle):
        assert weights[row] == pytest.approx(expected, abs=1e-6)
        hits = sparse_hits(cache, ranking, row)
        found = dict(zip((ids[doc] for doc in hits.docs), hits.scores, strict=True))
        assert found == pytest.approx(dict(zip(names, scores, strict=True)), abs=1e-6)
        assert rankings.docs(row).tolist() == sparse_order(hits.docs, hits.scores).tolist()
    assert records.height == len(queries)
    assert len(oracle) == len(queries) > 0
    assert any(len(own) > numbers["terms"] for own in weights)


RM3 = {"terms": 10, "docs": 10, "weight": 0.5}
FEW = {"terms": 5, "docs": 3, "alpha": 1.0, "beta": 0.75}
ROCCHIO = {"terms": 10, "docs": 10, "alpha": 1.0, "beta": 0.75}


@pytest.mark.parametrize(
    ("collection", "model", "numbers"),
    [
        pytest.param("demo_slice", "rm3", RM3, marks=pytest.mark.long),
        pytest.param("demo_slice", "rocchio", FEW, marks=pytest.mark.long),
        pytest.param("cranfield_folder", "rm3", RM3, marks=pytest.mark.slow),
        pytest.param("cranfield_folder", "rocchio", ROCCHIO, marks=pytest.mark.slow),
    ],
)
def test_feedback_is_that_of_anserini(
    in_lucene_process, request, tmp_path, collection, model, numbers
):
    folder = request.getfixturevalue(collection)
    assert_as_anserini(in_lucene_process, folder, tmp_path, model, **numbers)
