"""Generation by reading: rows {query_id, prompt, draw, texts} of `<folder>/<prompt>.jsonl` become
generation records.

A row that live generation exported as a fallback (`fallback: true`, with its `reason`) stays one.
Such text may be of foreign origin, so only count, type and blanks are checked, and other faults are
counted (method.md section 2). `strict` applies the rules of live generation instead: an invalid row
falls back, flagged, with its reason.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.core.references import Verdict, check_items, check_recorded, check_texts
from desa_ray.engines.generation import generation_frame
from desa_ray.engines.prompts import Prompt
from desa_ray.errors import DesaError, listed
from desa_ray.lines import Findings, json_rows, shown, shown_value
from desa_ray.unpacking import file_blocks

COUNTS = (
    "duplicate_texts",
    "placeholder_texts",
    "texts_equal_to_query",
    "texts_cut",
    "fallbacks",
    "rows_of_unknown_queries",
    "rows_of_other_draws",
)

ROW = 'write {{"query_id": "ID", "prompt": "{prompt}", "draw": 0, "texts": ["...", ...]}}'
FIELDS: Mapping[str, Callable[[Any, Prompt], bool]] = {
    "query_id": lambda value, prompt: isinstance(value, str),
    "prompt": lambda value, prompt: value == prompt.name,
    "draw": lambda value, prompt: (
        isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ),
    "texts": lambda value, prompt: isinstance(value, list),
    "fallback": lambda value, prompt: value is None or isinstance(value, bool),
    "reason": lambda value, prompt: value is None or isinstance(value, str),
}


@dataclass(frozen=True)
class _Row:
    """A recorded row: its line, its items, and the reason of a fallback that live generation
    recorded.
    """

    line: int
    items: list[object]
    fallback: str | None


@dataclass(frozen=True)
class RecordedGenerations:
    """Recorded text as generation records.

    Attributes:
        records: schema `GENERATION_SCHEMA`, one row per query and draw asked for, in the order of
            query ids, then draws.
        counts: every name of `COUNTS`; goes to the manifest and the log.
    """

    records: pl.DataFrame
    counts: Mapping[str, int]


def recording(folder: Path, prompt: Prompt) -> Path:
    """The file that holds a prompt's recorded texts.

    Raises:
        DesaError: it is not there, or no plain file.
    """
    file = folder / f"{prompt.name}.jsonl"
    if file.exists() and not file.is_file():  # it is read twice, which a pipe allows once
        raise DesaError("is not a plain file", where=str(file), hint="put a file there")
    if not file.is_file():
        raise DesaError(
            f"no recorded texts of the prompt {prompt.name}",
            where=str(file),
            hint=(
                f"set generator.folder= to the folder that holds {file.name}, or use the texts"
                f" of another prompt: generator.map={{{prompt.name}: references}}"
            ),
        )
    return file


def recorded_fingerprint(folder: Path, prompt: Prompt) -> str:
    """Hex SHA-256 of the recording's lines in byte order: a recording that was exported again keeps
    its hash.
    """
    data = b"".join(file_blocks(recording(folder, prompt)))
    return hashlib.sha256(
        b"\n".join(sorted(line.strip() for line in data.splitlines()))
    ).hexdigest()


def read_recorded(
    folder: Path,
    prompt: Prompt,
    *,
    query_ids: Sequence[str],
    query_texts: Sequence[str],
    dataset: str,
    draws: Sequence[int],
    strict: bool,
) -> RecordedGenerations:
    """Reads the recorded texts of all `query_ids` and `draws`; other rows are passed over and
    counted.

    Args:
        folder: holds `<prompt>.jsonl`.
        prompt: says how many texts a row must have, and is what live rules refer to.
        query_ids, query_texts: the queries, aligned.
        dataset: the data set's name, for messages.
        draws: draw numbers, from 0.
        strict: judge as live output, and fall back, instead of counting.

    Raises:
        Problems: malformed lines, unusable texts, repeated and missing rows, all together.
    """
    file = recording(folder, prompt)
    findings = Findings()
    counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
    wanted = {(query, draw) for query in query_ids for draw in draws}
    rows = _rows(file, prompt, wanted, counts, findings)
    if missing := sorted(wanted - rows.keys()):
        names = listed(_row_name(*row) for row in missing)
        what = f"{len(missing)} of {len(wanted)} rows missing for the queries of {dataset}: {names}"
        findings.add(
            DesaError(what, where=str(file), hint="complete the recording, or ask for fewer draws")
        )

    queries = dict(zip(query_ids, query_texts, strict=True))
    records: list[dict[str, Any]] = []
    for (query, draw), row in rows.items():
        if row.fallback is not None:
            verdict = Verdict(None, row.fallback)
        else:
            verdict = _judged(row.items, prompt, strict, counts)
            if verdict.texts is None and not strict:
                hint = (
                    "correct that row, or set generator.strict=true to fall back where a row is not"
                    " valid"
                )
                findings.line(
                    str(file), row.line, verdict.reason or "", _row_name(query, draw), hint=hint
                )
        texts = [prompt.cut(text) for text in verdict.texts or ()]
        counts["texts_cut"] += sum(
            cut != text for cut, text in zip(texts, verdict.texts or (), strict=True)
        )
        counts["texts_equal_to_query"] += sum(_same(text, queries[query]) for text in texts)
        counts["fallbacks"] += not verdict.valid
        records.append(
            {
                "query_id": query,
                "prompt": prompt.name,
                "draw": draw,
                "texts": texts,
                "prompt_hash": prompt.hash,
                "retries": 0,
                "fallback": not verdict.valid,
                "reason": verdict.reason,
                "generator": "recorded",
            }
        )
    findings.raise_if_any()
    return RecordedGenerations(generation_frame(records), dict(counts))


def _same(text: str, query: str) -> bool:
    return text.strip().casefold() == query.strip().casefold()


def _judged(items: list[object], prompt: Prompt, strict: bool, counts: Counter[str]) -> Verdict:
    if strict:
        if prompt.structured:
            return check_items(items, system_prompt=prompt.system, count=prompt.text_count)
        return check_texts(items, prompt.text_count)
    try:
        warnings = check_recorded(items, prompt.text_count, system_prompt=prompt.system)
    except DesaError as error:
        return Verdict(None, error.what)
    counts["duplicate_texts"] += warnings.duplicates
    counts["placeholder_texts"] += warnings.placeholders
    return Verdict(tuple(str(item) for item in items))


def _rows(
    file: Path,
    prompt: Prompt,
    wanted: set[tuple[str, int]],
    counts: Counter[str],
    findings: Findings,
) -> dict[tuple[str, int], _Row]:
    """(query, draw) -> row, of the wanted rows that are there."""
    queries = {query for query, _ in wanted}
    rows: dict[tuple[str, int], _Row] = {}
    repeated: list[str] = []
    for number, row in json_rows(file_blocks(file), str(file), findings):
        if wrong := next(
            (name for name, fits in FIELDS.items() if not fits(row.get(name), prompt)), None
        ):
            kind, found = f'field "{wrong}" is missing or wrong', shown_value(row.get(wrong))
            findings.line(str(file), number, kind, found, hint=ROW.format(prompt=prompt.name))
            continue
        key = row["query_id"], row["draw"]
        if key in rows:
            repeated.append(f"lines {rows[key].line} and {number} ({_row_name(*key)})")
        elif key in wanted:
            reason = (row.get("reason") or "recorded as fallback") if row.get("fallback") else None
            rows[key] = _Row(number, row["texts"], reason)
        else:
            counts["rows_of_other_draws" if key[0] in queries else "rows_of_unknown_queries"] += 1
    if repeated:
        what = f"repeated rows of one query and draw ({len(repeated)}): {listed(repeated)}"
        findings.add(DesaError(what, where=str(file), hint="keep one of them"))
    return rows


def _row_name(query: str, draw: int) -> str:
    return f"query {shown(query)} draw {draw}"
