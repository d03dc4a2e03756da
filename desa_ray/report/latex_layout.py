"""Layout of a table on a printed page: widths, headings of several lines, and parts that fit.

Widths are those of Computer Modern at 8 pt, which is wider than Times and Libertine: what fits here
fits in the templates of the usual conferences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from desa_ray.printable import printable
from desa_ray.report.table import Column, Table

POINTS_PER_INCH = 72.27
GAP = 6.0  # twice \tabcolsep
ROWS = 44  # of one part; a page holds about 60 lines of 8 pt with a caption
TEXT_SHARE = 0.36  # of the width, at most, for a column of text; longer text is broken
BOLD = 1.16
SCALE = 8 * 1.0625 / 1000  # units of cmr10 to points of cmr8
UNITS = {  # of cmr10, in thousandths of an em
    **dict.fromkeys('0123456789abghknopquvxyd$"*/^\\{}~', 555),
    **dict.fromkeys('0123456789$"*/^\\{}~aego', 500),
    **dict.fromkeys("ijl!',.:;[]`_", 290),
    **dict.fromkeys("cezrsft()-? >I", 450),
    **dict.fromkeys("mw#%&+=<|", 840),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ@−", 790),
    **dict.fromkeys("MW", 1030),
}
OTHER = 900  # signs that are not listed here


def text_points(text: str) -> float:
    """The width of a text in points, never less than it is."""
    return sum(UNITS.get(sign, OTHER) for sign in printable(text)) * SCALE


@dataclass(frozen=True)
class Layout:
    """A table's cells as they are printed, and how wide every column is.

    Attributes:
        columns: of the table.
        titles: a heading's lines by column.
        points: widths in points.
        broken: columns whose text is broken into lines of that width.
        lines: of every row, how many lines it takes.
        keys: how many columns at the left name a row.
    """

    columns: Sequence[Column]
    titles: Sequence[Sequence[str]]
    points: Sequence[float]
    broken: Sequence[bool]
    lines: Sequence[int]
    keys: int

    def width(self, places: Sequence[int]) -> float:
        """Points of a tabular of these columns, without room at its ends."""
        total = GAP * (len(places) - 1)
        for group, run in groupby(places, key=lambda place: self.columns[place].group):
            own = [self.points[place] for place in run]
            total += max(sum(own), text_points(group) - GAP * (len(own) - 1) if group else 0.0)
        return total

    def parts(self, room: float) -> Iterator[list[int]]:
        """Places of columns that fit side by side, those that name the row first in each part;
        columns of a group stay together where they can.
        """
        keys = list(range(self.keys))
        part = list(keys)
        for unit in self._units(room):
            if len(part) > len(keys) and self.width([*part, *unit]) > room:
                yield part
                part = list(keys)
            part += unit
        if part:
            yield part

    def _units(self, room: float) -> Iterator[list[int]]:
        keys = list(range(self.keys))
        unit: list[int] = []
        for place in range(self.keys, len(self.columns)):
            group = self.columns[place].group
            same = unit and group and self.columns[unit[0]].group == group
            if unit and not (same and self.width([*keys, *unit, place]) <= room):
                yield unit
                unit = []
            unit.append(place)
        if unit:
            yield unit

    def row_parts(self) -> Iterator[range]:
        """Rows of every part of a long table."""
        start, used = 0, 0
        for row, lines in enumerate(self.lines):
            if used + lines > ROWS and row > start:
                yield range(start, row)
                start, used = row, 0
            used += lines
        yield range(start, len(self.lines))


def laid_out(table: Table, room: float) -> Layout:
    """The layout of a table whose widest part may have `room` points."""
    shown = table.shown()
    count = len(table.columns)
    keys = min(next((n for n, column in enumerate(table.columns) if column.form), count), 3) or 1
    widest = _widest(table, shown)
    heads = [
        max(map(text_points, heading(column, width)), default=0.0)
        for column, width in zip(table.columns, widest, strict=True)
    ]
    natural = [max(pair) for pair in zip(widest, heads, strict=True)]
    cap = room * TEXT_SHARE * (1 if keys < 3 else 0.7)
    beside = max(
        (min(natural[n], cap) if table.columns[n].form is None else natural[n])
        for n in range(min(keys, count - 1), count)
    )
    if sum(min(width, cap) for width in natural[:keys]) + GAP * keys + beside > room:
        cap = (room - beside - GAP * keys) / keys  # names of rows make way for one column at least
    broken = [
        column.form is None and width > cap
        for column, width in zip(table.columns, natural, strict=True)
    ]
    points = [cap if long else own for own, long in zip(natural, broken, strict=True)]
    titles = [
        heading(column, cap if long else width)
        for column, width, long in zip(table.columns, widest, broken, strict=True)
    ]
    heights = []
    for cells in shown:
        needed = [1]
        for cell, width, long in zip(cells, points, broken, strict=True):
            needed.append(1 + int(1.25 * text_points(cell) / width) if long else 1)
        heights.append(max(needed))
    return Layout(table.columns, titles, points, broken, heights, keys)


def _widest(table: Table, shown: Sequence[Sequence[str]]) -> list[float]:
    """Of every column the width of its widest cell."""
    found = [0.0] * len(table.columns)
    for cells, marks in zip(shown, table.marks(), strict=True):
        for place, (cell, mark) in enumerate(zip(cells, marks, strict=True)):
            own = text_points(cell) * (BOLD if mark == "best" else 1)
            found[place] = max(found[place], own)
    return found


def heading(column: Column, room: float) -> list[str]:
    """A heading in lines, each as wide as the cells or its longest word; the last has the arrow."""
    words = (column.short or column.title).split(" ")
    if column.arrow:
        words[-1] += column.arrow
    room = max(room, *map(text_points, words))
    lines = [words[0]]
    for word in words[1:]:
        if text_points(f"{lines[-1]} {word}") <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
