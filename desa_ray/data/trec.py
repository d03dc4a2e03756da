"""TREC files: runs (`query Q0 document rank score tag`) and judgments (`query iteration document grade`).

Ids are whatever stands between ASCII blanks, in UTF-8. A name ending in `.gz` is read and written compressed.
"""

import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

from desa_ray.data.raw import MAX_GRADE
from desa_ray.errors import DesaError
from desa_ray.lines import Findings, file_blocks, numbered_lines
from desa_ray.store.content import OLDEST

QRELS = pl.Schema({"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32})
RANKINGS = pl.Schema({"query_id": pl.String, "docs": pl.List(pl.String)})
BEIR_HEADER = ["query-id", "corpus-id", "score"]
BLANKS = " \t\r\n\v\f"
PIECE = 1 << 14


def read_run(path: Path) -> dict[str, list[str]]:
    """Query id -> document ids in the order of the rank column; queries as they first occur.

    Ranks may start anywhere and have gaps: only their order counts. Lines may stand in any order.

    Raises:
        DesaError: file and lines of everything wrong: not six fields, a rank or score that is no number, a document or
            rank that a query has twice, a score that rises with the rank; or a file that cannot be read or has no line.
    """
    findings = Findings()
    ranked: dict[str, dict[int, tuple[str, float, int]]] = {}  # query -> rank -> document, score, line
    documents: dict[str, set[str]] = {}
    for line, (query, _, document, rank_text, score_text, _) in _rows(path, 6, findings):
        rank, score = _whole(rank_text), _finite(score_text)
        ranks, known = ranked.setdefault(query, {}), documents.setdefault(query, set())
        if rank is None or score is None:
            findings.line(str(path), line, "rank or score is not a number", f"{rank_text} {score_text}")
        elif rank in ranks:
            findings.line(str(path), line, "a rank twice", f"query {query}, rank {rank}")
        elif document in known:
            findings.line(str(path), line, "a document twice", f"query {query}, document {document}")
        else:
            ranks[rank] = (document, score, line)
            known.add(document)
    run: dict[str, list[str]] = {}
    for query, ranks in ranked.items():
        last = math.inf
        for rank in sorted(ranks):
            _, score, line = ranks[rank]
            if score > last:
                findings.line(str(path), line, "the score rises with the rank", f"query {query}, rank {rank}")
            last = score
        run[query] = [ranks[rank][0] for rank in sorted(ranks)]
    findings.raise_if_any()
    if not run:
        raise DesaError("the run has no line", where=str(path))
    return run


def read_qrels(path: Path) -> pl.DataFrame:
    """Columns `query_id`, `doc_id` (String), `grade` (Int32), in file order.

    A file that begins with the header of BEIR's judgments (`query-id corpus-id score`) is read as such.

    Raises:
        DesaError: file and lines of everything wrong: not four fields (three after BEIR's header), a grade that is no
            whole number or huge, a pair judged twice; or a file that cannot be read or has no line.
    """
    findings = Findings()
    grades: dict[tuple[str, str], int] = {}
    for line, (query, document, grade_text) in _judgments(path, findings):
        grade = _whole(grade_text)
        if grade is None:
            findings.line(str(path), line, "grade is not a whole number", grade_text)
        elif grade > MAX_GRADE:
            findings.line(str(path), line, f"grade is above {MAX_GRADE}", grade_text)
        elif (query, document) in grades:
            findings.line(str(path), line, "judged twice", f"query {query}, document {document}")
        else:
            grades[query, document] = grade
    findings.raise_if_any()
    if not grades:
        raise DesaError("there are no judgments", where=str(path))
    return pl.DataFrame([(*pair, grade) for pair, grade in grades.items()], QRELS, orient="row")


def _judgments(path: Path, findings: Findings) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Line number, query, document and grade as text, of either form; ids of BEIR's form may hold blanks."""
    lines = numbered_lines(_plain(path), str(path), findings)
    first = next(lines, None)
    if first is not None and first[1].split("\t") == BEIR_HEADER:
        for line, text in lines:
            fields = text.split("\t")
            if len(fields) == len(BEIR_HEADER):
                yield line, (fields[0], fields[1], fields[2].strip(BLANKS))
            else:
                findings.line(str(path), line, "not three tab-separated columns")
        return
    for line, text in [] if first is None else chain([first], lines):
        fields = re.split(f"[{BLANKS}]+", text.strip(BLANKS))
        if len(fields) == 4:
            yield line, (fields[0], fields[2], fields[3])
        else:
            findings.line(str(path), line, f"{len(fields)} fields where 4 are meant")


def write_run(path: Path, rankings: pl.DataFrame | Mapping[str, Sequence[str]], *, tag: str) -> None:
    """Writes rankings with strictly decreasing scores: length, length - 1, ..., 1.

    Fused scores may tie or differ by less than float32 tells apart, and trec_eval orders by score alone; so scores only
    say the rank.

    Args:
        rankings: document ids (best first) by query id, or a frame with columns `query_id` (String) and `docs` (List of
            String); an empty list writes no line.

    Raises:
        DesaError: an id or tag that a TREC line cannot hold (empty, or with a blank in it).
    """
    written = run_text(rankings, tag=tag)
    write_bytes(path, gzip.compress(written, mtime=0) if path.suffix == ".gz" else written)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes megabytes piece by piece: the kernel then takes small pages, which virtual machines give out faster."""
    pieces = memoryview(data)
    with path.open("wb") as stream:
        for start in range(0, len(data), PIECE):
            stream.write(pieces[start : start + PIECE])


def run_text(rankings: pl.DataFrame | Mapping[str, Sequence[str]], *, tag: str) -> bytes:
    """What `write_run` writes; arguments and errors as there."""
    frame = rankings if isinstance(rankings, pl.DataFrame) else _frame(rankings)
    _check(pl.Series([tag]), "tag")
    _check(frame["query_id"], "query id")
    kept = frame.filter(pl.col("docs").list.len() > 0)
    lines = kept.explode("docs")
    _check(lines["docs"], "document id", of=lines["query_id"])
    # What follows a document's id depends on its place and on how many there are: few lengths, so few such ends.
    lengths, which = np.unique(kept["docs"].list.len().to_numpy().astype(np.int64), return_inverse=True)
    starts = np.cumsum(lengths) - lengths
    places = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    counts = pl.DataFrame({"rank": places + 1, "score": np.repeat(lengths, lengths) - places})
    ends = counts.select(pl.format(" {} {} {}\n", "rank", "score", pl.lit(tag))).to_series()
    own = lengths[which]
    rows = np.arange(own.sum()) + np.repeat(starts[which] - (np.cumsum(own) - own), own)
    text = lines.select(pl.concat_str("query_id", pl.lit(" Q0 "), "docs", ends.gather(rows).alias("end"))).to_series()
    arrow: Any = text.to_arrow(compat_level=OLDEST)  # the lines one after the other, and where each of them begins
    _, begins, joined = arrow.buffers()
    return bytes(memoryview(joined)[: np.frombuffer(begins, np.int64)[len(text)]]) if len(text) else b""


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
    """Whether an id in any of the columns (String) has a blank, by which a TREC file divides its fields."""
    return any(bool(column.unique().str.contains(r"\s").any()) for column in columns)


def without_blanks(name: str) -> str:
    """The id with every blank and percent sign percent-encoded, which `urllib.parse.unquote` undoes.

    Where one id of a data set needs it, all are spelled so, or two could become one.
    """
    return re.sub(r"[\s%]", lambda found: quote(found.group()), name)


def _check(texts: pl.Series, name: str, of: pl.Series | None = None) -> None:
    if _cannot_be_written(texts.unique()).any():  # few documents stand in many rankings
        bad = _cannot_be_written(texts).arg_true()
        place = int(bad[0])
        whose = f"query {of[place]}: " if of is not None else ""
        what = f"{whose}{name} {texts[place]!r} cannot be written to a TREC file"
        raise DesaError(what, mend="use ids without blanks")


def _cannot_be_written(texts: pl.Series) -> pl.Series:
    return (texts == "") | texts.str.contains(f"[{BLANKS}]")


def _rows(path: Path, count: int, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every line with `count` fields; others become findings."""
    for line, text in numbered_lines(_plain(path), str(path), findings):
        fields = re.split(f"[{BLANKS}]+", text.strip(BLANKS))
        if len(fields) == count:
            yield line, fields
        else:
            findings.line(str(path), line, f"{len(fields)} fields where {count} are meant")


def _plain(path: Path) -> Iterable[bytes]:
    if path.suffix != ".gz":
        return file_blocks(path)
    try:
        return [gzip.decompress(b"".join(file_blocks(path)))]
    except (OSError, EOFError, zlib.error) as error:
        raise DesaError(f"cannot be decompressed: {error}", where=str(path)) from None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[+-]?[0-9]{1,9}", text) else None


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
