"""TREC files: runs (`query Q0 document rank score tag`) and judgments (`query iteration document
grade`).

Ids are whatever is between ASCII blanks, in UTF-8, without control characters. A file packed
with gzip or zstd is unpacked as it is read; a name that ends in `.gz` is written packed.
"""

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path

import polars as pl

from desa_ray.data.fast_runs import read_plain_run
from desa_ray.data.raw import BLANKS, MAX_GRADE, grade_of
from desa_ray.data.run_files import SUFFIX, read_run_parquet
from desa_ray.errors import DesaError
from desa_ray.lines import Findings, has_control, numbered_lines, shown
from desa_ray.unpacking import file_blocks

QRELS = pl.Schema({"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32})
RUN_LINE = "write: query Q0 document rank score tag"
QRELS_LINE = "write: query 0 document grade"
BEIR_LINE = "write: query-id TAB corpus-id TAB score"
GRADE = "write whole numbers on a small scale, such as 0 to 3"
BEIR_HEADER = ["query-id", "corpus-id", "score"]


def read_run(path: Path, tell: Callable[[str], None] | None = None) -> dict[str, list[str]]:
    """Query id -> document ids, best first; queries as they first occur.

    The rank column decides. Ranks may start anywhere and have gaps: only their order counts, and a
    score that rises with the rank is refused, as nothing says which of the two is right. Where
    ranks of a query tie (BEIR writes 0 everywhere) they give no order, so that query is ordered by
    score, as trec_eval does; equal scores are ordered by rank, then by id. Lines may come in any
    order.

    A file named `.parquet` is one that a cell keeps (`run_files.py`).

    Args:
        tell: called once with the number of queries that were ordered by score.

    Raises:
        DesaError: file and lines of everything wrong: not six fields, a rank or score that is not a
            number, a document that a query has twice, an id with control characters, a score that
            rises with the rank; or a file that cannot be read or has no line.
    """
    if path.suffix == SUFFIX:
        return read_run_parquet(path)
    plain = read_plain_run(file_blocks(path)) if path.is_file() else None
    if plain is not None:
        return plain
    run: dict[str, list[str]] = {}
    for query, (own, order) in _read(file_blocks(path), str(path), tell).items():
        run[query] = [own.documents[n] for n in order]
    return run


def read_scored_run(
    path: Path, tell: Callable[[str], None] | None = None
) -> dict[str, list[tuple[str, float]]]:
    """As `read_run`, with the score of every document; scores never rise.

    Raises:
        DesaError: as `read_run`; a file named `.parquet`, which holds no scores.
    """
    if path.suffix == SUFFIX:
        what, hint = "a run stored as parquet has no scores", "give a TREC run"
        raise DesaError(what, where=str(path), hint=hint)
    return scored_run(file_blocks(path), str(path), tell)


def scored_run(
    blocks: Iterable[bytes], place: str, tell: Callable[[str], None] | None = None
) -> dict[str, list[tuple[str, float]]]:
    """`read_scored_run` of bytes that are read already.

    Args:
        place: what to call them in errors.
    """
    run: dict[str, list[tuple[str, float]]] = {}
    for query, (own, order) in _read(blocks, place, tell).items():
        run[query] = [(own.documents[n], own.scores[n]) for n in order]
    return run


def _read(
    blocks: Iterable[bytes], place: str, tell: Callable[[str], None] | None
) -> dict[str, tuple["_Lines", Sequence[int]]]:
    """Query id -> its lines and their order."""
    findings = Findings()
    names: dict[str, str] = {}  # few documents stand in many rankings: each is kept once
    found: dict[str, _Lines] = {}
    for line, (query, _, document, rank_text, score_text, _) in _rows(blocks, place, findings):
        rank, score = _rank(rank_text), _finite(score_text)
        own = found.get(query)
        if own is None:
            own = found[query] = _Lines()
            _check_control(query, "query id", place, line, findings)
        if rank is None or score is None:
            detail = shown(f"{rank_text} {score_text}")[1:-1]
            findings.line(place, line, "rank or score is not a number", detail, hint=RUN_LINE)
        else:
            if document not in names:
                _check_control(document, "document id", place, line, findings)
            own.add(names.setdefault(document, document), rank, score, line)
    run: dict[str, tuple[_Lines, Sequence[int]]] = {}
    by_score: list[str] = []
    for query, own in found.items():
        order, tied = own.ordered(query, place, findings)
        run[query] = own, order
        by_score += [query] if tied else []
    findings.raise_if_any()
    if not run:
        raise DesaError("the run has no lines", where=place, hint="name a TREC run")
    if by_score and tell is not None:
        queries = f"{len(by_score)} of {len(run)} queries (first {shown(by_score[0])})"
        tell(
            f"{place}: ranks tie in {queries}: these are ordered by score, then by rank, then by id"
        )
    return run


class _Lines:
    """The lines of one query of a run, as arrays: some 40 bytes a line."""

    def __init__(self) -> None:
        self.documents: list[str] = []
        self.ranks, self.scores, self.lines = array("q"), array("d"), array("q")

    def add(self, document: str, rank: int, score: float, line: int) -> None:
        self.documents.append(document)
        self.ranks.append(rank)
        self.scores.append(score)
        self.lines.append(line)

    def ordered(self, query: str, file: str, findings: Findings) -> tuple[list[int], bool]:
        """The places of the documents, best first, and whether their ranks tie; what is wrong with
        them goes to `findings`.
        """
        documents, ranks, scores = self.documents, self.ranks, self.scores
        if len(set(documents)) < len(documents):
            known: set[str] = set()
            for document, line in zip(documents, self.lines, strict=True):
                if document in known:
                    detail = f"query {shown(query)[1:-1]}, document {shown(document)[1:-1]}"
                    findings.line(
                        file, line, "a document is listed twice", detail, hint="keep one of them"
                    )
                known.add(document)
        tied = len(set(ranks)) < len(ranks)
        if tied:
            order = sorted(range(len(ranks)), key=lambda n: (-scores[n], ranks[n], documents[n]))
        else:
            order = sorted(range(len(ranks)), key=ranks.__getitem__)
            for before, after in pairwise(order):
                if scores[after] > scores[before]:
                    detail = f"query {shown(query)[1:-1]}, rank {ranks[after]}"
                    hint = "sort the lines as intended and renumber the ranks"
                    findings.line(
                        file,
                        self.lines[after],
                        "the score increases with the rank",
                        detail,
                        hint=hint,
                    )
        return order, tied


def _check_control(name: str, kind: str, file: str, line: int, findings: Findings) -> None:
    if has_control(name):
        what = f"{kind} with a control character"
        findings.line(file, line, what, shown(name), hint="write ids without them")


def read_qrels(path: Path) -> pl.DataFrame:
    """Columns `query_id`, `doc_id` (String), `grade` (Int32), in file order.

    A file that begins with the header of BEIR's judgments (`query-id corpus-id score`) is read as
    such. A judgment that is listed twice counts once, as in a collection.

    Raises:
        DesaError: file and lines of everything wrong: not four fields (three after BEIR's header),
            a grade that is not a whole number or too large, a pair judged twice with different
            grades, an id that is empty or has control characters; or a file that cannot be read or
            has no line.
    """
    findings = Findings()
    grades: dict[tuple[str, str], int] = {}
    names: dict[str, str] = {}
    for line, (query, document, grade_text) in _judgments(path, findings):
        grade = grade_of(grade_text)
        for name, kind in ((query, "query id"), (document, "document id")):
            if name not in names:
                _check_control(name, kind, str(path), line, findings)
        pair = names.setdefault(query, query), names.setdefault(document, document)
        if not query or not document:
            findings.line(
                str(path), line, "an empty id", hint="give every query and document an id"
            )
        elif grade is None:
            detail = shown(grade_text)[1:-1]
            findings.line(str(path), line, "grade is not a whole number", detail, hint=GRADE)
        elif grade > MAX_GRADE:
            findings.line(
                str(path), line, f"grade is above {MAX_GRADE}", grade_text.strip(BLANKS), hint=GRADE
            )
        elif max(grades.setdefault(pair, grade), 0) != max(grade, 0):  # grades below 0 count as 0
            detail = (
                f"query {shown(query)[1:-1]}, document {shown(document)[1:-1]}: {grades[pair]} and"
                f" {grade}"
            )
            findings.line(
                str(path),
                line,
                "judged twice with different grades",
                detail,
                hint="keep one of them",
            )
    findings.raise_if_any()
    if not grades:
        raise DesaError("there are no judgments", where=str(path), hint="name TREC or BEIR qrels")
    return pl.DataFrame([(*pair, grade) for pair, grade in grades.items()], QRELS, orient="row")


def _judgments(path: Path, findings: Findings) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Line number, query, document and grade as text, of either form; ids of BEIR's form may hold
    blanks.
    """
    lines = numbered_lines(file_blocks(path), str(path), findings)
    first = next(lines, None)
    if first is not None and first[1].split("\t") == BEIR_HEADER:
        for line, text in lines:
            fields = text.split("\t")
            if len(fields) == len(BEIR_HEADER):
                yield line, (fields[0], fields[1], fields[2])
            else:
                findings.line(str(path), line, "not three tab-separated columns", hint=BEIR_LINE)
        return
    if first is None:
        return
    for line, text in chain([first], lines):
        fields = re.split(f"[{BLANKS}]+", text.strip(BLANKS))
        if len(fields) == 4:
            yield line, (fields[0], fields[2], fields[3])
        else:
            findings.line(str(path), line, f"{len(fields)} fields, expected 4", hint=QRELS_LINE)


def _rows(
    blocks: Iterable[bytes], place: str, findings: Findings
) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every line with six of them; others become findings."""
    for line, text in numbered_lines(blocks, place, findings):
        fields = re.split(f"[{BLANKS}]+", text.strip(BLANKS))
        if len(fields) == 6:
            yield line, fields
        else:
            findings.line(place, line, f"{len(fields)} fields, expected 6", hint=RUN_LINE)


def _rank(text: str) -> int | None:
    """A whole number, also one written as 1.0."""
    return (
        int(text.partition(".")[0]) if re.fullmatch(r"[+-]?[0-9]{1,9}(\.0{0,9})?", text) else None
    )


def _finite(text: str) -> float | None:
    if "_" in text or not text.isascii():  # Python would read 1_000, and digits of other scripts
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
