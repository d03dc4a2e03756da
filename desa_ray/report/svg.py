"""A small SVG writer: axes, scales and shapes whose colours follow the reader's light or dark
setting.

Written here because figures must be byte-identical for equal numbers, carry a hover text on every
mark, and restyle themselves in a page; plotting libraries embed dates or random ids, or need a
script from another host. Coordinates are in pixels of the view box, numbers are printed to two
decimals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from desa_ray.report.escapes import html


@cache
def asset(name: str) -> str:
    """A file of `assets/`."""
    return (files("desa_ray.report") / "assets" / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Scale:
    """Maps data from `low..high` to pixels `start..stop`, straight or by logarithm."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / ((high - low) or 1) * (self.stop - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside the range: 1, 2 or 5 times a power of ten."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if len(powers) > 4 else (1, 2, 5)
            ticks = [s * 10.0**p for p in powers for s in steps]
            found = [t for t in ticks if self.low <= t <= self.high]
            if len(found) > 2:
                return found
        rough = (self.high - self.low) / count or 1
        power = 10 ** math.floor(math.log10(rough))
        step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def padded(
    values: Sequence[float], share: float = 0.06, *, zero: bool = False
) -> tuple[float, float]:
    """The range of the values with room at both ends; `zero` brings 0 into it."""
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = share * (high - low) or 0.5
    return low - room, high + room


class Svg:
    """A drawing. Shapes take CSS classes of `assets/figure.css`, and `tip`, the text shown on
    hover.
    """

    def __init__(self, width: int, height: int, title: str):
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def _add(
        self, tag: str, attributes: dict[str, object], css: str, tip: str, text: str = ""
    ) -> None:
        shown = "".join(
            f' {k.replace("_", "-")}="{html(_number(v))}"' for k, v in attributes.items()
        )
        inner = f"<title>{html(tip)}</title>" if tip else ""
        inner += html(text)
        self.parts.append(
            f'<{tag} class="{css}"{shown}>{inner}</{tag}>'
            if inner
            else f'<{tag} class="{css}"{shown}/>'
        )

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, tip: str = ""
    ) -> None:
        self._add(
            "rect", {"x": x, "y": y, "width": max(width, 0), "height": max(height, 0)}, css, tip
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str, tip: str = "") -> None:
        self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2}, css, tip)

    def circle(self, x: float, y: float, radius: float, css: str, tip: str = "") -> None:
        self._add("circle", {"cx": x, "cy": y, "r": radius}, css, tip)

    def path(
        self, points: Sequence[tuple[float, float]], css: str, *, closed: bool = False
    ) -> None:
        steps = " L".join(f"{_number(x)} {_number(y)}" for x, y in points)
        self._add("path", {"d": f"M{steps}{' Z' if closed else ''}"}, css, "")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        css: str = "label",
        anchor: str = "start",
        turn: int = 0,
    ) -> None:
        turned = {"transform": f"rotate({turn} {_number(x)} {_number(y)})"} if turn else {}
        self._add("text", {"x": x, "y": y, "text_anchor": anchor, **turned}, css, "", text)

    def axes(
        self,
        x: Scale,
        y: Scale,
        x_title: str,
        y_title: str,
        *,
        x_ticks: Sequence[float] | None = None,
    ) -> None:
        """Grid, tick labels and titles of one panel; the scales' pixels are its frame."""
        bottom, left = max(y.start, y.stop), min(x.start, x.stop)
        for tick in y.ticks():
            self.line(x.start, y(tick), x.stop, y(tick), "grid")
            self.text(left - 6, y(tick) + 4, compact(tick), "tick", "end")
        for tick in x.ticks() if x_ticks is None else x_ticks:
            self.line(x(tick), bottom, x(tick), bottom + 4, "axis")
            self.text(x(tick), bottom + 17, compact(tick), "tick", "middle")
        self.line(x.start, bottom, x.stop, bottom, "axis")
        self.text((x.start + x.stop) / 2, bottom + 35, x_title, "label", "middle")
        self.text(left, min(y.start, y.stop) - 8, y_title, "label")

    def render(self, *, standalone: bool) -> str:
        """The `<svg>` element; a standalone file brings its style sheet and background along."""
        style = f"<style>{asset('figure.css')}</style>" if standalone else ""
        paper = (
            f'<rect class="paper" width="{self.width}" height="{self.height}"/>'
            if standalone
            else ""
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="fig" viewBox="0 0 {self.width}'
            f' {self.height}" width="{self.width}" height="{self.height}" role="img"'
            f' aria-label="{html(self.title)}">'
        )
        return head + style + paper + "".join(self.parts) + "</svg>"


def compact(value: float) -> str:
    """A tick label: 1200000 -> 1.2M, 0.0025 -> 0.0025, -3 -> −3."""
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if unit == 'M' else 1e3):g}{unit}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def _number(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
