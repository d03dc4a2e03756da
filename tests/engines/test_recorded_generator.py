"""Recorded text becomes complete generation records, or every reason why not is told."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from desa_ray.data.demo import generations_folder
from desa_ray.engines.generation import GENERATION_SCHEMA
from desa_ray.engines.prompts import load_prompt
from desa_ray.engines.recorded_generator import (
    COUNTS,
    RecordedGenerations,
    read_recorded,
    recorded_fingerprint,
)
from desa_ray.errors import DesaError, Problems

REFERENCES = load_prompt("references")
FIVE = ["One fish.", "Two fish.", "Red fish.", "Blue fish.", "Old fish."]


def row(query: str, draw: int, texts: Any = FIVE, prompt: str = "references") -> dict[str, Any]:
    return {"query_id": query, "prompt": prompt, "draw": draw, "texts": texts}


def write(folder: Path, rows: Sequence[dict[str, Any] | str], name: str = "references") -> Path:
    lines = [line if isinstance(line, str) else json.dumps(line) for line in rows]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def read(
    folder: Path, queries: Sequence[str] = ("a", "b"), draws: int = 2, **options: Any
) -> RecordedGenerations:
    defaults = {
        "query_texts": [f"text of {query}" for query in queries],
        "dataset": "mine",
        "strict": False,
    }
    return read_recorded(
        folder, REFERENCES, query_ids=queries, draws=range(draws), **(defaults | options)
    )


ALL = [row(query, draw) for query in "ab" for draw in (0, 1)]


def test_a_record_has_every_field_of_a_generation_and_nulls(
    tmp_path: Path,
) -> None:
    """A record has every field of a generation and nulls where only an engine knows."""
    found = read(write(tmp_path, ALL))
    assert found.records.schema == GENERATION_SCHEMA
    first = found.records.row(0, named=True)
    assert first == {
        **dict.fromkeys(GENERATION_SCHEMA.names()),
        "query_id": "a",
        "prompt": "references",
        "draw": 0,
        "texts": FIVE,
        "prompt_hash": REFERENCES.hash,
        "retries": 0,
        "fallback": False,
        "generator": "recorded",
        "text_hash": hashlib.sha256(
            b'["One fish.","Two fish.","Red fish.","Blue fish.","Old fish."]'
        ).hexdigest(),
    }
    assert found.counts == dict.fromkeys(COUNTS, 0)


def test_the_order_of_lines_does_not_matter_and_queries_stand(tmp_path: Path) -> None:
    """The order of lines does not matter and queries stand in utf8 order."""
    queries = ["10", "9", "\uffff", "🧬"]  # UTF-16 would put the last before the third
    rows = [row(query, draw) for draw in (1, 0) for query in ("🧬", "9", "\uffff", "10")]
    found = read(write(tmp_path, rows), queries=queries).records
    assert list(found.select("query_id", "draw").iter_rows()) == [
        (query, draw) for query in queries for draw in (0, 1)
    ]


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_the_demos_recordings_are_read_whole() -> None:
    needs = lines_of(generations_folder().parent / "needs.jsonl")
    assert_read_whole(generations_folder(), {row["id"]: row["text"] for row in needs}, 40)


def test_recordings_of_scifact_are_read_whole(scifact_folder: Path) -> None:
    rows = lines_of(scifact_folder / "queries.jsonl")
    queries = {row["_id"]: row["text"] for row in rows}
    assert_read_whole(scifact_folder / "generations", queries, 300, "query2doc")


def assert_read_whole(
    folder: Path, texts: dict[str, str], judged: int, *further: str, draws: int = 3
) -> None:
    """Every row of the files is found, with its texts."""
    for name in ("references", *further):
        prompt = load_prompt(name)
        found = read_recorded(
            folder,
            prompt,
            query_ids=list(texts),
            query_texts=list(texts.values()),
            dataset="any",
            draws=range(draws),
            strict=False,
        )
        assert found.records.height == judged * draws
        assert set(found.records["texts"].list.len()) == {prompt.text_count}
        raw = lines_of(folder / f"{name}.jsonl")
        assert sorted((row["query_id"], row["draw"], row["texts"]) for row in raw) == [
            tuple(record)
            for record in found.records.select("query_id", "draw", "texts").iter_rows()
        ]
        repeated = sum(
            len(row["texts"]) - len({text.strip().casefold() for text in row["texts"]})
            for row in raw
        )
        assert found.counts["duplicate_texts"] == repeated
        assert found.counts["fallbacks"] == 0


def test_strict_reading_falls_back_where_live_output_would(tmp_path: Path) -> None:
    rows = [
        row("a", 0),
        row("a", 1, [*FIVE[:4], "one FISH. "]),
        row("b", 0, FIVE[:3]),
        row("b", 1, [*FIVE[:4], "n/a"]),
    ]
    found = read(write(tmp_path, rows), strict=True)
    assert found.counts["fallbacks"] == 3
    records = found.records.to_dicts()
    assert [record["fallback"] for record in records] == [False, True, True, True]
    assert [record["reason"] for record in records] == [
        None,
        "item 5 is a duplicate of item 1",
        "the array has 3 items instead of 5",
        "item 5 is a placeholder: 'n/a'",
    ]
    assert [record["texts"] for record in records[1:]] == [[], [], []]


def test_blemishes_are_counted_where_reading_is_not_strict(tmp_path: Path) -> None:
    rows = [*ALL[:3], row("b", 1, ["Same.", "same. ", "n/a", "markdown", "TEXT of b"])]
    counts = read(write(tmp_path, rows)).counts
    assert (
        counts["duplicate_texts"],
        counts["placeholder_texts"],
        counts["texts_equal_to_query"],
    ) == (1, 2, 1)


def test_rows_nobody_asked_for_are_passed_over_and_counted(tmp_path: Path) -> None:
    found = read(write(tmp_path, [*ALL, row("z", 0), row("z", 1, []), row("a", 2)]))
    assert found.records.height == 4
    assert (found.counts["rows_of_unknown_queries"], found.counts["rows_of_other_draws"]) == (2, 1)


def test_missing_rows_are_counted_and_named(tmp_path: Path) -> None:
    with pytest.raises(DesaError) as caught:
        read(write(tmp_path, ALL[1:]), queries=["a", "b", *map(str, range(10, 21))])
    text = str(caught.value)
    assert "23 of 26 rows missing for the queries of mine" in text
    assert "'10' draw 0" in text
    assert "and 13 more" in text
    with pytest.raises(
        DesaError, match="1 of 4 rows missing for the queries of mine: query 'a' draw 0 "
    ):
        read(write(tmp_path, ALL[1:]))


def test_a_repeated_row_is_refused_with_both_lines(tmp_path: Path) -> None:
    with pytest.raises(
        DesaError,
        match=r"repeated rows of one query and draw .1.: lines 2 and 5 \(query 'a' draw 1\)",
    ):
        read(write(tmp_path, [*ALL, row("a", 1)]))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"query_id": "a", ', "malformed JSON: "),
        ('["a", 0]', "not a JSON object but list"),
        ('{"query_id": "a", "draw": 7, "draw": 0}', "malformed JSON: 'draw' is listed twice"),
        (row("a", 0, FIVE[:4]), "4 texts instead of 5: query 'a' draw 0"),
        (row("a", 0, [*FIVE, "x"]), "6 texts instead of 5"),
        (row("a", 0, [*FIVE[:4], "  "]), "item 5 is empty"),
        (row("a", 0, [*FIVE[:4], None]), "item 5 is not a string but null"),
        (row("a", 0, [*FIVE[:4], "\ud800"]), "item 5 has a lone surrogate"),
        (row("a", 0, "One fish."), 'field "texts" is missing or wrong'),
        (row("a", 0, prompt="query2doc"), "field \"prompt\" is missing or wrong: 'query2doc'"),
        (row("a", True), 'field "draw" is missing or wrong'),
        (row("a", -1), 'field "draw" is missing or wrong'),
        (
            {"prompt": "references", "draw": 0, "texts": FIVE},
            'field "query_id" is missing or wrong',
        ),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(
    tmp_path: Path, line: dict[str, Any] | str, what: str
) -> None:
    with pytest.raises(DesaError) as caught:
        read(write(tmp_path, [*ALL[1:], line]))
    assert f"references.jsonl:4: {what}" in str(caught.value)


def test_all_findings_come_together(tmp_path: Path) -> None:
    with pytest.raises(Problems) as caught:
        read(write(tmp_path, [row("a", 0), row("a", 0), "{", row("b", 0, [])]))
    assert len(caught.value.problems) == 4  # malformed, no texts, repeated, missing


def test_passages_are_cut_as_their_prompt_says(tmp_path: Path) -> None:
    long = " ".join(f"word{number}" for number in range(130))
    write(tmp_path, [row("a", 0, [long], prompt="query2doc")], name="query2doc")
    found = read_recorded(
        tmp_path,
        load_prompt("query2doc"),
        query_ids=["a"],
        query_texts=["q"],
        dataset="mine",
        draws=[0],
        strict=False,
    )
    assert found.records["texts"].to_list() == [[" ".join(long.split()[:120])]]
    assert found.counts["texts_cut"] == 1


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        DesaError, match=r"references.jsonl: no recorded texts of the prompt references"
    ):
        read(tmp_path)
    with pytest.raises(DesaError, match=r"generator\.folder="):
        recorded_fingerprint(tmp_path, REFERENCES)


def test_the_fingerprint_changes_with_any_row(tmp_path: Path) -> None:
    """The fingerprint changes with any row and not with their order."""
    write(tmp_path, ALL)
    file = tmp_path / "references.jsonl"
    before = recorded_fingerprint(tmp_path, REFERENCES)
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join(reversed(lines)))
    assert recorded_fingerprint(tmp_path, REFERENCES) == before
    file.write_bytes(b"\n".join(lines).replace(b"e", b"i", 1))
    assert recorded_fingerprint(tmp_path, REFERENCES) != before
