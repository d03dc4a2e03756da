"""Answers of search engines: one ranked list from JSON, a neutral TSV or a TREC run.

What each engine calls its hits, ids and scores stands in small files of `answer_formats/`.
"""

import json
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from desa_ray.data.trec import read_scored_run
from desa_ray.errors import DesaError

FORMATS = ("elasticsearch", "opensearch", "qdrant", "weaviate", "milvus", "lancedb")
NEUTRAL = ("tsv", "trec")
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
    """The list in a file.

    Args:
        form: a format; told by the file's name and content where left out.
        query: which query of a TREC run or TSV; needed if there are several.
        ascending: the scores are distances: smaller is better.

    Raises:
        DesaError: a file that cannot be read, has no hits, or is of no known format; scores of some
            hits only, or that are no numbers; several queries and none named.
    """
    place = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DesaError(f"cannot be read: {error}", where=place) from None
    if form is not None and form not in (*FORMATS, *NEUTRAL):
        raise DesaError(f"unknown format {form!r}", where="--format", hint=HINT)
    if form in FORMATS or (form is None and text.lstrip()[:1] in ("{", "[")):
        ids, scores, distances = _of_json(text, form, place)
        ascending = ascending or distances
    elif form == "trec" or (form is None and len(text.split("\n", 1)[0].split()) == 6):
        ids, scores = _chosen(read_scored_run(path), query, place)
    else:
        ids, scores = _chosen(_of_tsv(text, place), query, place)
    if not ids:
        raise DesaError("contains no hits", where=place, hint=HINT)
    return RankedAnswer(path.stem, tuple(ids), tuple(scores), ascending)


def _chosen(
    run: dict[str, list[tuple[str, float]]], query: str | None, place: str
) -> tuple[list[str], list[float]]:
    if query is None and len(run) != 1:
        what = f"holds {len(run)} queries"
        raise DesaError(what, where=place, hint="name one with --query")
    pairs = run.get(query if query is not None else next(iter(run)), [])
    return [document for document, _ in pairs], [score for _, score in pairs]


def _of_tsv(text: str, place: str) -> dict[str, list[tuple[str, float]]]:
    """Lines of query, document and score, between tabs, in the order of the list."""
    run: dict[str, list[tuple[str, float]]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != 3:
            what = f"line {number} has {len(fields)} fields"
            raise DesaError(what, where=place, hint="write: query TAB document TAB score")
        run.setdefault(fields[0], []).append((fields[1], _number(fields[2], f"{place}:{number}")))
    return run


def _of_json(text: str, form: str | None, place: str) -> tuple[list[str], list[float], bool]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DesaError(f"is not JSON: {error}", where=place, hint=HINT) from None
    for name in (form,) if form is not None else FORMATS:
        layout = _layout(name)
        hits: Any = _at(tree, layout["hits"])
        marked = form is not None or all(_at(tree, [mark]) is not None for mark in layout["marks"])
        if isinstance(hits, list) and marked:
            return _hits(cast(list[Any], hits), layout, place)
    what = "is not an answer of " + (form or "a known engine")
    raise DesaError(what, where=place, hint=HINT)


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
            raise DesaError(f"{len(hits) - there} hits have no score", where=place)
        if there:
            return ids, [_number(value, place) for value in values], key == "distance"
    return ids, [], False


def _number(value: object, place: str) -> float:
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        number = float("nan")
    if not abs(number) < 1e100:
        raise DesaError(f"score {str(value)[:40]!r} is not a number", where=place)
    return number


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
