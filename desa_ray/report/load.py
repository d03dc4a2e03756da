"""Query records as one polars frame, from files, folders or MLflow runs: for notebooks and for
`desa report`.
"""

import os
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import cast

import polars as pl

from desa_ray.columnar import parquet_table
from desa_ray.errors import DesaError, Problems
from desa_ray.lines import shown
from desa_ray.report.records_check import HINT, check_records, check_unchanged

RUN_ID = re.compile(r"[0-9a-f]{32}")
FILE = "records.parquet"


def load_records(
    paths_or_run_ids: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    tracking_uri: str | None = None,
) -> pl.DataFrame:
    """All query records, a row per query and draw; the column `source` says where each came from.

    Args:
        paths_or_run_ids: one or several of: a parquet file of records; a folder (every
            `records.parquet` below it); the id of an MLflow run, or of a parent run, which stands
            for its children.
        tracking_uri: where run ids are looked up; by default the store of the last run in
            `$DESA_HOME`.

    Returns:
        The rows of all sources, one below the other. A column that a source lacks is null there.
        kappa and weights are float64; the files hold them as exact texts, such as 1/2.

    Raises:
        DesaError: a path or run does not exist or has no records, or no run wrote the records.
    """
    return as_numbers(read_records(paths_or_run_ids, tracking_uri=tracking_uri))


def read_records(
    paths_or_run_ids: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    tracking_uri: str | None = None,
) -> pl.DataFrame:
    """`load_records` with kappa and weights as the exact texts of the files."""
    single = isinstance(paths_or_run_ids, str | PathLike)
    given = _listed([paths_or_run_ids] if single else paths_or_run_ids)
    if not given:
        raise DesaError("no records given", hint="give a file, a folder or the id of an MLflow run")
    frames, problems = [], []
    files: dict[Path, Path] = {}  # a file reached by several ways is read once
    run_ids: list[str] = []
    for item in given:
        if isinstance(item, str) and RUN_ID.fullmatch(item) and not Path(item).exists():
            run_ids.append(item)
            continue
        try:
            files |= {file.resolve(): file for file in _files(Path(item))}
        except DesaError as error:
            problems.append(error)
    for file in files.values():
        try:
            frames.append(_read(file, str(file)))
        except DesaError as error:
            problems.append(error)
    if problems:
        raise Problems(problems)
    if run_ids:
        from desa_ray.tracking.fetch import fetched  # MLflow takes seconds to import

        with fetched(run_ids, FILE, tracking_uri) as found:
            frames += [_read(path, f"run {run_id}") for run_id, path in found]
    return _together(frames)


def _listed(given: object) -> list[str | PathLike[str]]:
    """Paths and ids in a list; raises DesaError for anything else, and for an empty name."""
    several = isinstance(given, Iterable) and not isinstance(given, bytes | bytearray)
    found: list[str | PathLike[str]] = []
    for item in cast(Iterable[object], given) if several else [given]:
        if not isinstance(item, str | PathLike) or not os.fspath(item):
            what = f"{repr(item)[:80]} names no records"
            raise DesaError(what, hint="give a file, a folder or the id of an MLflow run")
        found.append(item)
    return found


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all frames.

    Raises:
        Problems: columns that no record has, of kinds that have nothing in common.
    """
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError:
        names = dict.fromkeys(name for frame in frames for name in frame.columns)
        names.pop("source")
        found = [_at_odds(name, frames) for name in names]
        problems = [error for error in found if error]
        if not problems:
            raise
        raise Problems(problems) from None


def _at_odds(name: str, frames: Sequence[pl.DataFrame]) -> DesaError | None:
    """An error where a column cannot be put together."""
    having = [frame.select(name, "source") for frame in frames if name in frame.columns]
    try:
        pl.concat(having, how="diagonal_relaxed")
    except pl.exceptions.PolarsError:
        first, other = (
            having[0],
            next(f for f in having if f.schema[name] != having[0].schema[name]),
        )
        sources = [frame["source"].first() or "an empty file" for frame in (first, other)]
        what = f"column {shown(name)} holds {first.schema[name]}, and in {sources[1]}"
        hint = "leave that column out of one of them"
        return DesaError(f"{what} {other.schema[name]}", where=str(sources[0]), hint=hint)
    return None


def as_numbers(records: pl.DataFrame) -> pl.DataFrame:
    """Records with kappa and weights as float64, which the files hold as exact texts."""
    number = cache(lambda text: float(Fraction(text)))
    floats = {}
    if records.schema.get("kappa") == pl.String:
        floats["kappa"] = records["kappa"].map_elements(number, pl.Float64)
    if records.schema.get("weights") == pl.List(pl.String):
        floats["weights"] = records["weights"].map_elements(
            lambda texts: [number(text) for text in texts], pl.List(pl.Float64)
        )
    return records.with_columns(**floats)


def _with_texts(records: pl.DataFrame) -> pl.DataFrame:
    """Records whose kappa may be a number, as `load_records` gives it, with its text."""
    if not records.schema.get("kappa", pl.String()).is_numeric():
        return records
    values = records["kappa"].cast(pl.Float64).to_list()
    texts = [str(Fraction(str(v))) if v is not None and isfinite(v) else str(v) for v in values]
    return records.with_columns(pl.Series("kappa", texts, pl.String))


def _parquet(file: Path) -> pl.DataFrame:
    """The table in a file, read by Arrow: damaged bytes are an error there, a panic in polars."""
    try:
        with file.open("rb") as stream:
            table = parquet_table(stream, file.stat().st_size, str(file))
        table.validate(full=True)  # also that text is UTF-8
        found = pl.from_arrow(table)
    except (KeyboardInterrupt, SystemExit, DesaError):
        raise
    except BaseException as error:  # a panic is no Exception: types that polars does not know
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise DesaError(
            f"cannot be read as parquet: {reason}", where=str(file), hint=HINT
        ) from None
    assert isinstance(found, pl.DataFrame)
    return found


def _files(path: Path) -> list[Path]:
    try:
        kind = "file" if path.is_file() else "folder" if path.is_dir() else ""
    except OSError as error:
        what = f"cannot be looked at: {error.strerror}"
        raise DesaError(what, where=shown(str(path)), hint="use another path") from None
    if kind == "file":
        return [path]
    if not kind:
        raise DesaError(
            "neither a file or folder nor the id of a run",
            where=str(path),
            hint="name records.parquet or a folder",
        )
    found = sorted(path.rglob(FILE), key=lambda file: _counted(file.relative_to(path)))
    for file in found:
        if not file.is_file():  # a pipe would never end
            raise DesaError("is not a plain file", where=str(file), hint="put a file there")
    if not found:
        raise DesaError(
            f"contains no {FILE}", where=str(path), hint="name the output folder of a run or sweep"
        )
    return found


def _counted(path: Path) -> list[tuple[int, str]]:
    """To sort by: cell 2 of a sweep before cell 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in path.parts]


def _read(file: Path, source: str) -> pl.DataFrame:
    frame = _with_texts(_parquet(file))
    check_unchanged(file)
    check_records(frame, source)
    return frame.with_columns(source=pl.lit(source))
