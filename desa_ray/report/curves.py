"""Curves over every swept number and over corpus size: nDCG@10 effect and depth reduction against
the reference, with 95 % intervals.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.cells import number_of
from desa_ray.report.drawings import Curve, Curves
from desa_ray.report.figures import Figure
from desa_ray.report.names import NDCG, dataset_name, method_name
from desa_ray.report.results import main_methods
from desa_ray.report.robustness import variations
from desa_ray.report.study import Study, paired_values
from desa_ray.report.svg import Scale, Svg, padded

TITLES = {"kappa": "κ", "k": "K", "n_refs": "number of references"}  # of labels that are numbers


@dataclass(frozen=True)
class Point:
    """One value of the axis: effect or reduction, and its interval."""

    at: float
    value: float
    low: float
    high: float


def axis_figures(study: Study, sampling: Sampling) -> list[Figure]:
    """A figure of every setting that was swept over numbers."""
    axes = [*TITLES, *study.setting.further]
    drawn = [axis_figure(study, axis, sampling) for axis in axes]
    return [figure for figure in drawn if figure is not None]


def axis_figure(study: Study, axis: str, sampling: Sampling) -> Figure | None:
    """Every main method that uses the setting, at every value of it, against the reference at the
    same value; None where it was not swept, or over words.
    """
    base, title = study.roles.base, TITLES.get(axis, axis)
    settings = study.varied(axis)
    ats = [number_of(setting.value(axis)) for setting in settings]
    if len(settings) < 2 or not np.isfinite(ats).all():
        return None
    panels: list[dict[str, list[Point]]] = [{}, {}]
    for method in [method for method in main_methods(study) if method != base]:
        curves: list[list[Point]] = [[], []]
        for at, setting in zip(ats, settings, strict=True):
            pairs = list((study.pairs(method, base, setting) or {}).values())
            if pairs and all(own.value(axis) is not None for own, _ in pairs):
                for curve, point in zip(curves, _points(at, pairs, sampling), strict=True):
                    curve.append(point)
        if len(curves[0]) > 1:
            for panel, curve in zip(panels, curves, strict=True):
                panel[method_name(method)] = curve
    if not panels[0]:
        return None
    caption = (
        f"Each method against {method_name(base)} at the same {title}, macro; bars and bands are"
        " 95 % bootstrap intervals."
    )
    name = axis if axis == "kappa" else f"curve_{re.sub(r'[^A-Za-z0-9_.-]+', '-', axis)}"
    svg = _draw(panels, title, f"What {title} changes", base)
    drawing = _drawing(panels, title, base)
    return Figure(name, f"What {title} changes", caption, svg, drawing)


def corpus_figure(study: Study, sampling: Sampling) -> Figure | None:
    """The subject against the reference on nested corpora, a curve per data set."""
    own, base = study.roles.own, study.roles.base
    found = variations(study, "corpus_docs") if own != base else {}
    if not found:
        return None
    panels: list[dict[str, list[Point]]] = [{}, {}]
    for documents, pairs in found.items():
        for dataset, pair in sorted(pairs.items()):
            points = _points(number_of(documents), [pair], sampling)
            for panel, point in zip(panels, points, strict=True):
                panel.setdefault(dataset_name(dataset), []).append(point)
    caption = (
        f"{method_name(own)} against {method_name(base)} on nested corpora; bars and bands are 95 %"
        " bootstrap intervals."
    )
    svg = _draw(panels, "documents", "What corpus size changes", base)
    drawing = _drawing(panels, "documents", base)
    return Figure("corpus_size", "What corpus size changes", caption, svg, drawing)


def _points(at: float, pairs: Sequence[tuple], sampling: Sampling) -> tuple[Point, Point]:
    """The nDCG@10 effect, and the mean over data sets of the total-depth reduction in percent."""
    strata = [paired_values(own, other, [NDCG.column])[:, 0] for own, other in pairs]
    samples = sampling.bootstrap_means(strata).mean(1)
    own, other = np.mean([values.mean(0) for values in strata], axis=0)
    effect = Point(at, float(own - other), *interval(samples[:, 0] - samples[:, 1]))
    strata = [paired_values(own, other, ["depth_total"])[:, 0] for own, other in pairs]
    samples = sampling.bootstrap_means(strata)
    reduced = 100 * (1 - samples[:, :, 0] / samples[:, :, 1]).mean(1)
    means = np.array([values.mean(0) for values in strata])
    return effect, Point(
        at, float(100 * (1 - means[:, 0] / means[:, 1]).mean()), *interval(reduced)
    )


def _heads(base: str) -> tuple[str, str]:
    return f"nDCG@10 − {method_name(base)}'s", "total depth reduction %"


def _drawing(panels: Sequence[Mapping[str, list[Point]]], axis: str, base: str) -> Curves:
    """The same points for print and CSV."""
    found = {}
    for head, panel in zip(_heads(base), panels, strict=True):
        curves = []
        for name, points in panel.items():
            ends = [(p.low, p.high) for p in points]
            curves.append(Curve(name, [p.at for p in points], [p.value for p in points], ends))
        found[head] = curves
    return Curves(axis, found)


def _draw(panels: Sequence[Mapping[str, list[Point]]], x_title: str, title: str, base: str) -> Svg:
    width, height, left, top, gap = 300, 240, 62, 40, 70
    names = list(panels[0])
    svg = Svg(left + 2 * width + gap + 20, top + height + 50 + 20 * -(-len(names) // 4), title)
    for place, (panel, head) in enumerate(zip(panels, _heads(base), strict=True)):
        points = [point for curve in panel.values() for point in curve]
        ats = sorted({point.at for point in points})
        x0 = left + place * (width + gap)
        log = ats[0] > 0
        x = Scale(
            *((ats[0] / 1.15, ats[-1] * 1.15) if log else padded(ats)), x0, x0 + width, log=log
        )
        y = Scale(
            *padded([v for p in points for v in (p.low, p.high)], zero=True), top + height, top
        )
        svg.axes(x, y, x_title, head, x_ticks=ats)
        svg.line(x.start, y(0), x.stop, y(0), "zero")
        for number, name in enumerate(names):
            curve, series = panel[name], f"s{number % 8 + 1}"
            band = [(x(p.at), y(p.low)) for p in curve] + [
                (x(p.at), y(p.high)) for p in reversed(curve)
            ]
            svg.path(band, f"band {series}", closed=True)
            svg.path([(x(p.at), y(p.value)) for p in curve], f"curve {series}")
            for p in curve:
                svg.line(x(p.at), y(p.low), x(p.at), y(p.high), f"bar {series}")
                digits = ".4f" if place == 0 else ".2f"
                tip = (
                    f"{name} at {p.at:g}: {p.value:{digits}} [{p.low:{digits}}, {p.high:{digits}}]"
                )
                svg.circle(x(p.at), y(p.value), 4.5, f"dot {series}", tip.replace("-", "−"))
    for number, name in enumerate(names):
        x, y = left + number % 4 * 165, top + height + 60 + number // 4 * 20
        svg.circle(x, y - 4, 5, f"dot s{number % 8 + 1}")
        svg.text(x + 10, y, name)
    return svg
