"""Collections in tables: a corpus, queries and qrels, each a file or a folder of many files; JSONL
(plain, gzip, zstd), parquet, or the arrow files of Hugging Face `datasets` on disk.

A folder holds `corpus`, `queries` and `qrels/<split>`: as one file with an ending
(`corpus.parquet`), as several (`corpus-00000-of-00002.parquet`), or as a folder of such files at
any depth (what `save_to_disk` writes, or a snapshot of a data set of the hub). Documents have the
columns `_id` or `id`, `text` and, if they like, `title`; queries `_id` or `id` and `text`;
judgments `query-id`, `corpus-id` and `score`, also as BEIR's TSV with its header.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from desa_ray.columnar import arrow_rows, parquet_rows
from desa_ray.data.beir_layout import beir_judgments
from desa_ray.data.pieces import CorpusFiles, Document
from desa_ray.data.raw import RawCollection, grade_of
from desa_ray.data.source import SourceFile, check_split, plain_file
from desa_ray.errors import DesaError
from desa_ray.lines import Findings, json_rows, shown_value
from desa_ray.memory import held
from desa_ray.types import sha256_json
from desa_ray.unpacking import DAMAGE, without_suffix

arrow: Any = importlib.import_module("pyarrow")  # it comes without types
ENDINGS = (".jsonl", ".parquet", ".arrow", ".tsv")
OWN_FILES = re.compile(r"^(\.|_|cache-)")  # of `datasets` and of desktops, beside the data
DOCUMENT, QUERY = ("id", "title", "text"), ("id", "text")
JUDGMENT = ("query-id", "corpus-id", "score")
WANTED = ("_id", "id", "title", "text", *JUDGMENT)
Columns = Iterator[Mapping[str, Any]]
Rows = Iterator[tuple[int, Mapping[str, Any]]]


class Tables(NamedTuple):
    """The files of a collection, by table and in the order of their names."""

    corpus: Sequence[SourceFile]
    queries: Sequence[SourceFile]
    qrels: Sequence[SourceFile]


def open_tables(place: Path, split: str) -> Tables:
    """The files of the folder `place`.

    Raises:
        DesaError: names what is missing there, or a file that is not plain, or a split that is no
            name.
    """
    check_split(split)
    if not place.is_dir():
        raise DesaError("no such folder", where=str(place), hint="name a folder of tables")
    found = Tables(*(_files(place, name) for name in ("corpus", "queries", f"qrels/{split}")))
    missing = [name for name, files in zip(found._fields, found, strict=True) if not files]
    if missing:
        names = ", ".join(name if name != "qrels" else f"qrels/{split}" for name in missing)
        endings = ", ".join(ENDINGS)
        hint = f"put each into a file or folder of that name ({endings}; JSONL also .gz or .zst)"
        raise DesaError(f"lacks {names}", where=str(place), hint=hint)
    return found


def _files(place: Path, name: str) -> list[SourceFile]:
    """The files of a table: `NAME.parquet`, `NAME-*.parquet`, or those below the folder `NAME`."""
    own = place / name
    beside = sorted(own.parent.iterdir()) if own.parent.is_dir() else []
    paths = [path for path in beside if _belongs(path.name, own.name) and not path.is_dir()]
    if own.is_dir():
        paths += [path for path in sorted(own.rglob("*")) if not path.is_dir()]
    return [plain_file(path) for path in paths if _is_data(path)]


def _belongs(name: str, table: str) -> bool:
    stem = without_suffix(name)
    return any(
        stem == f"{table}{ending}" or (stem.startswith(f"{table}-") and stem.endswith(ending))
        for ending in ENDINGS
    )


def _is_data(path: Path) -> bool:
    return without_suffix(path.name).endswith(ENDINGS) and not OWN_FILES.match(path.name)


def identity(place: Path, split: str) -> str:
    """Hex SHA-256 over the tables' names and their files' (unpacked) bytes in order: equal whatever
    the folder, the files' names and their packing.
    """
    tables = open_tables(place, split)
    hashes: dict[str, list[str]] = {}
    for name, files in zip(tables._fields, tables, strict=True):
        hashes[name] = [file.sha256() for file in files]
    return sha256_json(hashes)


def corpus_files(place: Path, split: str) -> CorpusFiles:
    """What holds the documents of the collection at `place`."""
    found = open_tables(place, split)
    return CorpusFiles(found.corpus, _documents, [*found.queries, *found.qrels])


def _documents(file: SourceFile, findings: Findings) -> Iterator[Document]:
    for key, title, text in _texts([file], DOCUMENT, findings):  # noqa: UP028  (a tuple of three)
        yield key, title, text


def read(place: Path, split: str, findings: Findings, *, corpus: bool = True) -> RawCollection:
    """Rows of the collection at `place`, without its documents unless `corpus`; malformed rows go
    to `findings`.
    """
    tables = open_tables(place, split)
    documents: list[Document] = []
    if corpus:
        rows = (row for file in tables.corpus for row in _documents(file, findings))
        documents += held(rows, str(place / "corpus"))
    broken = bool(findings)
    queries = [(key, text) for key, text in _texts(tables.queries, QUERY, findings)]
    qrels: list[tuple[str, str, int]] = []
    for file in tables.qrels:
        tsv = without_suffix(file.label).endswith(".tsv")
        qrels += beir_judgments(file, findings) if tsv else _judgments(file, findings)
    return RawCollection(documents, queries, qrels, {}, broken)


def _texts(
    files: Sequence[SourceFile], columns: tuple[str, ...], findings: Findings
) -> Iterator[tuple[str, ...]]:
    for file in files:
        for number, row in _rows(file, findings):
            values = [_text(file, number, row, column, findings) for column in columns]
            if None not in values:
                yield tuple(value for value in values if value is not None)


def _text(
    file: SourceFile, number: int, row: Mapping[str, Any], column: str, findings: Findings
) -> str | None:
    """A string of a row; an id that a columnar file holds as an integer is its digits."""
    value = row.get("_id", row.get("id")) if column == "id" else row.get(column)
    if column == "title" and value is None:
        return ""
    if isinstance(value, str):
        return value
    columnar = not without_suffix(file.label).endswith(".jsonl")
    if columnar and column != "text" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    name = "_id" if column == "id" else column
    if value is None:
        hint = 'write {"_id": "ID", "text": "..."}, or columns of these names'
        findings.line(file.label, number, f'field "{name}" is missing', hint=hint)
    else:
        hint = "write a string"
        what = f'field "{name}" is not a string'
        findings.line(file.label, number, what, shown_value(value), hint=hint)
    return None


def _judgments(file: SourceFile, findings: Findings) -> Iterator[tuple[str, str, int]]:
    for number, row in _rows(file, findings):
        query, document = (_text(file, number, row, own, findings) for own in JUDGMENT[:2])
        score = row.get(JUDGMENT[2])
        grade = grade_of(f"{score:.0f}" if _whole(score) else str(score))
        if grade is None:
            hint = "write whole numbers on a small scale, such as 0 to 3"
            what = "the grade is not a whole number"
            findings.line(file.label, number, what, shown_value(score), hint=hint)
        elif query is not None and document is not None:
            yield query, document, grade


def _whole(value: object) -> bool:
    """Whether a float is a whole number: some data sets keep grades as floats."""
    return isinstance(value, float) and value.is_integer()


def _rows(file: SourceFile, findings: Findings) -> Rows:
    """Numbered rows, from 1, of a file in any of the forms."""
    name = without_suffix(file.label)
    if name.endswith(".jsonl"):
        yield from json_rows(file.blocks(), file.label, findings)
    elif name.endswith(".parquet"):
        yield from _columnar(file, parquet_rows)
    elif name.endswith(".arrow"):
        yield from _columnar(file, arrow_rows)
    else:
        what = "is a TSV file, which only judgments may be"
        raise DesaError(what, where=file.label, hint="use JSONL, parquet or arrow files")


def _columnar(file: SourceFile, reader: Callable[..., Columns]) -> Rows:
    """The rows of a columnar file, of which some are held at a time."""
    number = 0
    try:
        for row in reader(file.place, file.state[0], file.label, WANTED):
            number += 1
            yield number, row
    except (*DAMAGE, arrow.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        what = f"cannot be read after row {number}: {reason}"
        raise DesaError(what, where=file.label, hint="write or download it again") from error
    file.check_unchanged()
