"""All of SciFact with BM25 alone: the authors' numbers, and what their tie adjuster moves."""

import csv
import json
from pathlib import Path

import lucene_process
import pytest

from desa_ray.core.adjusted import adjusted, adjusted_sources
from desa_ray.core.ranking import sparse_order
from desa_ray.core.sparse import SparseHits, product
from desa_ray.engines.bm25 import BM25

pytestmark = pytest.mark.slow
SUPPORT = Path(__file__).parents[1] / "reference" / "release" / "scifact-sparse-support.csv"


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def scifact(in_lucene_process, scifact_folder: Path):
    """Judged queries in order, and a function from a text's analysed terms to its hits."""
    folder = scifact_folder
    documents = sorted(rows(folder / "corpus.jsonl"), key=lambda row: row["_id"])
    texts = [f"{row['title']} {row['text']}" if row["title"] else row["text"] for row in documents]
    scorer = BM25(in_lucene_process(lucene_process.postings, texts)[0])
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8") as lines:
        judged = {row["query-id"] for row in csv.DictReader(lines, delimiter="\t")}
    queries = {row["_id"]: row["text"] for row in rows(folder / "queries.jsonl")}
    return {query: queries[query] for query in sorted(judged)}, scorer


def hits(scorer: BM25, in_lucene_process, texts: list[str]) -> list[SparseHits]:
    terms = in_lucene_process(lucene_process.analyse, texts)
    return [SparseHits(*scorer.scores(own)) for own in terms]


def test_supports_are_those_of_the_release_query_by_query(scifact, in_lucene_process):
    """No encoder is needed: the mean is their printed 2765.673333333333."""
    queries, scorer = scifact
    found = hits(scorer, in_lucene_process, list(queries.values()))
    support = {query: own.docs.size for query, own in zip(queries, found, strict=True)}
    with SUPPORT.open(encoding="utf-8") as lines:
        theirs = {row["query_id"]: int(row["sparse_support"]) for row in csv.DictReader(lines)}
    assert support == theirs
    assert (len(support), sum(support.values())) == (300, 829_702)
    assert sum(support.values()) / 300 == 2765.673333333333


def test_what_the_tie_adjuster_moves_on_scifact(scifact, in_lucene_process, scifact_folder):
    """The order of Original nowhere; that of the product below the top 20 of most queries."""
    queries, scorer = scifact
    recorded = rows(scifact_folder / "generations" / "references.jsonl")
    texts = {row["query_id"]: row["texts"] for row in recorded if row["draw"] == 0}
    expanded = [" ".join([text, *texts[query]]) for query, text in queries.items()]
    own = hits(scorer, in_lucene_process, list(queries.values()))
    other = hits(scorer, in_lucene_process, expanded)
    same, moved, top = 0, 0, 0
    for first, second in zip(own, other, strict=True):
        same += order(adjusted(first)) == order(first)
        given = adjusted_sources({"query": first, "expanded": second})
        raw, changed = order(product(first, second)), order(product(*given.values()))
        moved += raw != changed
        top += raw[:20] != changed[:20]
    assert (same, top) == (300, 0)
    assert 288 <= moved <= 298  # 293 of 300 queries in an earlier measurement


def order(scored: SparseHits) -> list[int]:
    return sparse_order(scored.docs, scored.scores).tolist()
