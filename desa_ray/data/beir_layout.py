"""The BEIR layout: `corpus.jsonl` {_id, title, text}, `queries.jsonl` {_id, text},
`qrels/<split>.tsv` with its header.

`queries.jsonl` holds the queries of all splits. Those judged only in other splits belong to them
and are left out, with a count; a query that no split judges is kept.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from desa_ray.data.pieces import CorpusFiles
from desa_ray.data.raw import RawCollection, grade_of
from desa_ray.data.source import SourceFile, open_source
from desa_ray.errors import DesaError
from desa_ray.lines import Findings, json_rows, numbered_lines, shown, shown_value
from desa_ray.memory import held
from desa_ray.types import sha256_json

HEADER = ["query-id", "corpus-id", "score"]


def open_layout(place: Path, split: str) -> dict[str, SourceFile]:
    """The files of the folder or zip `place`.

    Raises:
        DesaError: names every file of the layout that is missing there.
    """
    files = open_source(place)
    wanted = ["corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv"]
    if missing := [name for name in wanted if name not in files]:
        splits = [name[len("qrels/") : -len(".tsv")] for name in files if name.startswith("qrels/")]
        known = f"; existing splits: {', '.join(splits)}" if splits else ""
        raise DesaError(
            f"lacks {', '.join(missing)}",
            where=str(place),
            hint=f"the BEIR layout requires {', '.join(wanted)}{known}",
        )
    return files


def identity(place: Path, split: str) -> str:
    """Hex SHA-256 over logical names and (unpacked) bytes: equal for a folder and a zip of it."""
    return sha256_json({name: file.sha256() for name, file in open_layout(place, split).items()})


def corpus_files(place: Path, split: str) -> CorpusFiles:
    """What holds the documents of the collection at `place`."""
    files = open_layout(place, split)
    return CorpusFiles([files.pop("corpus.jsonl")], _documents, list(files.values()))


def read(place: Path, split: str, findings: Findings, *, corpus: bool = True) -> RawCollection:
    """Rows of the collection at `place`, without its documents unless `corpus`; malformed lines go
    to `findings`.
    """
    files = open_layout(place, split)
    own = f"qrels/{split}.tsv"
    texts = files["corpus.jsonl"]
    documents = list(held(_documents(texts, findings), texts.label)) if corpus else []
    broken = bool(findings)
    queries = list(_queries(files["queries.jsonl"], findings))
    qrels = list(beir_judgments(files[own], findings))
    elsewhere = _judged_queries(files, own) - {query for query, _, _ in qrels}
    here = [(query, text) for query, text in queries if query not in elsewhere]
    counts = {"queries_of_other_splits": len(queries) - len(here)}
    return RawCollection(documents, here, qrels, counts, broken)


def _documents(file: SourceFile, findings: Findings) -> Iterator[tuple[str, str, str]]:
    for number, row in json_rows(file.blocks(), file.label, findings):
        if row.get("title") is None:
            row["title"] = ""
        if fields := _strings(row, ("_id", "title", "text"), file.label, number, findings):
            yield fields[0], fields[1], fields[2]


def _queries(file: SourceFile, findings: Findings) -> Iterator[tuple[str, str]]:
    for number, row in json_rows(file.blocks(), file.label, findings):
        if fields := _strings(row, ("_id", "text"), file.label, number, findings):
            yield fields[0], fields[1]


def _strings(
    row: dict[str, object], names: tuple[str, ...], file: str, number: int, findings: Findings
) -> list[str] | None:
    values: list[str] = []
    for name in names:
        value = row.get(name)
        if isinstance(value, str):
            values.append(value)
        elif name in row:
            numeric = isinstance(value, int | float) and not isinstance(value, bool)
            hint = (
                f'write it in quotes: "{value}"' if numeric else "write a single string in quotes"
            )
            findings.line(
                file, number, f'field "{name}" is not a string', shown_value(value), hint=hint
            )
        else:
            hint = 'write {"_id": "ID", "text": "..."}'
            findings.line(file, number, f'field "{name}" is missing', hint=hint)
    return values if len(values) == len(names) else None


def beir_judgments(file: SourceFile, findings: Findings) -> Iterator[tuple[str, str, int]]:
    """(query id, document id, grade) of a file of BEIR's qrels."""
    lines = numbered_lines(file.blocks(), file.label, findings)
    number, header = next(lines, (1, ""))
    if header.split("\t") != HEADER:
        hint = "write query-id, corpus-id and score, separated by tabs, as the first line"
        findings.line(
            file.label, number, "the header is not that of BEIR's qrels", shown(header), hint=hint
        )
        return  # without it the columns are guesswork
    for number, line in lines:
        columns = line.split("\t")
        if len(columns) != len(HEADER):
            hint = "write: query-id TAB corpus-id TAB score"
            findings.line(
                file.label, number, "not three tab-separated columns", shown(line), hint=hint
            )
        elif (grade := grade_of(columns[2])) is None:
            hint = "write whole numbers on a small scale, such as 0 to 3"
            findings.line(
                file.label, number, "the grade is not a whole number", shown(columns[2]), hint=hint
            )
        else:
            yield columns[0], columns[1], grade


def _judged_queries(files: Mapping[str, SourceFile], own: str) -> set[str]:
    """Ids that the qrels of the other splits name; nothing else in those files is looked at."""
    others = [file for name, file in files.items() if name.startswith("qrels/") and name != own]
    return {
        line.partition("\t")[0]
        for file in others
        for _, line in numbered_lines(file.blocks(), file.label, Findings())
    }
