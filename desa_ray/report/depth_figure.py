"""Box plots of the certification depths of every method, a panel per channel."""

from collections.abc import Mapping

import polars as pl

from desa_ray.report.drawings import Boxes
from desa_ray.report.figures import Figure, box_of
from desa_ray.report.names import method_name
from desa_ray.report.study import Study
from desa_ray.report.svg import Scale, Svg, compact

DEPTHS = {"depth_dense": "dense depth, documents", "depth_sparse": "sparse depth, documents"}
TITLE = "Certification depths"
ROW, LEFT, WIDTH, TOP, GAP = 30, 190, 250, 40, 40
Panels = Mapping[str, Mapping[str, tuple[float, float, float, float, float]]]


def depth_figure(study: Study) -> Figure | None:
    """Every method with two channels in the main setting; None where there is none."""
    panels: dict[str, dict[str, tuple[float, float, float, float, float]]] = {}
    for column, title in DEPTHS.items():
        for method in study.two_channels:
            values = [cell.means[column].drop_nulls() for cell in study.cells_of(method)]
            if values and sum(map(len, values)):
                boxes = panels.setdefault(title, {})
                boxes[method_name(method)] = box_of(pl.concat(values).to_numpy())
    if not panels:
        return None
    caption = (
        "Draw-averaged, over the queries of all data sets. Boxes show quartiles and median,"
        " whiskers the last value within 1.5 interquartile ranges; outliers are left out."
    )
    return Figure("depths", TITLE, caption, _drawn(panels), Boxes(panels))


def _drawn(panels: Panels) -> Svg:
    names = list(next(iter(panels.values())))
    bottom = TOP + ROW * len(names)
    svg = Svg(LEFT + len(panels) * (WIDTH + GAP), bottom + 30, TITLE)
    for number, name in enumerate(names):
        svg.text(LEFT - 10, TOP + (number + 0.5) * ROW + 4, name, "label", "end")
    for panel, (title, boxes) in enumerate(panels.items()):
        start = LEFT + panel * (WIDTH + GAP)
        high = max(box[4] for box in boxes.values()) or 1.0
        x = Scale(0, high * 1.05, start, start + WIDTH)
        svg.text(start, 22, title, "head")
        for tick in x.ticks():
            svg.line(x(tick), TOP, x(tick), bottom, "grid")
            svg.text(x(tick), bottom + 18, compact(tick), "tick", "middle")
        for number, (name, (low, q1, median, q3, end)) in enumerate(boxes.items()):
            middle = TOP + (number + 0.5) * ROW
            svg.line(x(low), middle, x(end), middle, "whisker")
            svg.rect(x(q1), middle - 8, x(q3) - x(q1), 16, "box")
            svg.line(x(median), middle - 8, x(median), middle + 8, "median")
            tip = f"{name}, {title}: quartiles {q1:.1f}, {median:.1f}, {q3:.1f}"
            svg.rect(x(low), middle - 11, max(x(end) - x(low), 6), 22, "hit", tip)
    return svg
