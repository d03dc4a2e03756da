"""What reading in order costs: certification depths next to least depths and depths with random
access (method.md section 6.15).
"""

import polars as pl

from desa_ray.core.statistics.aggregate import by_query, macro
from desa_ray.report.cells import RecordedCell
from desa_ray.report.drawings import Boxes
from desa_ray.report.figures import Figure, box_of
from desa_ray.report.names import dataset_name, method_name
from desa_ray.report.study import Study
from desa_ray.report.svg import Scale, Svg, compact
from desa_ray.report.table import Column, Row, Table, Value

KINDS = {
    "depth_total": "certification depth",
    "least_depth_total": "least sorted depth",
    "ta_depth_total": "random access (TA)",
}
PAIRS = "least_pairs"
NOTE = (
    "totals over all lists, averaged over draws, then over queries; least depths exist only for two"
    " complete lists"
)


def access_table(study: Study) -> Table | None:
    """Mean depths of each kind and the number of minimal pairs, a data set at a time, then macro;
    None where no record has them.
    """
    rows, macros = [], []
    for method in study.methods:
        found: list[dict[str, float]] = []
        for dataset in study.datasets:
            means = _means(study.cell(dataset, method))
            if not means:
                continue
            found.append(means)
            named: dict[str, Value] = {
                "dataset": dataset_name(dataset),
                "method": method_name(method),
            }
            rows.append(Row({**named, **means}, {"dataset": dataset, "method": method}))
        if len(found) == len(study.datasets) > 1:
            named = {"dataset": "macro", "method": method_name(method)}
            for name in sorted(set(found[0]).intersection(*found)):
                named[name] = macro([own[name] for own in found])
            macros.append(Row(named, {"macro": True, "method": method}))
    if not rows:
        return None
    columns = (
        Column("dataset", "data set"),
        Column("method", "method"),
        *(Column(name, title, "{:.1f}") for name, title in KINDS.items()),
        Column(PAIRS, "minimal pairs", "{:.1f}"),
    )
    title = "Depths with and without random access"
    return Table("access", title, columns, [*rows, *macros], [NOTE], about=study.about)


def access_figure(study: Study) -> Figure | None:
    """Box plots of each kind of depth, a panel per method, over the queries of all data sets."""
    panels: dict[str, dict[str, tuple[float, float, float, float, float]]] = {}
    for method in study.methods:
        frames = [_by_query(study.cell(dataset, method)) for dataset in study.datasets]
        known = [frame for frame in frames if frame is not None]
        boxes = {}
        for name, title in KINDS.items():
            values = [frame[name].drop_nulls() for frame in known if name in frame.columns]
            if values and sum(map(len, values)):
                boxes[title] = box_of(pl.concat(values).to_numpy())
        if boxes:
            panels[method_name(method)] = boxes
    if not panels:
        return None
    row, left, width, top = 30, 150, 420, 44
    height = top + row * len(KINDS)
    svg = Svg(left + width + 40, height * len(panels) + 40, "Depths by kind of access")
    high = max(box[4] for boxes in panels.values() for box in boxes.values()) or 1.0
    x = Scale(0, high * 1.05, left, left + width)
    for number, (name, boxes) in enumerate(panels.items()):
        start = number * height
        svg.text(left, start + 24, name, "head")
        for place, (title, (low, q1, median, q3, end)) in enumerate(boxes.items()):
            middle = start + top + (place + 0.5) * row
            svg.text(left - 10, middle + 4, title, "label", "end")
            svg.line(x(low), middle, x(end), middle, "whisker")
            svg.rect(x(q1), middle - 8, x(q3) - x(q1), 16, "box")
            svg.line(x(median), middle - 8, x(median), middle + 8, "median")
            tip = f"{name}, {title}: quartiles {q1:.1f}, {median:.1f}, {q3:.1f}"
            svg.rect(x(low), middle - 11, max(x(end) - x(low), 6), 22, "hit", tip)
    for tick in x.ticks():
        svg.line(x(tick), top, x(tick), height * len(panels), "grid")
        svg.text(x(tick), height * len(panels) + 18, compact(tick), "tick", "middle")
    caption = (
        "Items read of all lists, draw-averaged, over all queries. Boxes show quartiles and median,"
        " whiskers the last value within 1.5 interquartile ranges."
    )
    return Figure("access", "Depths with and without random access", caption, svg, Boxes(panels))


def _by_query(cell: RecordedCell | None) -> pl.DataFrame | None:
    """Draw-averaged depths of each query; None where the cell has none beside its own."""
    if cell is None or "ta_depth_total" not in cell.records.columns:
        return None
    names = [name for name in (*KINDS, PAIRS) if name in cell.records.columns]
    return by_query(cell.records, names)


def _means(cell: RecordedCell | None) -> dict[str, float]:
    """Means over queries; empty where the cell has no such depths."""
    frame = _by_query(cell)
    if frame is None:
        return {}
    found: dict[str, float] = {}
    for name in frame.columns:
        if name != "query_id" and frame[name].null_count() < frame.height:
            found[name] = float(frame[name].drop_nulls().to_numpy().mean())
    return found
