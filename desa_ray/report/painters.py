"""Draws each kind of figure with matplotlib: panels, marks, axes and the legend.

Colours are Okabe and Ito's, which colour-blind readers can distinguish; markers and line styles do
the same in greyscale.
"""

import math
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any, Literal, TypeAlias

import numpy as np

from desa_ray.core.statistics.inference import TIE
from desa_ray.printable import printable
from desa_ray.report.drawings import (
    Boxes,
    Changes,
    Curve,
    Curves,
    HeatMaps,
    Mark,
    Points,
    along_front,
)
from desa_ray.report.svg import Scale, compact

Axes: TypeAlias = Any  # matplotlib's, which is not imported before a figure is written
Figure: TypeAlias = Any
Columns = Literal[1, 2]
WIDTH_IN: Mapping[int, float] = {1: 3.3, 2: 7.0}  # of one column and of both, as conferences set
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
GREY = "#5b6570"
GAIN, LOSS = "#0072b2", "#e69f00"  # dark and light also in grey


@singledispatch
def paint(drawing: Any, figure: Figure, columns: Columns) -> None:
    """Draw into a figure that is as wide as the columns; its height is set here."""
    raise TypeError(type(drawing))


@paint.register(Curves)
def _curves(drawing: Curves, figure: Figure, columns: Columns) -> None:
    names = _drawn_curves(drawing)
    axes = _panels(figure, drawing.panels, columns, height=1.75)
    for ax, (title, every) in zip(axes, drawing.panels.items(), strict=True):
        curves = [curve for curve in every if curve.name in names]
        for place, curve in enumerate(curves):
            _curve(ax, curve, place, len(curves), logarithmic=drawing.logarithmic)
        if drawing.logarithmic:
            ax.set_xscale("log")
        ticks = sorted({at for curve in curves for at in curve.at})
        ticks = _apart(ticks, 0.16 / columns, log=drawing.logarithmic)
        ax.set_xticks(ticks, [compact(at) for at in ticks])
        ax.minorticks_off()
        ax.axhline(0, color=GREY, linewidth=0.6, zorder=1)
        ax.grid(visible=True, axis="y")
        ax.set_xlabel(printable(drawing.axis))
        ax.set_ylabel(printable(title))
    _legend(figure, [_line(place) for place in range(len(names))], names, columns)


def _drawn_curves(drawing: Curves) -> list[str]:
    """Names of the curves that have several points; of all where none has."""
    curves = next(iter(drawing.panels.values()))
    several = [curve.name for curve in curves if len(curve.at) > 1]
    return several or [curve.name for curve in curves]


def _apart(ticks: Sequence[float], share: float, *, log: bool) -> list[float]:
    """Ticks whose labels do not touch: the ends, and those between that are a share of the axis
    apart.
    """
    places = [math.log(tick) if log else tick for tick in ticks]
    least = share * (places[-1] - places[0])
    kept = [0]
    for number in range(1, len(ticks) - 1):
        if places[number] - places[kept[-1]] >= least <= places[-1] - places[number]:
            kept.append(number)
    return [ticks[number] for number in [*kept, *([len(ticks) - 1] if len(ticks) > 1 else [])]]


def _curve(ax: Axes, curve: Curve, place: int, count: int, *, logarithmic: bool) -> None:
    """A curve with its intervals, moved a little aside so that those of others stay visible."""
    aside = ((place + 0.5) / count - 0.5) * 0.04
    at = np.array(curve.at, dtype=float)
    at = at * (1 + 3 * aside) if logarithmic else at + aside * (at[-1] - at[0])
    values, ends = np.array(curve.values), np.array(curve.ends)
    bars = np.abs(ends.T - values)
    look: dict[str, Any] = {
        "color": COLOURS[place % 7],
        "marker": MARKERS[place % 10],
        "ls": LINES[place % 5],
    }
    ax.errorbar(at, values, yerr=bars, elinewidth=0.7, capsize=1.5, capthick=0.7, **look)


@paint.register(Points)
def _points(drawing: Points, figure: Figure, columns: Columns) -> None:
    names = drawing.names()
    axes = _panels(figure, drawing.panels, columns, height=2.1, shared=True)
    for number, (ax, (title, marks)) in enumerate(zip(axes, drawing.panels.items(), strict=True)):
        for mark in marks:
            _mark(ax, mark, names.index(mark.name))
        ax.plot(*zip(*along_front(marks), strict=True), color=GREY, ls="--", lw=0.8, zorder=1)
        _cost_axis(ax, [mark.x for mark in marks])
        ax.grid(visible=True)
        ax.set_xlabel(printable(title).replace(" (", "\n("))
        if number % axes_in_row(len(axes), columns) == 0:
            ax.set_ylabel(printable(drawing.outcome))
    front = {m.name for panel in drawing.panels.values() for m in panel if m.front}
    handles = [_dot(place, filled=name in front) for place, name in enumerate(names)]
    _legend(figure, handles, names, columns, "filled: on the Pareto front")


def _mark(ax: Axes, mark: Mark, place: int) -> None:
    colour = COLOURS[place % 7]
    bars = [[mark.y - mark.ends[0]], [mark.ends[1] - mark.y]]
    ax.errorbar([mark.x], [mark.y], yerr=bars, fmt="none", ecolor=colour, elinewidth=0.6, alpha=0.6)
    face = colour if mark.front else "white"
    look: dict[str, Any] = {"marker": MARKERS[place % 10], "color": colour, "markerfacecolor": face}
    ax.plot([mark.x], [mark.y], ls="none", ms=5 if mark.front else 4, **look)


def _cost_axis(ax: Axes, values: Sequence[float]) -> None:
    """Logarithmic where all costs are positive and far apart."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 3:
        scale = Scale(low / 1.15, high * 1.15, 0, 1, log=True)
        ax.set_xscale("log")
        ax.set_xlim(scale.low, scale.high)
    else:
        room = 0.08 * (high - low) or 1.0
        scale = Scale(low - room, high + room, 0, 1)
        ax.set_xlim(scale.low, scale.high)
    ticks = scale.ticks(4)
    ax.set_xticks(ticks, [compact(tick) for tick in ticks])
    ax.minorticks_off()


@paint.register(Changes)
def _changes(drawing: Changes, figure: Figure, columns: Columns) -> None:
    axes = _panels(figure, drawing.panels, columns, height=1.15, row=columns)
    for ax, (title, queries) in zip(axes, drawing.panels.items(), strict=True):
        changes = np.array([after - before for _, before, after in queries])
        places = np.arange(len(changes))
        for kind, colour in ((changes > TIE, GAIN), (changes < -TIE, LOSS)):
            ax.fill_between(
                places, np.where(kind, changes, 0.0), color=colour, step="mid", linewidth=0.3
            )
        ax.axhline(0, color=GREY, linewidth=0.6)
        ax.set_title(printable(title), loc="left", fontweight="normal")
        ax.set_xlim(-0.5, max(len(changes), 1) - 0.5)
        reach = max(float(np.abs(changes).max(initial=0)), 0.05) * 1.05
        ax.set_ylim(-reach, reach)
        ax.grid(visible=True, axis="y")
        ax.set_xticks([])
    figure.supxlabel("queries, sorted", fontsize=7)
    figure.supylabel(printable(drawing.outcome), fontsize=7)


@paint.register(HeatMaps)
def _heat_maps(drawing: HeatMaps, figure: Figure, columns: Columns) -> None:
    axes = _panels(figure, drawing.panels, columns, height=1.9 if columns == 1 else 2.2)
    for number, (ax, (title, matrix)) in enumerate(zip(axes, drawing.panels.items(), strict=True)):
        ax.imshow(np.sqrt(matrix / 100), cmap="Blues", vmin=0, vmax=1.15)
        for i, j in np.ndindex(*matrix.shape):
            dark = matrix[i, j] > 45
            ax.text(
                j,
                i,
                f"{matrix[i, j]:.2f}",
                ha="center",
                va="center",
                size=6.5,
                color="white" if dark else "black",
            )
        ax.set_xticks(range(len(drawing.labels)), drawing.labels)
        ax.set_yticks(range(len(drawing.labels)), drawing.labels, rotation=90, va="center")
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        ax.set_title(printable(title))
        ax.set_xlabel(printable(drawing.column_title))
        if number == 0:
            ax.set_ylabel(printable(drawing.row_title))


@paint.register(Boxes)
def _boxes(drawing: Boxes, figure: Figure, columns: Columns) -> None:
    names = list(dict.fromkeys(name for boxes in drawing.panels.values() for name in boxes))
    axes = _panels(figure, drawing.panels, columns, height=0.55 + 0.2 * len(names))
    for number, (ax, (title, boxes)) in enumerate(zip(axes, drawing.panels.items(), strict=True)):
        for name, (low, q1, median, q3, high) in boxes.items():
            place = names.index(name)
            ax.plot([low, high], [place, place], color=COLOURS[0], lw=0.8, zorder=1)
            ax.barh(place, q3 - q1, 0.55, left=q1, color="#cfe3f1", ec=COLOURS[0], lw=0.7)
            ax.plot([median, median], [place - 0.275, place + 0.275], color="black", lw=1.2)
        ax.set_yticks(range(len(names)), [printable(n) for n in names] if number == 0 else [])
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlim(left=0)
        ax.grid(visible=True, axis="x")
        ax.set_xlabel(printable(title))


def axes_in_row(count: int, columns: Columns) -> int:
    """Panels side by side: a column holds two small ones, a page three."""
    return min(count, 2 if columns == 1 else 3)


def _panels(
    figure: Figure,
    panels: Mapping[str, Any],
    columns: Columns,
    *,
    height: float,
    row: int = 0,
    shared: bool = False,
) -> list[Axes]:
    """An axes per panel, `height` inches each, in rows; `shared`: one y axis a row."""
    across = row or axes_in_row(len(panels), columns)
    down = -(-len(panels) // across)
    figure.set_size_inches(WIDTH_IN[columns], 0.15 + height * down)
    grid = figure.subplots(down, across, squeeze=False, sharey="all" if shared else "none")
    for unused in list(grid.flat)[len(panels) :]:
        unused.remove()
    return list(grid.flat)[: len(panels)]


def _line(place: int) -> Any:
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {
        "color": COLOURS[place % 7],
        "marker": MARKERS[place % 10],
        "ls": LINES[place % 5],
    }
    return Line2D([], [], **look)


def _dot(place: int, *, filled: bool) -> Any:
    from matplotlib.lines import Line2D

    colour = COLOURS[place % 7]
    look: dict[str, Any] = {"color": colour, "markerfacecolor": colour if filled else "white"}
    return Line2D([], [], ls="none", marker=MARKERS[place % 10], **look)


def _legend(
    figure: Figure, handles: list, names: Sequence[str], columns: Columns, title: str = ""
) -> None:
    """Below the panels, in as many columns as the longest name leaves room for."""
    # A name that begins with an underscore would be left out.
    labels = [f"\u2009{printable(name)}" for name in names]
    room = WIDTH_IN[columns] / (0.42 + 0.055 * max(map(len, labels)))
    across = max(1, min(len(labels), int(room)))
    down = -(-len(labels) // across)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.14 * (down + bool(title)) + 0.05)
    look: dict[str, Any] = {"title": title, "title_fontsize": 6.5} if title else {}
    figure.legend(handles, labels, loc="outside lower center", ncols=across, **look)
