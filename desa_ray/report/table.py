"""A table as data: columns with a format, rows with raw values and labels; renderers do the rest.

Values stay unrounded until they are shown, so that CSV and parquet carry them whole. A value is
text, a number, an interval (two numbers), or None where there is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any, Literal

import polars as pl

Value = str | int | float | tuple[float, float] | None


@dataclass(frozen=True)
class Column:
    """One column. `form` is a format of one number (or of each end of an interval); without it
    values are text.

    Attributes:
        better: which end of the column is marked as best, if any.
        help: a sentence for readers, where the title does not say it all.
        tail: quantiles of a mean, for which terminals and printed pages have no room.
        toward: which end is better where none is marked.
        group, short: in print, the heading that the column shares with its neighbours, and its own
            title below that.
    """

    key: str
    title: str
    form: str | None = None
    better: Literal["high", "low"] | None = None
    help: str = ""
    tail: bool = False
    toward: Literal["high", "low"] | None = None
    group: str = ""
    short: str = ""

    @property
    def arrow(self) -> str:
        """The direction of better, where there is one."""
        return {"high": "↑", "low": "↓"}.get(self.better or self.toward or "", "")

    def show(self, value: Value, form: str | None = None) -> str:
        """The printed form: an en dash for nothing, brackets for an interval, a real minus sign."""
        form = form or self.form
        if value is None or (isinstance(value, float) and isnan(value)):
            return "–"
        if form is None or isinstance(value, str):
            return str(value)
        if isinstance(value, tuple):
            return f"[{_print(value[0], form)}, {_print(value[1], form)}]"
        return _print(value, form)


def _print(number: float, form: str) -> str:
    """A number with a real minus sign, and none before a zero."""
    text = form.format(number)
    return (
        text.replace("-", "−")
        if any(digit in text for digit in "123456789")
        else text.removeprefix("-")
    )


@dataclass(frozen=True)
class Row:
    """Values by column key, and what the row is about: data set, method, comparator, outcome, ...
    by name.

    `forms` replaces a column's format where the row's unit wants another.
    """

    values: Mapping[str, Value]
    about: Mapping[str, Any] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """`name` is its file name and anchor; `notes` are printed below it; a `detail` is not printed
    to the terminal; `about`, under the title, says which cells it took.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    detail: bool = False
    about: str = ""

    def narrow(self) -> "Table":
        """The table without the quantiles of means."""
        return replace(self, columns=[column for column in self.columns if not column.tail])

    def shown(self) -> list[list[str]]:
        """Every cell in print."""
        printed = []
        for row in self.rows:
            printed.append(
                [c.show(row.values.get(c.key), row.forms.get(c.key)) for c in self.columns]
            )
        return printed

    def marks(self) -> list[list[str]]:
        """`best`, `second` or nothing for every cell; equal values share a mark, unmarked where all
        are equal.
        """
        marks = [[""] * len(self.columns) for _ in self.rows]
        for c, column in enumerate(self.columns):
            values = [row.values.get(column.key) for row in self.rows]
            numbers = {v for v in values if isinstance(v, int | float) and not isnan(v)}
            if column.better is None or len(numbers) < 2:
                continue
            ranked = sorted(numbers, reverse=column.better == "high")
            for r, value in enumerate(values):
                if value in ranked[:2]:
                    marks[r][c] = "best" if value == ranked[0] else "second"
        return marks

    def frame(self) -> pl.DataFrame:
        """Raw values as columns; an interval becomes `KEY_low` and `KEY_high`."""
        series: dict[str, list[Any]] = {}
        for column in self.columns:
            values = [row.values.get(column.key) for row in self.rows]
            if any(isinstance(value, tuple) for value in values):
                for end, suffix in enumerate(("low", "high")):
                    series[f"{column.key}_{suffix}"] = [
                        v[end] if isinstance(v, tuple) else None for v in values
                    ]
            elif column.form is not None and any(isinstance(value, str) for value in values):
                series[column.key] = [column.show(value) for value in values]
            else:
                series[column.key] = values
        return pl.DataFrame(series, strict=False)
