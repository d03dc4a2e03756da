"""What is wrong with a folder in BEIR layout is told with its place, all of it at once."""

from pathlib import Path
from typing import Any

import pytest

from desa_ray.errors import Problems
from tests.data.beir_files import (
    DOCUMENTS,
    QRELS,
    QUERIES,
    documents,
    jsonl,
    load,
    refusal,
    tsv,
    write,
)

CORPUS, ASKED, JUDGED = "documents", "queries", "qrels"
# what is wrong -> (the file it is in, its rows, the message)
REFUSALS: dict[str, tuple[str, list[Any], str]] = {
    "duplicate document ids": (
        CORPUS,
        documents("d1", "d1"),
        "mine corpus: duplicate document ids (1): 'd1'",
    ),
    "duplicate query ids": (ASKED, QUERIES * 3, "mine queries: duplicate query ids (1): 'q1'"),
    "empty document ids": (CORPUS, documents("", "d1"), "mine corpus: empty document ids (1)"),
    "empty query ids": (
        ASKED,
        [*QUERIES, {"_id": "", "text": "x"}],
        "mine queries: empty query ids (1)",
    ),
    "ids without a UTF-8 form": (
        CORPUS,
        documents("d1", "d\ud800"),
        r"mine corpus: document ids with a lone surrogate (1): 'd\ud800'",
    ),
    "texts without a UTF-8 form": (
        ASKED,
        [{"_id": "q1", "text": "\udfff"}],
        "mine queries: query texts with a lone surrogate, of ids (1): 'q1'",
    ),
    "titles without a UTF-8 form": (
        CORPUS,
        [{"_id": "d1", "title": "\ud83e", "text": "x"}],
        "mine corpus: document texts with a lone surrogate, of ids (1): 'd1'",
    ),
    "too long ids": (
        CORPUS,
        documents("ü" * 16_384),
        "mine corpus: document ids over 32766 bytes (1): 'üüü",
    ),
    "unknown queries": (
        JUDGED,
        [*QRELS, ("q9", "d1", 0)],
        "mine qrels: judged queries that are not in the queries file (1): 'q9'",
    ),
    "contradictory grades": (
        JUDGED,
        [*QRELS, ("q1", "d1", 2)],
        "mine qrels: judgments with contradictory grades (1): 'q1/d1'",
    ),
    "an empty corpus": (CORPUS, [], "mine corpus: empty"),
    "no queries": (ASKED, [], "mine queries: empty"),
    "no positive judgment": (JUDGED, [("q1", "d1", 0)], "mine qrels: no positive judgment"),
    "no judgment": (JUDGED, [], "mine qrels: no positive judgment"),
    "a cut line": (
        CORPUS,
        [*DOCUMENTS, '{"_id": "d3", "te'],
        "corpus.jsonl:3: malformed JSON: Unterminated string",
    ),
    "nesting beyond any stack": (
        CORPUS,
        [*DOCUMENTS, "[" * 200_000],
        "corpus.jsonl:3: malformed JSON: nested too deeply",
    ),
    "a field twice": (
        CORPUS,
        [*DOCUMENTS, '{"_id": "d3", "_id": "d4", "text": "x"}'],
        "corpus.jsonl:3: malformed JSON: '_id' is listed twice",
    ),
    "an array": (ASKED, [*QUERIES, "[]"], "queries.jsonl:2: not a JSON object but list"),
    "no id": (CORPUS, [*DOCUMENTS, {"text": "x"}], 'corpus.jsonl:3: field "_id" is missing'),
    "no text": (ASKED, [*QUERIES, {"_id": "q2"}], 'queries.jsonl:2: field "text" is missing'),
    "a number as id": (
        ASKED,
        [*QUERIES, {"_id": 3, "text": "x"}],
        'queries.jsonl:2: field "_id" is not a string: 3 (write it in quotes: "3")',
    ),
    "an array as title": (
        CORPUS,
        [*DOCUMENTS, {"_id": "d3", "title": ["x"], "text": "x"}],
        'corpus.jsonl:3: field "title" is not a string',
    ),
    "null as text": (
        ASKED,
        [*QUERIES, {"_id": "q2", "text": None}],
        'queries.jsonl:2: field "text" is not a string',
    ),
    "a decimal grade": (
        JUDGED,
        [*QRELS, "q1\td2\t1.0"],
        "test.tsv:3: the grade is not a whole number",
    ),
    "a huge grade": (
        JUDGED,
        [*QRELS, "q1\td2\t99999999999"],
        "test.tsv:3: the grade is not a whole number",
    ),
    "an empty grade": (JUDGED, [*QRELS, "q1\td2\t"], "test.tsv:3: the grade is not a whole number"),
    "two columns": (JUDGED, [*QRELS, "q1\td2"], "test.tsv:3: not three tab-separated columns"),
    "a TREC line": (
        JUDGED,
        [*QRELS, "q1 0 d2 1"],
        "test.tsv:3: not three tab-separated columns: 'q1 0 d2 1'",
    ),
}


@pytest.mark.parametrize(("file", "rows", "text"), REFUSALS.values(), ids=REFUSALS.keys())
def test_bad_input_is_refused_with_its_place(
    tmp_path: Path, file: str, rows: list[Any], text: str
) -> None:
    assert text in refusal(write(tmp_path, **{file: rows}))


def test_an_id_of_32766_bytes_is_the_longest(tmp_path: Path) -> None:
    assert load(write(tmp_path, documents("d1", "ü" * 16_383))).documents.height == 2


def test_a_qrels_file_without_the_header_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "qrels" / "test.tsv").write_text("q1\td1\t1\n")
    assert "test.tsv:1: the header is not that of BEIR's qrels: 'q1\\td1\\t1'" in refusal(folder)


def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "queries.jsonl").write_bytes(
        jsonl(QUERIES).encode() + b'{"_id": "q2", "text": "caf\xe9"}\n'
    )
    assert "queries.jsonl:2: not UTF-8: byte 0xe9 at column 27" in refusal(folder)


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    rows = [*documents("d1", "d1", ""), "{", "oops", {"_id": "d2", "text": 5}]
    folder = write(
        tmp_path,
        rows,
        [*QUERIES, {"_id": "q\ud800", "text": "x"}],
        [*QRELS, ("q1", "gone", 1), "x"],
    )
    with pytest.raises(Problems) as caught:
        load(folder)
    text = str(caught.value)
    assert len(caught.value.problems) == len(text.splitlines()) == 7
    assert "corpus.jsonl:4: malformed JSON: Expecting property name" in text
    assert "; 2 such lines, also 5" in text


def test_many_bad_ids_are_counted_and_the_first_ten_named(tmp_path: Path) -> None:
    names = [f"d{number:02d}" for number in range(1, 31)]
    text = refusal(write(tmp_path, [*DOCUMENTS, *documents(*names, *names)]))
    assert "duplicate document ids (30): 'd01', 'd02'," in text
    assert "'d10' and 20 more" in text


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_named_with_the_layout_that_is_wanted(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path)
    (folder / "qrels" / "dev.tsv").write_text(tsv(QRELS))
    (folder / name).unlink()
    text = refusal(folder)
    layout = "corpus.jsonl, queries.jsonl, qrels/test.tsv"
    assert f"{folder}: lacks {name} (the BEIR layout requires {layout}" in text
    assert "existing splits: dev" in text


def test_a_path_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'}: no such folder or zip"
    assert "dataset.path: no folder or zip given" in refusal(tmp_path, path=None)
    (tmp_path / "file").write_text("x")
    assert "cannot be opened as a folder or zip" in refusal(tmp_path / "file")
