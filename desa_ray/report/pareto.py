"""Effectiveness against cost, with the Pareto front: certification depth, and tokens, seconds and
bytes per query.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from desa_ray.core.statistics.aggregate import macro
from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.drawings import Ends, Mark, Points, along_front, marked
from desa_ray.report.figures import Figure
from desa_ray.report.method_cost import method_costs
from desa_ray.report.names import NDCG, method_name
from desa_ray.report.results import macro_of
from desa_ray.report.study import Study, paired_values
from desa_ray.report.svg import Scale, Svg, padded
from desa_ray.store.artifacts import Store

PLOT_LEFT, WIDTH, HEIGHT, TOP = 70, 630, 320, 40
OUTCOME = "nDCG@10 (more is better)"
DEPTH = "total certification depth, documents (less is better)"
COSTS = {
    "completion_tokens": "completion tokens per query (less is better)",
    "cpu_seconds": "CPU seconds per query (less is better)",
    "bytes": "bytes stored per query (less is better)",
}
Spread = Mapping[str, tuple[float, Ends]]


def pareto_figure(study: Study, sampling: Sampling) -> Figure | None:
    """Macro nDCG@10 against macro total depth, for methods with two channels."""
    costs: dict[str, float | None] = {}
    for method in study.methods:
        two = [study.dataset_means(method, column) for column in ("depth_dense", "depth_sparse")]
        costs[method] = macro_of(study, method, "depth_total") if all(two) else None
    spread = _spread(study, sampling)
    panels = {DEPTH: _marks(costs, spread)} if len(_marks(costs, spread)) > 1 else {}
    return _figure("pareto", "Effectiveness against depth", panels)


def cost_figure(store: Store) -> Callable[[Study, Sampling], Figure | None]:
    """A builder of the figure of macro nDCG@10 against each cost of a query that is known and
    differs; costs come from the store that holds the runs.
    """

    def build(study: Study, sampling: Sampling) -> Figure | None:
        costs = method_costs(store, study)
        spread = _spread(study, sampling) if costs else {}
        panels = {}
        for name, title in COSTS.items():
            own = {method: getattr(cost, name) for method, cost in costs.items()}
            marks = _marks(own, spread)
            if len({mark.x for mark in marks}) > 1:
                panels[title] = marks
        return _figure("cost", "Effectiveness against the cost of a query", panels)

    return build


def _spread(study: Study, sampling: Sampling) -> Spread:
    """By method its macro nDCG@10 and the ends of its 95 % bootstrap interval."""
    found = {}
    for method in study.methods:
        pairs = study.pairs(method, method) or {}
        strata = [paired_values(*pair, [NDCG.column])[:, 0, :1] for pair in pairs.values()]
        if strata and all(map(len, strata)):
            samples = sampling.bootstrap_means(strata).mean(1)[:, 0]
            found[method] = macro([float(own.mean()) for own in strata]), interval(samples)
    return found


def _marks(costs: Mapping[str, float | None], spread: Spread) -> list[Mark]:
    points = {}
    for method, cost in costs.items():
        if cost is not None and method in spread:
            points[method_name(method)] = (cost, *spread[method])
    return marked(points)


def _figure(name: str, title: str, panels: Mapping[str, Sequence[Mark]]) -> Figure | None:
    if not panels:
        return None
    caption = (
        "Macros over the same data sets; bars are 95 % bootstrap intervals. The dashed line joins"
        " the Pareto front, the larger points: no method is better in both. Where names would"
        " overlap, hover over the point."
    )
    drawing = Points(OUTCOME, panels)
    return Figure(name, title, caption, _page_svg(drawing, title), drawing)


def _page_svg(drawing: Points, title: str) -> Svg:
    """A panel below the other, for the page."""
    step = TOP + HEIGHT + 60
    svg = Svg(720, step * len(drawing.panels), title)
    names = drawing.names()
    for number, (head, marks) in enumerate(drawing.panels.items()):
        _panel(svg, head, marks, names, number * step + TOP)
    return svg


def _panel(svg: Svg, head: str, marks: Sequence[Mark], names: Sequence[str], top: int) -> None:
    costs = [mark.x for mark in marks]
    right = PLOT_LEFT + WIDTH
    if min(costs) > 0:
        x = Scale(min(costs) / 1.12, max(costs) * 1.25, PLOT_LEFT, right, log=True)
        head = head.replace("(", "(logarithmic; ")
    else:
        x = Scale(*padded(costs, 0.08), PLOT_LEFT, right)
    ends = [end for mark in marks for end in mark.ends]
    y = Scale(*padded(ends), top + HEIGHT, top)
    svg.axes(x, y, head, OUTCOME)
    svg.path([(x(cost), y(value)) for cost, value in along_front(marks)], "front")
    taken = [_Box(x(mark.x) - 6, y(mark.y) - 6, 12, 12) for mark in marks]
    for mark in marks:
        low, high = map(y, mark.ends)
        svg.line(x(mark.x), low, x(mark.x), high, f"bar s{names.index(mark.name) % 8 + 1}")
    for mark in sorted(marks, key=lambda mark: -mark.y):
        interval_ = f"[{mark.ends[0]:.4f}, {mark.ends[1]:.4f}]"
        title = head.partition(" (")[0]
        tip = f"{mark.name}: nDCG@10 {mark.y:.4f} {interval_}, {title} {mark.x:.6g}"
        radius, css = (7, "head") if mark.front else (5, "label")
        tip += " (Pareto front)" if mark.front else ""
        svg.circle(x(mark.x), y(mark.y), radius, f"dot s{names.index(mark.name) % 8 + 1}", tip)
        _label(svg, (x(mark.x), y(mark.y)), mark.name, css, taken)


@dataclass(frozen=True)
class _Box:
    """A rectangle that a label must not cover."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: "_Box") -> bool:
        across = self.x < other.x + other.width and other.x < self.x + self.width
        return across and self.y < other.y + other.height and other.y < self.y + self.height


def _label(svg: Svg, at: tuple[float, float], text: str, css: str, taken: list[_Box]) -> None:
    """Write a point's name where nothing else is, or not at all."""
    x, y = at
    width = (7.6 if css == "head" else 6.7) * len(text)
    places = ((11, 4), (-11 - width, 4), (-width / 2, -11), (-width / 2, 20), (9, -8), (9, 16))
    for dx, dy in places:
        box = _Box(x + dx, y + dy - 10, width, 13)
        inside = box.x > PLOT_LEFT and box.x + width < svg.width
        if inside and not any(box.meets(other) for other in taken):
            taken.append(box)
            svg.text(box.x, y + dy, text, css)
            return
