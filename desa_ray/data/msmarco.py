"""MS MARCO passages as they are distributed: `collection.tsv`, `queries.<split>.tsv` and
`qrels.<split>.tsv`, plain or packed (`.gz`, `.zst`).

Lines of the collection and of queries are an id, a tab and the text; those of qrels four columns,
`query iteration passage grade`, divided by tabs or blanks, as of TREC too. Only judged queries
belong to a split; others are left out, with a count.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from desa_ray.data.pieces import CorpusFiles, Document
from desa_ray.data.raw import BLANKS, RawCollection, grade_of
from desa_ray.data.source import SourceFile, check_split, plain_file
from desa_ray.errors import DesaError
from desa_ray.lines import MAX_JSON_BYTES, Findings, numbered_lines, shown
from desa_ray.memory import held
from desa_ray.types import sha256_json

PACKED = ("", ".gz", ".zst")


def open_files(place: Path, split: str) -> list[SourceFile]:
    """Collection, queries and qrels.

    Raises:
        DesaError: names every file that is missing, with the splits that there are.
    """
    check_split(split)
    if not place.is_dir():
        raise DesaError("no such folder", where=str(place), hint="name the folder of the files")
    names = ["collection.tsv", f"queries.{split}.tsv", f"qrels.{split}.tsv"]
    found = {name: _found(place, name) for name in names}
    if missing := [name for name, path in found.items() if path is None]:
        splits = sorted(path.name.split(".tsv")[0][6:] for path in place.glob("qrels.*.tsv*"))
        hint = f"existing splits: {', '.join(splits)}" if splits else "see docs/sweeps.md"
        raise DesaError(f"lacks {', '.join(missing)}", where=str(place), hint=hint)
    return [plain_file(path) for path in found.values() if path is not None]


def _found(place: Path, name: str) -> Path | None:
    there = [place / f"{name}{suffix}" for suffix in PACKED if (place / f"{name}{suffix}").exists()]
    if len(there) > 1:
        raise DesaError(f"contains {name} twice", where=str(place), hint="keep one of them")
    return there[0] if there else None


def identity(place: Path, split: str) -> str:
    """Hex SHA-256 over the (unpacked) bytes of the three files."""
    return sha256_json([file.sha256() for file in open_files(place, split)])


def corpus_files(place: Path, split: str) -> CorpusFiles:
    """What holds the passages of the collection at `place`."""
    collection, *others = open_files(place, split)
    return CorpusFiles([collection], _passages, others)


def _passages(file: SourceFile, findings: Findings) -> Iterator[Document]:
    for key, text in _texts(file, findings):
        yield key, "", text


def read(place: Path, split: str, findings: Findings, *, corpus: bool = True) -> RawCollection:
    """Rows of the collection at `place`, without its passages unless `corpus`; malformed lines go
    to `findings`.
    """
    collection, queries, qrels = open_files(place, split)
    passages = held(_passages(collection, findings), collection.label) if corpus else ()
    documents = list(passages)
    broken = bool(findings)
    asked = list(_texts(queries, findings))
    judged = list(_qrels(qrels, findings))
    known = {query for query, _, _ in judged}
    here = [(key, text) for key, text in asked if key in known]
    counts = {"queries_without_judgments": len(asked) - len(here)}
    return RawCollection(documents, here, judged, counts, broken)


def _texts(file: SourceFile, findings: Findings) -> Iterator[tuple[str, str]]:
    for number, line in numbered_lines(file.blocks(), file.label, findings, MAX_JSON_BYTES):
        key, tab, text = line.partition("\t")
        if tab:
            yield key, text
        else:
            hint = "write: id TAB text"
            findings.line(file.label, number, "no tab after an id", shown(line), hint=hint)


def _qrels(file: SourceFile, findings: Findings) -> Iterator[tuple[str, str, int]]:
    for number, line in numbered_lines(file.blocks(), file.label, findings):
        columns = re.split(f"[{BLANKS}]+", line.strip(BLANKS))
        if len(columns) != 4:
            hint = "write: query iteration passage grade"
            findings.line(file.label, number, "not four columns", shown(line), hint=hint)
        elif (grade := grade_of(columns[3])) is None:
            hint = "write whole numbers on a small scale, such as 0 to 3"
            what = "the grade is not a whole number"
            findings.line(file.label, number, what, shown(columns[3]), hint=hint)
        else:
            yield columns[0], columns[2], grade
