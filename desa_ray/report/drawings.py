"""The contents of figures as plain values, from which the page's SVG, the printed files and the CSV
are made.

Every kind is a few panels; `frame` gives their numbers as a table with a row per mark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

Ends = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """Values over an axis, each with the two ends of its 95 % interval."""

    name: str
    at: Sequence[float]
    values: Sequence[float]
    ends: Sequence[Ends]


@dataclass(frozen=True)
class Curves:
    """A panel per outcome (title to curves), all over one axis."""

    axis: str
    panels: Mapping[str, Sequence[Curve]]

    @property
    def logarithmic(self) -> bool:
        return all(curve.at[0] > 0 for curves in self.panels.values() for curve in curves)

    def frame(self) -> pl.DataFrame:
        rows = []
        for panel, curves in self.panels.items():
            for c in curves:
                for at, value, (low, high) in zip(c.at, c.values, c.ends, strict=True):
                    rows.append((panel, c.name, self.axis, at, value, low, high))
        names = ("panel", "curve", "axis", "at", "value", "low", "high")
        return _frame(names, rows)


@dataclass(frozen=True)
class Mark:
    """A named point; `front`: no other has more of y and not more of x."""

    name: str
    x: float
    y: float
    ends: Ends
    front: bool


@dataclass(frozen=True)
class Points:
    """A panel per cost (title of its axis to marks), best on top left."""

    outcome: str
    panels: Mapping[str, Sequence[Mark]]

    def names(self) -> list[str]:
        """Every name once, the best first."""
        marks = [mark for panel in self.panels.values() for mark in panel]
        return list(dict.fromkeys(mark.name for mark in sorted(marks, key=lambda m: -m.y)))

    def frame(self) -> pl.DataFrame:
        rows = []
        for panel, marks in self.panels.items():
            rows += [(panel, m.name, m.x, m.y, *m.ends, m.front) for m in marks]
        return _frame(("cost", "name", "x", self.outcome, "low", "high", "on_front"), rows)


@dataclass(frozen=True)
class Changes:
    """A panel per data set (title to queries): id, value before and after, largest gain first."""

    outcome: str
    panels: Mapping[str, Sequence[tuple[str, float, float]]]

    def frame(self) -> pl.DataFrame:
        rows = []
        for panel, queries in self.panels.items():
            rows += [(panel, *own, own[2] - own[1]) for own in queries]
        return _frame(("panel", "query_id", "before", "after", "change"), rows)


@dataclass(frozen=True)
class HeatMaps:
    """A square matrix of percent per panel; rows and columns have the same labels."""

    labels: Sequence[str]
    row_title: str
    column_title: str
    panels: Mapping[str, np.ndarray]

    def frame(self) -> pl.DataFrame:
        rows = []
        for panel, matrix in self.panels.items():
            for i, j in np.ndindex(*matrix.shape):
                rows.append((panel, self.labels[i], self.labels[j], float(matrix[i, j])))
        return _frame(("panel", self.row_title, self.column_title, "percent"), rows)


@dataclass(frozen=True)
class Boxes:
    """Per panel and name: low whisker, quartile, median, quartile, high whisker."""

    panels: Mapping[str, Mapping[str, Sequence[float]]]

    def frame(self) -> pl.DataFrame:
        rows = []
        for panel, boxes in self.panels.items():
            rows += [(panel, name, *box) for name, box in boxes.items()]
        return _frame(("panel", "name", "low", "q1", "median", "q3", "high"), rows)


Drawing = Curves | Points | Changes | HeatMaps | Boxes


def marked(points: Mapping[str, tuple[float, float, Ends]]) -> list[Mark]:
    """Points by name (x, y, ends of y) as marks, those on the Pareto front (less of x, more of y)
    told; points that are equal in both are on it together.
    """
    found = []
    for name, (x, y, ends) in points.items():
        rivals = [other[:2] for other in points.values() if other[:2] != (x, y)]
        front = not any(a <= x and b >= y for a, b in rivals)
        found.append(Mark(name, x, y, ends, front))
    return found


def along_front(marks: Sequence[Mark]) -> Iterator[tuple[float, float]]:
    """The front's places, left to right."""
    yield from sorted({(mark.x, mark.y) for mark in marks if mark.front})


def _frame(names: Sequence[str], rows: Sequence[tuple]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(names), orient="row", infer_schema_length=None)
