"""Tables in files of any form, and MS MARCO's, are the collection that BEIR's layout gives."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from beir_files import config, load, refusal, write

from desa_ray.data import fingerprint
from desa_ray.types import Collection

DOCUMENTS: list[dict[str, Any]] = [
    {
        "_id": f"{number}",
        "title": "" if number % 2 else f"Title {number}",
        "text": f"text é {number}",
    }
    for number in (10, 9, 2, 100, 1, 33)
]
QUERIES: list[dict[str, Any]] = [{"_id": "7", "text": "what"}, {"_id": "8", "text": "which"}]
QRELS = [("7", "10", 1), ("7", "2", 0), ("8", "33", 2)]
JUDGED = [{"query-id": int(q), "corpus-id": d, "score": float(grade)} for q, d, grade in QRELS]


def whole(folder: Path) -> Collection:
    """The collection as BEIR's layout gives it."""
    return load(write(folder / "beir", DOCUMENTS, QUERIES, QRELS))


def same(found: Collection, expected: Collection) -> None:
    assert found.corpus_hash == expected.corpus_hash
    assert found.queries_hash == expected.queries_hash
    assert found.qrels_hash == expected.qrels_hash


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_dataset(folder: Path, rows: list[dict[str, Any]], files: int) -> None:
    """What `save_to_disk` of `datasets` writes: streams of arrow, JSON, and perhaps a cache."""
    folder.mkdir(parents=True)
    for number in range(files):
        table = pa.Table.from_pylist(rows[number::files])
        name = folder / f"data-{number:05d}-of-{files:05d}.arrow"
        with pa.OSFile(str(name), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    (folder / "state.json").write_text("{}")
    (folder / "dataset_info.json").write_text("{}")
    (folder / "cache-1.arrow").write_bytes(b"not arrow")


def test_parquet_files_and_integer_ids(tmp_path):
    """Several parquet files; ids of integers and grades of floats are what their digits say."""
    folder = tmp_path / "tables"
    (folder / "qrels").mkdir(parents=True)
    for number in range(2):
        part = pl.DataFrame(DOCUMENTS[number::2]).rename({"_id": "id"})
        part = part.with_columns(pl.col("id").cast(pl.Int64), url=pl.lit("x"))
        part.write_parquet(folder / f"corpus-{number:05d}-of-00002.parquet", row_group_size=2)
    pl.DataFrame(QUERIES).write_parquet(folder / "queries.parquet")
    pl.DataFrame(JUDGED).write_parquet(folder / "qrels" / "test-00000-of-00001.parquet")
    same(load(folder, kind="tables"), whole(tmp_path))


def test_datasets_on_disk_and_folders_of_many_files(tmp_path):
    """Arrow files as `datasets` keeps them, JSONL of three packings in a folder, TSV judgments."""
    folder = tmp_path / "tables"
    as_dataset(folder / "corpus" / "train", DOCUMENTS, 2)
    (folder / "queries").mkdir()
    (folder / "queries" / "a.jsonl.gz").write_bytes(gzip.compress(lines(QUERIES[:1])))
    (folder / "queries" / "b.jsonl").write_bytes(lines(QUERIES[1:]))
    beir = tmp_path / "beir"
    expected = whole(tmp_path)
    (beir / "qrels").rename(folder / "qrels")
    same(load(folder, kind="tables"), expected)
    before = fingerprint(config(folder, kind="tables"), data_home=tmp_path)
    plain = lines(QUERIES[:1])
    (folder / "queries" / "a.jsonl.gz").unlink()
    (folder / "queries" / "a.jsonl").write_bytes(plain)
    assert fingerprint(config(folder, kind="tables"), data_home=tmp_path) == before
    (folder / "queries" / "a.jsonl").write_bytes(plain + lines([{"_id": "9", "text": "new"}]))
    assert fingerprint(config(folder, kind="tables"), data_home=tmp_path) != before


def test_an_arrow_file_with_an_index(tmp_path):
    """Arrow's other form, which other programs write."""
    folder = tmp_path / "tables"
    write(folder, DOCUMENTS, QUERIES, QRELS)
    (folder / "corpus.jsonl").unlink()
    table = pa.Table.from_pylist(DOCUMENTS)
    name = str(folder / "corpus.arrow")
    with pa.OSFile(name, "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    same(load(folder, kind="tables"), whole(tmp_path))


def test_problems_of_tables_name_file_and_row(tmp_path):
    """Rows of columnar files are named as lines are; damaged files and absent tables by name."""
    folder = write(tmp_path / "tables", DOCUMENTS, QUERIES, QRELS)
    (folder / "corpus.jsonl").unlink()
    rows = pl.DataFrame({"_id": ["a", None, "c"], "text": ["x", "y", None]})
    rows.write_parquet(folder / "corpus.parquet")
    pl.DataFrame({"query-id": ["7"], "corpus-id": ["a"], "score": [0.5]}).write_parquet(
        folder / "qrels" / "test.parquet"
    )
    (folder / "qrels" / "test.tsv").unlink()
    found = refusal(folder, kind="tables")
    assert 'corpus.parquet:2: field "_id" is missing' in found
    assert 'corpus.parquet:3: field "text" is missing' in found
    assert "test.parquet:1: the grade is not a whole number: 0.5" in found
    (folder / "corpus.parquet").write_bytes((folder / "corpus.parquet").read_bytes()[:-9])
    assert "corpus.parquet: cannot be read after row 0" in refusal(folder, kind="tables")
    (folder / "corpus.parquet").rename(folder / "documents.parquet")
    assert "lacks corpus" in refusal(folder, kind="tables")
    assert "lacks corpus, qrels/dev" in refusal(folder, kind="tables", split="dev")
    assert "no such folder" in refusal(folder / "nowhere", kind="tables")
    assert "is not a name" in refusal(folder, kind="tables", split="../../secret")
    assert "is not a name" in refusal(folder, kind="msmarco", split="../secret")
    (folder / "corpus.tsv").write_text("1\tx\n")
    assert "is a TSV file" in refusal(folder, kind="tables")


@pytest.mark.parametrize("broken", [False, True])
def test_msmarco_files(tmp_path, broken):
    """MS MARCO's files, packed or not; unjudged queries stay out and are counted."""
    folder = tmp_path / "msmarco"
    folder.mkdir()
    texts = [(row["_id"], f"{row['title']} {row['text']}".strip()) for row in DOCUMENTS]
    collection = "".join(f"{key}\t{text}\n" for key, text in texts).encode()
    (folder / "collection.tsv.gz").write_bytes(gzip.compress(collection))
    asked = "7\twhat\n8\twhich\n9\tnobody judges this\n" + ("no tab\n" if broken else "")
    (folder / "queries.dev.small.tsv").write_text(asked)
    judged = "".join(f"{q}\t0\t{d}\t{grade}\n" for q, d, grade in QRELS)
    (folder / "qrels.dev.small.tsv").write_text(judged + ("7 0 10 high\n7 0\n" if broken else ""))
    given = {"kind": "msmarco", "split": "dev.small"}
    if broken:
        found = refusal(folder, **given)
        assert "queries.dev.small.tsv:4: no tab after an id: 'no tab'" in found
        assert "qrels.dev.small.tsv:4: the grade is not a whole number: 'high'" in found
        assert "qrels.dev.small.tsv:5: not four columns" in found
        assert "lacks queries.dev.tsv, qrels.dev.tsv" in refusal(folder, **given | {"split": "dev"})
        return
    found = load(folder, **given)
    same(found, whole(tmp_path))
    assert found.counts["queries_without_judgments"] == 1


def test_ids_of_msmarco_keep_blanks_that_are_not_ascii(tmp_path):
    """Otherwise a judgment would be of another id than the collection's."""
    folder = tmp_path / "msmarco"
    folder.mkdir()
    (folder / "collection.tsv").write_text("1\u00a0\tfish\n1\tbirds\n2\u2028\tswim\n")
    (folder / "queries.test.tsv").write_text("7\u3000\twhat\n")
    (folder / "qrels.test.tsv").write_text("7\u3000\t0\t1\u00a0\t1\n7\u3000 0 2\u2028 1\n")
    found = load(folder, kind="msmarco", split="test")
    assert found.qrels["doc_id"].to_list() == ["1\u00a0", "2\u2028"]
