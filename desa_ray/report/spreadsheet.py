"""CSV files that a spreadsheet does not interpret: text stays text, numbers stay numbers.

A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@` as a formula, also after a tab or a
line end. Such text gets an apostrophe in front, which spreadsheets show as text; numbers, written
as text or not, are left alone. Parquet files and TREC runs next to the CSV keep every id as it is.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import polars.selectors as cs

FORMULA = r"^(?:[\t\r\n]|[\s\x00-\x1f\x7f\u00a0\u200b\ufeff]*[=+\-@＝＋－＠])"
NUMBER = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?%?$"


def write_csv(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame with its text neutralised, headings too; headings that would become equal get
    further apostrophes.
    """
    frame = frame.with_columns(cs.categorical().cast(pl.String), cs.enum().cast(pl.String))
    texts = [neutralised(frame[name]) for name in frame.columns if frame.schema[name] == pl.String]
    headings = dict(zip(frame.columns, _headings(frame.columns), strict=True))
    frame.with_columns(texts).rename(headings).write_csv(path)


def _headings(names: Sequence[str]) -> list[str]:
    """The names, neutralised, each once."""
    spelled = neutralised(pl.Series(names, dtype=pl.String)).to_list()
    taken = {name for name, own in zip(names, spelled, strict=True) if name == own}
    for place, (name, own) in enumerate(zip(names, spelled, strict=True)):
        if name == own:
            continue
        while own in taken:
            own = f"'{own}"
        taken.add(own)
        spelled[place] = own
    return spelled


def neutralised(texts: pl.Series) -> pl.Series:
    """Text (String) with an apostrophe before everything that a spreadsheet would run."""
    runs = texts.str.contains(FORMULA) & ~texts.str.contains(NUMBER)
    return (
        texts.to_frame("text")
        .select(pl.when(runs).then(pl.format("'{}", "text")).otherwise("text").alias(texts.name))
        .to_series()
    )
