"""Small query records with every kind of column, spoilt as tables: other types, values out of
range, columns and rows that lack or repeat.
"""

import io
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report import load
from desa_ray.report.build import build_report, write_report
from desa_ray.report.study import Study
from tests.fuzz.changes import VALUES, bytes_changed
from tests.report.made_up import cell

TYPES: list[Any] = [
    *(pl.String, pl.Int8, pl.Int64, pl.UInt64, pl.Float32, pl.Float64, pl.Boolean, pl.Null),
    *(pl.Binary, pl.Categorical, pl.Date, pl.List(pl.String), pl.List(pl.Float64)),
]


def records() -> pl.DataFrame:
    """Three methods, four queries, one draw."""
    methods = ("original", "shared", "desa")
    queries = [f"q{number}" for number in range(4)]
    cells = [cell("scifact", method, queries=queries, draws=1) for method in methods]
    return pl.concat(cells, how="diagonal_relaxed")


def parquet(frame: pl.DataFrame) -> bytes:
    sink = io.BytesIO()
    frame.write_parquet(sink)
    return sink.getvalue()


def spoilt_records(data: bytes, draw: random.Random) -> bytes:
    """Parquet bytes with one to three things wrong in the table, now and then in the bytes."""
    if draw.randrange(4) == 0:
        return bytes_changed(data, draw)
    frame = pl.read_parquet(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        if frame.width == 0:
            break
        frame = _changed(frame, draw.choice(frame.columns), draw)
    return parquet(frame)


def _changed(frame: pl.DataFrame, name: str, draw: random.Random) -> pl.DataFrame:
    values = frame[name].to_list()
    match draw.randrange(7):
        case 0:
            return frame.drop(name)
        case 1:
            return pl.concat([frame, frame.slice(draw.randrange(frame.height or 1), 1)])
        case 2:
            return frame.rename({name: f"{name}\x1b"})
        case 3:
            return frame.with_columns(_series(name, [draw.choice(VALUES)] * len(values)))
        case 4:
            with suppress(pl.exceptions.PolarsError):  # a list is not a number
                return frame.with_columns(frame[name].cast(draw.choice(TYPES), strict=False))
        case 5:
            return frame.head(draw.randrange(3))
    kept = [value for value in values if value is not None] or [None]
    kind = type(kept[0])
    same = [value for value in VALUES if type(value) is kind] or [None]
    for _ in range(draw.choice((1, 1, 3)) if values else 0):
        values[draw.randrange(len(values))] = draw.choice([*same, None])
    return frame.with_columns(_series(name, values))


def _series(name: str, values: list[Any]) -> pl.Series:
    """Polars' own idea of the values; text where it has none."""
    try:
        found = pl.Series(name, values, strict=False)
        found.to_frame().write_parquet(io.BytesIO())
    except BaseException:  # values that no column can hold: no parquet file has them
        return pl.Series(name, [ascii(value) for value in values])
    return found


def read_records(folder: Path, data: bytes) -> None:
    """What `desa report` does with a file of records."""
    (folder / "records.parquet").write_bytes(data)
    study = Study(load.read_records(folder))
    write_report(build_report(study, Sampling(5)), folder / "report")


def read_summary(folder: Path, data: bytes) -> None:
    """The summary beside the records."""
    (folder / "records.parquet").write_bytes(parquet(records()))
    (folder / "summary.json").write_bytes(data)
    load.read_records(folder)


SUMMARY = json.dumps({"cells": [{"artifacts": {"records.csv": "a" * 64}, "dataset": "x"}]}).encode()
