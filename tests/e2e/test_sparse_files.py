"""Runs with files beside the collection: texts that are appended to documents, and weights of
queries by id.
"""

import json
from pathlib import Path

import pytest

import desa_ray
from desa_ray.errors import DesaError
from tests.desa_fixtures import dataset
from tests.e2e.test_impact_runs import (
    Bag,
    Oracle,
    channel,
    ordered,
    ranked,
    recorded,
    whole,
    write_collection,
)
from tests.impact_files import rows_of, write_impacts, write_rows
from tests.splade_files import write_model

pytestmark = pytest.mark.long
SERIAL = ["cluster=serial", "tracking.enabled=false", "draws=1"]
KINDS = {
    "bm25": [],
    "splade": ["sparse=splade", "sparse.path=model", "sparse.max_tokens=64"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory):
    """A folder with a collection `small`, the files of `write_impacts`, a model, and `expanded`:
    the collection with the texts in its documents.
    """
    folder = tmp_path_factory.mktemp("files")
    for name in ("small", "expanded"):
        write_collection(folder / name)
    impacts, _ = write_impacts(folder / "small", folder)
    write_model(folder / "model")
    added = {row["id"]: row["texts"] for row in rows_of(folder / "texts.jsonl")}
    assert len(set(map(len, added.values()))) > 1
    rows = [
        {**row, "text": "\n".join([row["text"], *added[row["_id"]]])}
        for row in rows_of(folder / "small" / "corpus.jsonl")
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "expanded" / "corpus.jsonl").write_text(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESA_HOME", str(folder / "home"))
        patch.chdir(folder)
        yield folder, impacts


def lists(*overrides: str) -> dict[str, list]:
    found = desa_ray.run([*SERIAL, *overrides]).rankings(channel="sparse")
    return (
        found.select("query_id", "doc_id", "rank").sort("query_id", "rank").to_dict(as_series=False)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_texts_count_as_words_of_their_documents(place, kind):
    folder, method = place[0], channel("product", "references")
    own, texts = dataset(folder / "small"), "sparse.document_texts=texts.jsonl"
    with_texts = lists(*own, *KINDS[kind], texts, *method)
    inside = lists(*dataset(folder / "expanded"), *KINDS[kind], *method)
    without = lists(*own, *KINDS[kind], *method)
    assert with_texts == inside != without
    assert inside["doc_id"]


@pytest.mark.parametrize("kind", KINDS)
def test_ways_and_ranges_agree_on_expanded_documents(place, kind, tmp_path, monkeypatch):
    given = [*dataset(place[0] / "small"), *SERIAL, *KINDS[kind], "fusion.k=5", "method=desa"]
    given += ["sparse.document_texts=texts.jsonl"]
    complete = recorded(given)
    for documents, ranking in ((45, "complete"), (90, "lazy"), (18, "counted")):
        # 2, 1 and 5 ranges
        monkeypatch.setenv("DESA_HOME", str(tmp_path / str(documents)))
        cut = [f"cluster.range_documents={documents}", f"ranking={ranking}"]
        assert recorded([*given, *cut]).equals(complete), (documents, ranking)


def test_the_dense_channel_does_not_see_the_texts(place):
    given = [*dataset(place[0] / "small"), *SERIAL, "method=desa"]
    texts = "sparse.document_texts=texts.jsonl"
    desa_ray.run([*given])
    made = [{*(place[0] / "home" / "store" / "vectors").iterdir()}]
    desa_ray.run([*given, texts])
    made.append({*(place[0] / "home" / "store" / "vectors").iterdir()})
    assert made[0] == made[1]


def test_a_snapshot_takes_its_own_texts(place):
    """The file names documents that the snapshot lacks."""
    small = [*dataset(place[0] / "small"), "dataset.size=30"]
    inside = [*dataset(place[0] / "expanded"), "dataset.size=30"]
    method = channel("original", None)
    found = lists(*small, "sparse.document_texts=texts.jsonl", *method)
    assert found["doc_id"]
    assert found == lists(*inside, *method)


class FileOracle(Oracle):
    """Queries weighed by a file, references by their tokens."""

    def __init__(self, folder: Path, vectors: dict, queries: dict[str, dict[str, float]]):
        super().__init__(folder, vectors)
        self.vectors = {self.queries[name]: own for name, own in queries.items()}
        assert len(self.vectors) == len(queries)

    def weights(self, text: str) -> Bag:
        found = self.vectors.get(text)
        return super().weights(text) if found is None else whole(found)


VECTORS = "sparse.query_vectors=vectors.jsonl"


def test_queries_are_weighed_by_their_ids(place):
    folder, impacts = place
    own = {row["id"]: row["vector"] for row in rows_of(folder / "vectors.jsonl")}
    oracle = FileOracle(folder / "small", impacts, own)
    query = {name: oracle.hits(oracle.weights(text)) for name, text in oracle.queries.items()}
    found = ranked(folder, VECTORS, *channel("original", None))
    assert found == {name: ordered(hits) for name, hits in query.items() if hits}
    for prompt, operator, copies in (("references", "rewrite", 1), ("query2doc", "query2doc", 5)):
        many = {n: oracle.hits(oracle.expanded(n, prompt, copies)) for n in query}
        found = ranked(folder, VECTORS, *channel(operator, prompt))
        assert found == {name: ordered(hits) for name, hits in many.items() if hits}
    expanded = {name: oracle.hits(oracle.expanded(name, "references", 1)) for name in query}
    found = ranked(folder, VECTORS, *channel("product", "references"))
    anchored = {
        name: {doc: score * expanded[name][doc] for doc, score in hits.items()}
        for name, hits in query.items()
    }
    assert found == {name: ordered(hits) for name, hits in anchored.items() if hits}
    sampled = ranked(folder, VECTORS, "dataset.sample=4", *channel("original", None))
    assert len(sampled) <= 4
    assert sampled.items() <= {name: ordered(hits) for name, hits in query.items()}.items()


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["sparse.document_texts=none.jsonl"], "none.jsonl: cannot be read"),
        (["sparse.document_texts=few.jsonl"], "documents without texts (89)"),
        (["sparse=impact", "sparse.impacts=impacts.jsonl", VECTORS, "sparse.tokenizer=words.json",
          "+sparse.document_texts=texts.jsonl"], "document_texts: is not of sparse=impact"),
        (["sparse=impact", "sparse.impacts=impacts.jsonl", "sparse.tokenizer=words.json",
          "sparse.query_vectors=few.jsonl"], "queries without vectors (9)"),
        (["+sparse.query_vectors=vectors.jsonl"], "query_vectors: is not of sparse=bm25"),
    ],
)  # fmt: skip
def test_wrong_files_are_refused_before_the_run(place, overrides, told):
    folder = place[0]
    write_rows(folder / "few.jsonl", {"d0": {"texts": ["a"], "vector": {}}})
    with pytest.raises(DesaError) as found:
        desa_ray.plan([*dataset(folder / "small"), *SERIAL, "method=bm25", *overrides])
    assert told in str(found.value)
