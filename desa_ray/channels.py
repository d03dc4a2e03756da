"""Rankings in common formats: lists, dicts of scores, pandas and polars frames, ranx Runs, TREC
files.

A ranking is about one query, a run about many. Neither pandas nor ranx is imported here.
"""

import math
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from desa_ray.errors import DesaError

QUERY_COLUMNS = ("query_id", "qid", "q_id")
DOCUMENT_COLUMNS = ("doc_id", "docno", "docid")
COLUMNS_HINT = (
    "name the columns query_id (or qid), doc_id (or docno) and score; or rank, if there are no"
    " scores"
)


def plain_channels(channels: Sequence[object]) -> list[Any] | None:
    """The channels as lists of ids and dicts of scores; None if they are runs of many queries.

    Raises:
        DesaError: runs together with rankings of one query, or a frame without the columns.
    """
    runs = [is_run(channel) for channel in channels]
    if runs and all(runs):
        return None
    if any(runs):
        where = f"channel {runs.index(True)}"
        what = f"holds rankings of many queries, but channel {runs.index(False)} does not"
        raise DesaError(what, where=where, hint="give runs only, or rankings of one query only")
    return [
        _of_frame(channel, f"channel {number}")[None] if _is_frame(channel) else channel
        for number, channel in enumerate(channels)
    ]


def is_run(channel: object) -> bool:
    """Whether a channel holds rankings by query: a ranx Run, the path of a TREC run, a frame with a
    column of query ids, or a dict from query ids to rankings.
    """
    if isinstance(channel, str):
        return len(channel) < 4096 and "\0" not in channel and Path(channel).is_file()
    if _is_frame(channel):
        return _column(channel, QUERY_COLUMNS) is not None
    if isinstance(channel, Mapping):
        values = list(channel.values())
        return bool(values) and all(isinstance(own, Mapping | list | tuple) for own in values)
    return isinstance(channel, PathLike) or _is_ranx(channel)


def rankings(run: Any, name: str) -> Mapping[str, Any]:
    """Query id -> list of ids or dict of scores, of what `is_run` holds for a run.

    Raises:
        DesaError: as `desa_ray.data.trec.read_run`; a frame without the columns, or with a document
            twice in a query; a query id that is not a string.
    """
    if isinstance(run, str | PathLike):
        from desa_ray.data.trec import read_run

        return read_run(Path(fspath(run)))
    found: Any = run.to_dict() if _is_ranx(run) else run
    found = _of_frame(run, name) if _is_frame(run) else found
    for query in found:
        if not isinstance(query, str):
            what = f"query id {repr(query)[:80]} is not a string"
            raise DesaError(what, where=name, hint="write ids as strings")
    return found


def _is_ranx(channel: object) -> bool:
    return type(channel).__module__.partition(".")[0] == "ranx" and hasattr(channel, "to_dict")


def _is_frame(channel: object) -> bool:
    package = type(channel).__module__.partition(".")[0]
    return package in ("pandas", "polars") and type(channel).__name__ in ("DataFrame", "LazyFrame")


def _column(frame: Any, names: Sequence[str]) -> str | None:
    there = frame.collect_schema() if hasattr(frame, "collect_schema") else list(frame.columns)
    return next((name for name in names if name in there), None)


def _of_frame(frame: Any, name: str) -> dict[Any, Any]:
    """Query id (None where there is no such column) -> dict of scores, or where the frame has ranks
    only, dict of negative ranks.
    """
    frame = frame.collect() if hasattr(frame, "collect") else frame
    query, document = _column(frame, QUERY_COLUMNS), _column(frame, DOCUMENT_COLUMNS)
    score = _column(frame, ("score", "rank"))
    if document is None or score is None:
        have = ", ".join(map(str, frame.columns))[:200]
        lacks = "document ids" if document is None else "scores or ranks"
        raise DesaError(f"no column of {lacks} among {have}", where=name, hint=COLUMNS_HINT)
    sign = -1 if score == "rank" else 1
    documents, scores = frame[document].to_list(), frame[score].to_list()
    queries = [None] * len(documents) if query is None else frame[query].to_list()
    found: dict[Any, Any] = {} if query else {None: {}}
    for of, doc, value in zip(queries, documents, scores, strict=True):
        own = found.setdefault(of, {})
        if doc in own:
            whose = "" if query is None else f" in query {of!r}"
            what = f"document {repr(doc)[:80]} is listed twice{whose}"
            raise DesaError(what, where=name, hint="keep only its best rank")
        known = isinstance(value, int | float) and math.isfinite(value)
        own[doc] = sign * value if known else value
    return found
