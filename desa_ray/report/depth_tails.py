"""Medians, P90, P95 and P99 of depths, for the tables that show their means.

Values are over the queries of a data set, whose draws are averaged; a macro is the mean of the data
sets' own quantiles, a reduction the mean of the data sets' own reductions of a quantile, as of
means.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from desa_ray.core.statistics.aggregate import macro, mean_reduction_pct
from desa_ray.report.cells import RecordedCell
from desa_ray.report.names import Outcome
from desa_ray.report.study import Setting, Study
from desa_ray.report.table import Column, Value

QUANTILES: Mapping[str, tuple[str, float]] = {
    "p50": ("median", 0.5),
    "p90": ("P90", 0.9),
    "p95": ("P95", 0.95),
    "p99": ("P99", 0.99),
}
SHARES = [share for _, share in QUANTILES.values()]


def quantiles(values: np.ndarray) -> dict[str, float]:
    """The quantiles of one data set's depths, float64 [Q], by linear interpolation."""
    found = np.quantile(values, SHARES, method="linear")
    return {name: float(value) for name, value in zip(QUANTILES, found, strict=True)}


def cell_tails(cell: RecordedCell, column: str) -> dict[str, Value]:
    """`COLUMN_p50` and so on of one cell; nothing where no query has a depth."""
    values = cell.means[column].drop_nulls().to_numpy()
    found = quantiles(values) if len(values) else {}
    return {f"{column}_{name}": value for name, value in found.items()}


def macro_tails(study: Study, method: str, column: str) -> dict[str, Value]:
    """The same as macros; nothing where a data set lacks the method or its depths."""
    found = [cell_tails(cell, column) for cell in study.cells_of(method)]
    if len(found) < len(study.datasets) or not all(found):
        return {}
    averaged: dict[str, Value] = {}
    for name in found[0]:
        averaged[name] = macro([float(str(own[name])) for own in found])
    return averaged


def reduced_tails(column: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Value]:
    """By how many percent the quantiles of a method's depths are below another's, as a mean over
    data sets.

    Args:
        pairs: depths of both, each float64 [Q], a pair per data set.
    """
    both = [(quantiles(own), quantiles(other)) for own, other in pairs]
    found: dict[str, Value] = {}
    for name in QUANTILES:
        own = [first[name] for first, _ in both]
        other = [second[name] for _, second in both]
        found[f"{column}_{name}"] = mean_reduction_pct(own, other)
    return found


def compared_tails(
    study: Study,
    methods: tuple[str, str],
    column: str,
    *,
    settings: tuple[Setting, Setting] | None = None,
    datasets: Sequence[str] | None = None,
) -> dict[str, Value]:
    """`reduced_tails` of one method below another, or of two settings, over data sets (default:
    all); nothing where a data set lacks one of them.
    """
    chosen = settings or (study.setting, study.setting)
    depths: list[list[np.ndarray]] = []
    for dataset in datasets or study.datasets:
        cells = [study.cell(dataset, m, s) for m, s in zip(methods, chosen, strict=True)]
        depths.append([c.means[column].drop_nulls().to_numpy() for c in cells if c])
    if any(len(own) < 2 or not all(map(len, own)) for own in depths):
        return {}
    return reduced_tails(column, [(own, other) for own, other in depths])


def tail_columns(outcome: Outcome, *, reduction: bool = False) -> list[Column]:
    """A column for each quantile of an outcome's depths, next to that of the mean."""
    ending, form = (" reduction %", "{:.2f}") if reduction else ("", "{:.1f}")
    columns = []
    for name, (title, _) in QUANTILES.items():
        key = f"{outcome.column}_{name}"
        columns.append(Column(key, f"{outcome.title} {title}{ending}", form, tail=True))
    return columns
