"""Writes TREC files: runs, whose scores encode the rank, and judgments."""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import polars as pl

from desa_ray.data.raw import BLANKS
from desa_ray.errors import DesaError

RANKINGS = pl.Schema({"query_id": pl.String, "docs": pl.List(pl.String)})
PIECE = 1 << 14
LINES = 1 << 20  # of a run, made at once
TAG = "desa"  # how the last column of our runs begins


def write_run(
    path: Path, rankings: pl.DataFrame | Mapping[str, Sequence[str]], *, tag: str
) -> None:
    """Writes rankings with strictly decreasing scores: length, length - 1, ..., 1.

    Fused scores may tie or differ by less than float32 tells apart, and trec_eval orders by score
    alone; so scores only say the rank.

    Args:
        rankings: document ids (best first) by query id, or a frame with columns `query_id` (String)
            and `docs` (List of String); an empty list writes no line.

    Raises:
        DesaError: an id or tag that a TREC line cannot hold (empty, or with a blank in it).
    """
    pieces = run_pieces(rankings, tag=tag)
    write_pieces(path, _packed(pieces) if path.suffix == ".gz" else pieces)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes megabytes piece by piece: the kernel then takes small pages, which virtual machines
    give out faster.
    """
    write_pieces(path, [data])


def write_pieces(path: Path, data: Iterable[bytes]) -> None:
    """Writes bytes one after another, as `write_bytes`."""
    with path.open("wb") as stream:
        for one in data:
            pieces = memoryview(one)
            for start in range(0, len(one), PIECE):
                stream.write(pieces[start : start + PIECE])


def run_pieces(
    rankings: pl.DataFrame | Mapping[str, Sequence[str]], *, tag: str
) -> Iterator[bytes]:
    """What `write_run` writes, some queries at a time; arguments and errors as there, before the
    first piece.
    """
    frame = rankings if isinstance(rankings, pl.DataFrame) else _frame(rankings)
    _check(pl.Series([tag]), "tag")
    _check(frame["query_id"], "query id")
    lengths = pl.col("docs").list.len()
    kept = frame.filter(lengths > 0)
    longest = int(kept.select(lengths.max()).item() or 1)
    parts = [*kept.iter_slices(max(1, LINES // longest))]
    for part in parts:
        lines = part.explode("docs")
        _check(lines["docs"], "document id", of=lines["query_id"])
    return (_written(part, tag) for part in parts)


def _written(part: pl.DataFrame, tag: str) -> bytes:
    length = pl.col("docs").list.len().cast(pl.Int64)
    ranks, scores = pl.int_ranges(1, length + 1), pl.int_ranges(length, 0, -1)
    lines = part.select("query_id", "docs", rank=ranks, score=scores).explode(
        "docs", "rank", "score"
    )
    fields = ("query_id", pl.lit("Q0").alias("iteration"), "docs", "rank", "score")
    table = lines.select(*fields, pl.lit(tag).alias("tag"))
    return table.write_csv(include_header=False, separator=" ", quote_style="never").encode()


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces as gzip.compress would pack them together, with no time in the header."""
    packer = zlib.compressobj(9, wbits=31)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def _frame(rankings: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    docs = [list(documents) for documents in rankings.values()]
    return pl.DataFrame({"query_id": list(rankings), "docs": docs}, RANKINGS)


def write_qrels(path: Path, qrels: pl.DataFrame) -> None:
    """Writes judgments (columns `query_id`, `doc_id`, `grade`) in the order of their rows.

    Raises:
        DesaError: an id that a TREC line cannot hold (empty, or with a blank in it).
    """
    _check(qrels["query_id"], "query id")
    _check(qrels["doc_id"], "document id", of=qrels["query_id"])
    lines: list[str] = []
    for query, document, grade in qrels.select("query_id", "doc_id", "grade").iter_rows():
        lines.append(f"{query} 0 {document} {grade}\n")
    data = "".join(lines).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def has_blanks(columns: Iterable[pl.Series]) -> bool:
    """Whether an id in any of the columns (String) has a blank, by which a TREC file divides its
    fields.
    """
    return any(bool(column.unique().str.contains(r"\s").any()) for column in columns)


def without_blanks(name: str) -> str:
    """The id with every blank and percent sign percent-encoded, which `urllib.parse.unquote`
    undoes.

    Where one id of a data set needs it, all are spelled so, or two could become one.
    """
    return re.sub(r"[\s%]", lambda found: quote(found.group()), name)


def _check(texts: pl.Series, name: str, of: pl.Series | None = None) -> None:
    if _cannot_be_written(texts.unique()).any():  # few documents stand in many rankings
        bad = _cannot_be_written(texts).arg_true()
        place = int(bad[0])
        whose = f"query {of[place]}: " if of is not None else ""
        what = f"{whose}{name} {texts[place]!r} cannot be written to a TREC file"
        raise DesaError(what, hint="use ids without spaces")


def _cannot_be_written(texts: pl.Series) -> pl.Series:
    return (texts == "") | texts.str.contains(f"[{BLANKS}]")
