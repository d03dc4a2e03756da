"""Answers of search engines: one ranked list from JSON, a neutral TSV or a TREC run.

What each engine calls its hits, ids and scores stands in small files of `answer_formats/`.
"""

import json
import math
import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from desa_ray.data.raw import BLANKS
from desa_ray.data.trec import scored_run
from desa_ray.errors import DesaError, choices
from desa_ray.lines import (
    BOM,
    DIGITS,
    OBJECTS,
    Findings,
    has_control,
    has_lone_surrogate,
    numbered_lines,
    shown,
    shown_value,
)
from desa_ray.printable import printable
from desa_ray.unpacking import file_blocks, without_suffix

FORMATS = (
    "elasticsearch",
    "opensearch",
    "qdrant",
    "qdrant_client",
    "weaviate",
    "milvus",
    "lancedb",
)
NEUTRAL = ("tsv", "trec")
LARGEST = 256 << 20  # bytes, unpacked
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)
HINT = f"use one of {', '.join((*FORMATS, *NEUTRAL))}"


@dataclass(frozen=True)
class RankedAnswer:
    """One list of an engine, in its own order.

    Attributes:
        name: for people.
        ids: as they stand, first to last; numbers as text.
        scores: as many, or none.
        ascending: whether the scores are distances, which rise.
    """

    name: str
    ids: tuple[str, ...]
    scores: tuple[float, ...]
    ascending: bool = False


def read_answer(
    path: Path, form: str | None = None, *, query: str | None = None, ascending: bool = False
) -> RankedAnswer:
    """The list in a file or pipe, which may be packed with gzip or zstd and is read once.

    Args:
        form: a format; told by the file's name and content where left out.
        query: which query of a TREC run or TSV; needed if there are several.
        ascending: the scores are distances: smaller is better.

    Raises:
        DesaError: a file that cannot be read, has no hits, or is of no known format; scores of some
            hits only, or that are no numbers; ids that are empty or have control characters;
            several queries and none named, or one that is not there.
    """
    place = str(path)
    if form is not None and form not in (*FORMATS, *NEUTRAL):
        raise DesaError(f"unknown format {form!r}", where="--format", hint=HINT)
    data = _bytes(path)
    if form in FORMATS or (form is None and data.lstrip()[:1] in (b"{", b"[")):
        ids, scores, distances = _of_json(_decoded(data, place), form, place)
        ascending = ascending or distances
    elif form == "trec" or (form is None and len(data.split(b"\n", 1)[0].split()) == 6):
        ids, scores = _chosen(scored_run([data], place), query, place)
    else:
        ids, scores = _chosen(_of_tsv(data, place), query, place)
    if not ids:
        raise DesaError("contains no hits", where=place, hint=HINT)
    for rank, own in enumerate(ids, 1):
        if not own or has_control(own) or has_lone_surrogate(own):
            what = f"hit {rank} has the id {shown(own)}: empty or not of printable characters"
            raise DesaError(what, where=place, hint="write ids without control characters")
    name = printable(path.with_name(without_suffix(path.name)).stem)
    return RankedAnswer(name, tuple(ids), tuple(scores), ascending)


def _bytes(path: Path) -> bytes:
    """All of a file or pipe, unpacked, without a byte order mark."""
    pieces: list[bytes] = []
    size = 0
    for block in file_blocks(path):
        size += len(block)
        if size > LARGEST:
            what = f"has more than {LARGEST >> 20} MiB"
            raise DesaError(what, where=str(path), hint="is this an answer to one query?")
        pieces.append(block)
    return b"".join(pieces).removeprefix(BOM)


def _decoded(data: bytes, place: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        what = f"is not UTF-8: byte {data[error.start]:#04x} at {error.start}"
        raise DesaError(what, where=place, hint="save the file as UTF-8") from None


def _chosen(
    run: dict[str, list[tuple[str, float]]], query: str | None, place: str
) -> tuple[list[str], list[float]]:
    if query is None and len(run) > 1:
        what = f"holds {len(run)} queries"
        raise DesaError(what, where=place, hint="name one with --query")
    if query is not None and query not in run:
        raise DesaError(f"has no query {shown(query)}", where=place, hint=choices(query, run, 5))
    pairs = run[query if query is not None else next(iter(run))] if run else []
    return [document for document, _ in pairs], [score for _, score in pairs]


def _of_tsv(data: bytes, place: str) -> dict[str, list[tuple[str, float]]]:
    """Lines of query, document and score, between tabs, in the order of the list."""
    run: dict[str, list[tuple[str, float]]] = {}
    findings = Findings()
    for number, line in numbered_lines([data], place, findings):
        fields = line.split("\t")
        if len(fields) == 3:
            score = _number(fields[2].strip(BLANKS), f"{place}:{number}")
            run.setdefault(fields[0], []).append((fields[1], score))
        else:
            hint = "write: query TAB document TAB score"
            findings.line(place, number, f"{len(fields)} fields, expected 3", hint=hint)
    findings.raise_if_any()
    return run


def _of_json(text: str, form: str | None, place: str) -> tuple[list[str], list[float], bool]:
    try:
        tree = OBJECTS.decode(text)
    except json.JSONDecodeError as error:
        what = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise DesaError(what, where=place, hint=HINT) from None
    except RecursionError:
        raise DesaError("is not JSON: nested too deeply", where=place, hint=HINT) from None
    except ValueError as error:
        reason = DIGITS if "set_int_max_str_digits" in str(error) else str(error)
        raise DesaError(f"is not JSON: {reason}", where=place, hint=HINT) from None
    for name in (form,) if form is not None else FORMATS:
        layout = _layout(name)
        hits: Any = _at(tree, layout["hits"])
        marked = form is not None or all(_at(tree, [mark]) is not None for mark in layout["marks"])
        if isinstance(hits, list) and marked:
            _check_whole(tree, place)
            return _hits(cast(list[Any], hits), layout, place)
    what = "is not an answer of " + (form or "a known engine")
    raise DesaError(what, where=place, hint=HINT)


def _check_whole(tree: Any, place: str) -> None:
    """Raises DesaError for an answer that says itself that hits are missing."""
    failed = _at(tree, ["_shards", "failed"])
    if failed or _at(tree, ["timed_out"]):
        what = f"is a part of an answer: {f'{failed} shards failed' if failed else 'timed out'}"
        raise DesaError(what, where=place, hint="ask the engine again")


def _hits(
    hits: list[Any], layout: dict[str, Any], place: str
) -> tuple[list[str], list[float], bool]:
    ids: list[str] = []
    for number, hit in enumerate(hits, 1):
        own = _at(hit, layout["id"])
        if isinstance(own, bool) or not isinstance(own, str | int):
            raise DesaError(f"hit {number} has no id", where=place, hint=".".join(layout["id"]))
        ids.append(str(own))
    for key in ("score", "alternative", "distance"):
        values = [_at(hit, layout[key]) for hit in hits] if key in layout else [None]
        there = sum(value is not None for value in values)
        if there and there < len(hits):
            what, hint = f"{len(hits) - there} hits have no score", "give all of them one, or none"
            raise DesaError(what, where=place, hint=hint)
        if there:
            return ids, [_number(value, place) for value in values], key == "distance"
    return ids, [], False


def _number(value: object, place: str) -> float:
    """A score: a number, or text that is one, as Weaviate writes it."""
    number = math.nan
    if isinstance(value, str) and NUMBER.fullmatch(value):
        number = float(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    if not abs(number) < 1e100:
        hint = "give every hit a finite score"
        raise DesaError(f"score {shown_value(value, 40)} is not a number", where=place, hint=hint)
    return float(number)


def _at(tree: Any, path: list[str]) -> Any:
    for key in path:
        if not isinstance(tree, dict):
            return None
        fields = cast(dict[str, Any], tree)
        if key == "*":
            tree = next(iter(fields.values())) if len(fields) == 1 else None
        else:
            tree = fields.get(key)
    return tree


def _layout(name: str) -> dict[str, Any]:
    text = files("desa_ray.data").joinpath("answer_formats", f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)
