"""The report's figures, each drawn from a study; hover any mark for its numbers."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import polars as pl

from desa_ray.core.statistics.inference import TIE
from desa_ray.report.cutoffs import LABELS, cutoff_lengths, transitions
from desa_ray.report.drawings import Boxes, Changes, Drawing, HeatMaps
from desa_ray.report.mechanism import DIAGNOSTICS, has_mechanism, mechanism_draws
from desa_ray.report.names import EFFECTIVENESS, NDCG, dataset_name, method_name
from desa_ray.report.study import Study
from desa_ray.report.svg import Scale, Svg, compact

CUTOFF_SHOWN = 50
BAR = 0.9


@dataclass(frozen=True)
class Figure:
    """`name` is its file name and anchor; `svg` is for the page, `drawing` for print and CSV."""

    name: str
    title: str
    caption: str
    svg: Svg
    drawing: Drawing | None = None


def transition_figure(study: Study) -> Figure | None:
    """Judgments at a fixed cutoff against complete lists, as two heat maps."""
    lengths = cutoff_lengths(study)
    if not lengths:
        return None
    length = CUTOFF_SHOWN if CUTOFF_SHOWN in lengths else lengths[len(lengths) // 2]
    size, left, top, gap = 84, 86, 66, 110
    svg = Svg(
        2 * (left + 3 * size) + gap - 70,
        top + 3 * size + 46,
        f"Judgments at L = {length} and on complete lists",
    )
    panels = {}
    for panel, outcome in enumerate(EFFECTIVENESS):
        matrix = transitions(study, outcome, length).matrix
        panels[outcome.title] = matrix
        x0 = left + panel * (3 * size + gap)
        svg.text(x0 + 1.5 * size, 22, outcome.title, "strong", "middle")
        svg.text(
            x0 + 1.5 * size, top + 3 * size + 30, "judgment on complete lists", "label", "middle"
        )
        svg.text(
            x0 - 62, top + 1.5 * size, f"judgment at L = {length}", "label", "middle", turn=-90
        )
        for i, fixed in enumerate(LABELS):
            svg.text(x0 - 8, top + (i + 0.5) * size + 4, fixed, "tick", "end")
            svg.text(x0 + (i + 0.5) * size, top - 8, fixed, "tick", "middle")
            for j, complete in enumerate(LABELS):
                kind = "same" if i == j else "reversed" if abs(i - j) == 2 else "moved"
                share = matrix[i, j]
                x, y = x0 + j * size, top + i * size
                svg.parts.append(f'<g opacity="{0.10 + 0.6 * (share / 100) ** 0.5:.3f}">')
                svg.rect(x, y, size - 3, size - 3, kind)
                svg.parts.append("</g>")
                svg.text(x + size / 2 - 1, y + size / 2 + 4, f"{share:.2f}", "strong", "middle")
                svg.rect(
                    x,
                    y,
                    size - 3,
                    size - 3,
                    "hit",
                    f"L = {length}: {fixed}; complete: {complete}: {share:.2f} %",
                )
    names = f"{method_name(study.roles.own)} against {method_name(study.roles.base)}"
    caption = (
        f"{names}, every query-draw judged once with lists cut at L = {length} and"
        " once on complete lists; macro percent. Off the diagonal the cutoff changed the judgment;"
        " red cells turn a gain into a loss or vice versa."
    )
    titles = f"judgment at L = {length}", "judgment on complete lists"
    drawing = HeatMaps(LABELS, *titles, panels)
    return Figure("transitions", "Judgments that a cutoff changes", caption, svg, drawing)


def mechanism_figure(study: Study) -> Figure | None:
    """Box plots of dense angle and sparse turnover by data set."""
    shown = ("dense_angle_deg", "turnover")
    if not has_mechanism(study) or not study.complete(study.roles.base):
        return None
    row, left, width, top = 34, 110, 270, 40
    svg = Svg(
        left + 2 * width + 70,
        top + row * len(study.datasets) + 50,
        "Dense angle and sparse turnover",
    )
    draws = {dataset: mechanism_draws(study, dataset) for dataset in study.datasets}
    panels = {}
    for panel, column in enumerate(shown):
        values = {
            dataset: frame[column].drop_nulls().to_numpy() for dataset, frame in draws.items()
        }
        boxes = {dataset: box_of(own) for dataset, own in values.items() if len(own)}
        panels[DIAGNOSTICS[column]] = {dataset_name(d): box for d, box in boxes.items()}
        start = left + panel * (width + 40)
        high = max((box[4] for box in boxes.values()), default=1.0) or 1.0
        x = Scale(0, high * 1.05, start, start + width)
        y = Scale(0, 1, top, top + row * len(study.datasets))
        for tick in x.ticks():
            svg.line(x(tick), y.start, x(tick), y.stop, "grid")
            svg.text(x(tick), y.stop + 16, compact(tick), "tick", "middle")
        svg.text(start, 22, DIAGNOSTICS[column], "head")
        for place, (dataset, (low, q1, median, q3, top_end)) in enumerate(boxes.items()):
            middle = top + (place + 0.5) * row
            if panel == 0:
                svg.text(left - 10, middle + 4, dataset_name(dataset), "label", "end")
            quartiles = f"quartiles {q1:.2f}, {median:.2f}, {q3:.2f}"
            tip = f"{dataset_name(dataset)}: {quartiles}; whiskers {low:.2f}, {top_end:.2f}"
            svg.line(x(low), middle, x(top_end), middle, "whisker")
            svg.rect(x(q1), middle - 9, x(q3) - x(q1), 18, "box")
            svg.line(x(median), middle - 9, x(median), middle + 9, "median")
            svg.rect(x(low), middle - 12, max(x(top_end) - x(low), 6), 24, "hit", tip)
    caption = (
        "Query-draws without fallbacks. Boxes show quartiles and median, whiskers the last value"
        " within 1.5 interquartile ranges; outliers are left out."
    )
    drawing = Boxes(panels)
    return Figure("mechanism", "Angle and turnover by data set", caption, svg, drawing)


def box_of(values: np.ndarray) -> tuple[float, float, float, float, float]:
    """Low whisker, quartile, median, quartile and high whisker of values, float64 [n], n > 0."""
    q1, median, q3 = (float(v) for v in np.quantile(values, (0.25, 0.5, 0.75)))
    inside = values[(values >= q1 - 1.5 * (q3 - q1)) & (values <= q3 + 1.5 * (q3 - q1))]
    return float(inside.min()), q1, median, q3, float(inside.max())


def difference_figure(study: Study, other: str) -> Figure | None:
    """Every query's nDCG@10 difference between the subject and another method, sorted, a panel
    per data set.
    """
    pairs = study.pairs(study.roles.own, other)
    if pairs is None or other == study.roles.own:
        return None
    name = method_name(study.roles.own)
    columns = 1 if len(pairs) == 1 else 2
    width, height, left, top = (600 if columns == 1 else 300), 130, 60, 44
    rows = -(-len(pairs) // columns)
    svg = Svg(
        columns * (left + width + 20),
        rows * (height + top + 10) + 20,
        f"{name} − {method_name(other)} by query",
    )
    panels = {}
    for place, (dataset, (own, base)) in enumerate(pairs.items()):
        x0 = left + place % columns * (left + width + 20)
        y0 = top + place // columns * (height + top + 10)
        both = own.means.select("query_id", NDCG.column).join(
            base.means.select("query_id", pl.col(NDCG.column).alias("base")), on="query_id"
        )
        changed = both.with_columns(change=pl.col(NDCG.column) - pl.col("base")).drop_nulls()
        changed = changed.sort(["change", "query_id"], descending=[True, False])
        changes = changed["change"].to_numpy()
        wins, losses = int((changes > TIE).sum()), int((changes < -TIE).sum())
        head = (
            f"{dataset_name(dataset)}: {wins} wins, {changed.height - wins - losses} ties, {losses}"
            " losses"
        )
        svg.text(x0, y0 - 12, head, "head")
        panels[head] = changed.select("query_id", "base", NDCG.column).rows()
        reach = max(float(np.abs(changes).max(initial=0)), 0.05)
        y = Scale(-reach, reach, y0 + height, y0)
        for tick in y.ticks(4):
            svg.line(x0, y(tick), x0 + width, y(tick), "grid")
            svg.text(x0 - 6, y(tick) + 4, compact(tick), "tick", "end")
        step = width / max(changed.height, 1)
        for number, (query, value, before, change) in enumerate(changed.iter_rows()):
            if abs(change) > TIE:
                end = y(change)
                kind = "win" if change > 0 else "loss"
                tip = f"query {query}: {change:+.4f} ({before:.4f} to {value:.4f})"
                svg.rect(
                    x0 + number * step,
                    min(end, y(0)),
                    max(step * BAR, 0.4),
                    abs(end - y(0)),
                    kind,
                    tip,
                )
        svg.line(x0, y(0), x0 + width, y(0), "axis")
    caption = (
        "One bar per query with a difference: draw-averaged nDCG@10 of "
        f"{name} minus"
        f" {method_name(other)}'s, sorted; ties are the gap in the middle."
    )
    title = f"{name} against {method_name(other)}, query by query"
    drawing = Changes("change of nDCG@10", panels)
    return Figure(f"differences_{_file_name(other)}", title, caption, svg, drawing)


def _file_name(method: str) -> str:
    """A method as part of a file's name, in ASCII; changed names are distinguished by a hash."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", method)
    return plain if plain == method else f"{plain}-{sha256(method.encode()).hexdigest()[:6]}"


FIGURES: tuple[Callable[[Study], Figure | None], ...] = (transition_figure, mechanism_figure)
