"""A collection in another language, with the analyzer of that language."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.desa_fixtures import dataset

DOCUMENTS = {
    "d1": "Die Häuser der Altstadt werden renoviert.",
    "d2": "Der Zug fährt über die Brücke.",
    "d3": "Bäcker backen frisches Brot.",
}


@pytest.mark.long
def test_german_words_meet_in_their_stems(desa, tmp_path):
    """`Haus` finds `Häuser` with the German analyzer; with the English one it finds nothing."""
    folder = tmp_path / "german"
    _write(folder)
    arguments = ["-m", *dataset(folder), "method=bm25", "cluster=serial"]
    done = desa("run", *arguments, "sparse.analyzer=en,de", "draws=1")
    assert done.returncode == 0, done.stderr
    found = {}
    for file in sorted(tmp_path.rglob("records.parquet")):
        record = pl.read_parquet(file).row(0, named=True)
        analyzer = json.loads(record["settings"]).get("sparse.analyzer", "en")
        found[analyzer] = record["sparse_support"], record["ndcg_at_10"]
    assert found == {"en": (0, 0.0), "de": (1, 1.0)}


def _write(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": name, "title": "", "text": text} for name, text in DOCUMENTS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "Haus"}))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
