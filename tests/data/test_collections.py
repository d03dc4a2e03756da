"""A folder in BEIR layout becomes the collection method.md section 1 describes, or all reasons why
not.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from desa_ray.data import fingerprint
from tests.data.beir_files import (
    DOCUMENTS,
    HEADER,
    QRELS,
    QUERIES,
    config,
    documents,
    jsonl,
    load,
    refusal,
    tsv,
    write,
)

RELEASE = "addd5cbe4c634905c6f45aacbbf58e2409ffee1edc7e2765f62e599b4ba68749"  # its SciFact


def test_scifact_has_its_published_size(scifact_folder: Path) -> None:
    found = load(scifact_folder, name="scifact")
    assert (found.documents.height, found.queries.height, found.qrels.height) == (5183, 300, 339)
    assert set(found.counts.values()) == {0}
    rows = [json.loads(line) for line in (scifact_folder / "corpus.jsonl").open(encoding="utf-8")]
    ids = [row["_id"] for row in rows]
    assert found.documents["id"].to_list() == sorted(ids, key=str.encode)
    texts = dict(found.documents.select("id", "text").iter_rows())
    indexed = hashlib.sha256()  # as the release indexed them
    for row in rows:
        parts = [part for part in (row["title"].strip(), row["text"].strip()) if part]
        assert texts[row["_id"]].split() == " ".join(parts).split()
        line = json.dumps({"id": row["_id"], "contents": "\n".join(parts)}, ensure_ascii=False)
        indexed.update(f"{line}\n".encode())
    assert indexed.hexdigest() == RELEASE


def test_cranfields_empty_documents_are_kept_and_counted(cranfield_folder: Path) -> None:
    found = load(cranfield_folder, name="cranfield")
    assert (found.documents.height, found.queries.height, found.qrels.height) == (1400, 225, 1837)
    assert found.documents.filter(pl.col("text") == "")["id"].to_list() == ["471", "995"]
    assert found.counts["empty_documents"] == 2


def test_the_title_is_joined_by_one_blank_and_left_out(tmp_path: Path) -> None:
    """The title is joined by one blank and left out where it is empty."""
    rows = [
        {"_id": "1", "title": "Title", "text": "text"},
        {"_id": "2", "title": "", "text": " text "},
        {"_id": "3", "text": "text"},
        {"_id": "4", "title": None, "text": "text"},
        {"_id": "5", "title": "Title", "text": ""},
        {"_id": "6", "title": " ", "text": "text", "metadata": {"url": "x"}},
    ]
    found = load(write(tmp_path, rows, qrels=[("q1", "1", 1)]))
    assert found.documents["text"].to_list() == [
        "Title text",
        " text ",
        "text",
        "text",
        "Title ",
        "  text",
    ]


def test_documents_and_queries_stand_in_the_order_of_their_utf8(tmp_path: Path) -> None:
    """Documents and queries stand in the order of their utf8 bytes."""
    ids = ["10", "9", "a", "Z", "é", "\uffff", "🧬", "\u2028", " "]
    rows = [{"_id": name, "text": "x"} for name in ids]
    found = load(write(tmp_path, documents(*ids), rows, [(name, name, 1) for name in ids]))
    expected = sorted(ids, key=str.encode)
    assert found.documents["id"].to_list() == found.queries["id"].to_list() == expected
    assert found.qrels["query_id"].to_list() == expected
    assert found.qrels.schema == {"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32}


def test_the_order_of_lines_does_not_matter(tmp_path: Path) -> None:
    one = load(write(tmp_path / "a"))
    other = load(write(tmp_path / "b", DOCUMENTS[::-1]))
    assert one.corpus_hash == other.corpus_hash


def test_crlf_byte_order_marks_blank_lines_and_unicode_line_ends(
    tmp_path: Path,
) -> None:
    """Crlf byte order marks blank lines and unicode line ends are tolerated."""
    plain = load(write(tmp_path / "a", [{"_id": "d1", "title": "", "text": "one\u2028two\u0085"}]))
    folder = write(tmp_path / "b")
    text = '{"_id": "d1", "title": "", "text": "one\u2028two\u0085"}'
    (folder / "corpus.jsonl").write_bytes(f"\ufeff{text}\r\n\r\n".encode())
    (folder / "queries.jsonl").write_bytes(
        b"\xef\xbb\xbf" + jsonl(QUERIES).replace("\n", "\r\n").encode()
    )
    (folder / "qrels" / "test.tsv").write_bytes(f"\ufeff{HEADER}\r\nq1\td1\t1".encode())
    other = load(folder)
    assert (plain.corpus_hash, plain.queries_hash, plain.qrels_hash) == (
        other.corpus_hash,
        other.queries_hash,
        other.qrels_hash,
    )


def test_oddities_that_retrieval_copes_with_are_kept_and_counted(tmp_path: Path) -> None:
    queries = [
        *QUERIES,
        {"_id": "q2", "text": " "},
        {"_id": "q3", "text": "judged 0"},
        {"_id": "q4", "text": "x"},
    ]
    rows = [*DOCUMENTS, {"_id": "d3", "title": "", "text": ""}]
    qrels = [
        *QRELS,
        ("q2", "d2", 1),
        ("q3", "d2", 0),
        ("q3", "d1", -1),
        ("q1", "d1", 1),
        ("q1", "nowhere", 0),
    ]
    found = load(write(tmp_path, rows, queries, qrels))
    assert found.counts == {
        "queries_of_other_splits": 0,
        "missing_relevant_dropped": 0,
        "missing_nonrelevant_dropped": 1,
        "duplicate_judgments": 1,
        "negative_grades": 1,
        "empty_documents": 1,
        "empty_queries": 1,
        "queries_without_positive": 2,
    }
    assert found.queries["id"].to_list() == ["q1", "q2", "q3", "q4"]
    assert list(found.qrels.iter_rows()) == [
        ("q1", "d1", 1),
        ("q2", "d2", 1),
        ("q3", "d1", 0),
        ("q3", "d2", 0),
    ]


def test_queries_of_other_splits_are_left_out(tmp_path: Path) -> None:
    queries = [{"_id": name, "text": "x"} for name in ("q1", "train1", "train2", "both", "nowhere")]
    folder = write(tmp_path, DOCUMENTS, queries, [*QRELS, ("both", "d1", 1)])
    (folder / "qrels" / "train.tsv").write_text(
        tsv([("train1", "d1", 1), ("train2", "d1", 0), ("both", "d2", 1)])
    )
    found = load(folder)
    assert found.queries["id"].to_list() == ["both", "nowhere", "q1"]
    assert found.counts["queries_of_other_splits"] == 2
    assert load(folder, split="train").queries["id"].to_list() == [
        "both",
        "nowhere",
        "train1",
        "train2",
    ]


def test_a_missing_relevant_document_is_an_error_or_dropped(tmp_path: Path) -> None:
    """A missing relevant document is an error or dropped and counted."""
    folder = write(tmp_path, qrels=[*QRELS, ("q1", "gone", 2), ("q1", "lost", 0)])
    text = refusal(folder)
    assert (
        "mine qrels: relevant documents that the corpus lacks (query/document) (1): 'q1/gone'"
        in text
    )
    assert "dataset.missing_relevant=drop" in text
    found = load(folder, missing_relevant="drop")
    assert list(found.qrels.iter_rows()) == QRELS
    assert (
        found.counts["missing_relevant_dropped"],
        found.counts["missing_nonrelevant_dropped"],
    ) == (1, 1)


def test_a_missing_relevant_document_may_be_kept(tmp_path: Path) -> None:
    """Its judgment stays, a query that asks for nothing else counts, and non-relevant ones go."""
    queries = [*QUERIES, {"_id": "q9", "text": "x"}]
    judged = [*QRELS, ("q1", "gone", 2), ("q1", "lost", 0), ("q9", "gone", 1)]
    found = load(write(tmp_path, queries=queries, qrels=judged), missing_relevant="keep")
    kept = [row for row in judged if row[1] != "lost"]
    assert sorted(found.qrels.iter_rows()) == sorted(kept)
    assert found.counts["missing_relevant_kept"] == 2
    assert found.counts["missing_relevant_dropped"] == 0
    assert found.counts["missing_nonrelevant_dropped"] == 1
    assert found.counts["queries_without_positive"] == len(queries) - 2


def test_the_fingerprint_follows_contents_and_settings(tmp_path: Path) -> None:
    """The fingerprint follows contents and settings and not the place."""
    folder = write(tmp_path / "a")

    def print_of(place: Path, **options: Any) -> str:
        return fingerprint(config(place, **options), data_home=tmp_path)

    first = print_of(folder)
    assert print_of(write(tmp_path / "elsewhere")) == first
    assert print_of(folder, missing_relevant="drop") != first
    (folder / "qrels" / "dev.tsv").write_text(tsv(QRELS))
    assert print_of(folder) != first, "another split decides whose the queries are"
    assert print_of(folder, split="dev") != print_of(folder)
    others = {
        print_of(write(tmp_path / "b", [*DOCUMENTS, *documents("d3")])),
        print_of(write(tmp_path / "c", queries=[{"_id": "q1", "text": "what swims?"}])),
        print_of(write(tmp_path / "d", qrels=[("q1", "d1", 2)])),
    }
    assert len(others | {first}) == 4


def test_chosen_queries_keep_their_judgments_and_nothing_else(tmp_path: Path) -> None:
    queries = [{"_id": name, "text": f"text of {name}"} for name in ("q1", "q2", "q3")]
    folder = write(
        tmp_path, queries=queries, qrels=[("q1", "d1", 1), ("q2", "d2", 1), ("q3", "d1", 1)]
    )
    whole, chosen = load(folder), load(folder, queries=("q3", "q1"))
    assert chosen.queries["id"].to_list() == ["q1", "q3"]
    assert chosen.qrels["query_id"].to_list() == ["q1", "q3"]
    assert chosen.corpus_hash == whole.corpus_hash
    assert load(folder, queries=("q1", "q2", "q3")).queries_hash == whole.queries_hash

    def print_of(**options: Any) -> str:
        return fingerprint(config(folder, **options), data_home=tmp_path)

    assert len({print_of(), print_of(queries=("q1",)), print_of(queries=("q1", "q3"))}) == 3
    assert print_of(queries=("q1", "q3")) == print_of(queries=("q3", "q1"))


def test_chosen_queries_that_do_not_exist_are_named(tmp_path: Path) -> None:
    message = refusal(write(tmp_path), queries=("q1", "q8", "q9"))
    assert "dataset.queries: queries that do not exist: q8, q9" in message


CONTROLS = ["\x00", "\x01", "\t", "\n", "\x1b", "\x1f", "\x7f", "\x80", "\x9f"]


@pytest.mark.parametrize("control", CONTROLS)
def test_ids_with_control_characters_are_refused_all_at_once(tmp_path: Path, control: str) -> None:
    """C strings end at NUL: two such ids were one, and every measure 0."""
    rows = documents("d1", f"x{control}a", f"x{control}b")
    text = refusal(write(tmp_path, rows, [*QUERIES, {"_id": f"q{control}2", "text": "x"}]))
    assert (
        f"mine corpus: document ids with control characters (2): {f'x{control}a'!r},"
        f" {f'x{control}b'!r} (" in text
    )
    assert f"mine queries: query ids with control characters (1): {f'q{control}2'!r} (" in text


def test_odd_ids_without_control_characters_are_kept(tmp_path: Path) -> None:
    names = ["\u00a0", "\u2028", "\u200b", "\u202e", "a b", "😀", "007", "7"]
    found = load(write(tmp_path, documents("d1", *names)))
    assert found.documents["id"].to_list() == sorted(["d1", *names])


def test_dropping_judgments_is_proposed_only_where_it_helps(tmp_path: Path) -> None:
    hint = "dataset.missing_relevant=drop"
    assert hint in refusal(write(tmp_path, qrels=[*QRELS, ("q1", "gone", 1)]))
    broken = refusal(
        write(tmp_path, [*DOCUMENTS, '{"_id": "d3", "te'], qrels=[*QRELS, ("q1", "d3", 1)])
    )
    assert hint not in broken
    assert "lacks (query/document) (1): 'q1/d3' (fix the corpus first" in broken
    assert hint not in refusal(write(tmp_path, qrels=[("q1", "d1", 0), ("q1", "gone", 1)]))


@pytest.mark.parametrize("missing_relevant", ["error", "drop", "keep"])
def test_judgments_of_another_id_space_are_named_with_an_example(
    tmp_path: Path, missing_relevant: str
) -> None:
    """Judgments of another id space are named with an example of each."""
    folder = write(tmp_path, documents("doc-7", "doc-8"), qrels=[("q1", "7", 1), ("q1", "8", 0)])
    text = refusal(folder, missing_relevant=missing_relevant)
    assert (
        "(use the qrels of this corpus: the judgments have ids like '7', the corpus has 'doc-7')"
        in text
    )
    assert "missing_relevant=drop" not in text


def test_padded_grades_and_judgments_that_repeat_are_read(
    tmp_path: Path,
) -> None:
    """Padded grades and judgments that repeat are read as compare reads them."""
    found = load(write(tmp_path, qrels=["q1\td1\t 2 ", "q1\td1\t2", "q1\td2\t+1"]))
    assert found.qrels.rows() == [("q1", "d1", 2), ("q1", "d2", 1)]
    assert found.counts["duplicate_judgments"] == 1


def test_a_permuted_corpus_is_the_same_collection(tmp_path: Path) -> None:
    rows = documents(*(f"d{n}" for n in range(50)))
    asked = [{"_id": f"q{n}", "text": "text"} for n in range(5)]
    judged = [(f"q{n}", f"d{n * 3}", 1) for n in range(5)]
    one = load(write(tmp_path / "one", rows, asked, judged))
    other = load(write(tmp_path / "other", rows[::-1], asked[3:] + asked[:3], judged[::-1]))
    assert (one.corpus_hash, one.queries_hash, one.qrels_hash) == (
        other.corpus_hash,
        other.queries_hash,
        other.qrels_hash,
    )
