"""What the operators did: dense angle, sparse turnover, rank movement, support.

Fallbacks are left out. Means are over the draws of a query, its data set's queries, then the data
sets (method.md section 9).
"""

from collections.abc import Mapping, Sequence

import polars as pl

from desa_ray.core.statistics.aggregate import macro
from desa_ray.report.draws import has
from desa_ray.report.names import dataset_name, method_name
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

DIAGNOSTICS = {
    "dense_angle_deg": "dense angle (°)",
    "turnover": "sparse top-20 turnover (%)",
    "rr_change": "relevant RR change",
}
PERCENT = {"turnover": 100, "support_retained": 100}  # shares in records
NO_RELEVANT = (
    "query-draws without a relevant document in both rankings: their RR change counts as 0"
)


NEEDED = (*DIAGNOSTICS, "support_retained")


def has_mechanism(study: Study, method: str | None = None) -> bool:
    """Whether every data set has a method's (the subject's) diagnostics, any of them known."""
    method = method or study.roles.own
    if not has(study, (method,), NEEDED):
        return False
    cells = [study.cell(dataset, method) for dataset in study.datasets]
    return any(cell.records[name].count() for cell in cells if cell for name in NEEDED)


def diagnostic_draws(study: Study, dataset: str, method: str | None = None) -> pl.DataFrame:
    """A method's (the subject's) query-draws without fallbacks, with a missing RR change as 0, and
    `no_relevant`, whether it was missing.
    """
    cell = study.cell(dataset, method or study.roles.own)
    assert cell
    return cell.records.filter(~pl.col("fallback")).with_columns(
        pl.col("rr_change").fill_null(0.0), no_relevant=pl.col("rr_change").is_null()
    )


def mechanism_draws(study: Study, dataset: str, method: str | None = None) -> pl.DataFrame:
    """The same with turnover and support retained in percent."""
    draws = diagnostic_draws(study, dataset, method)
    return draws.with_columns(pl.col(name) * scale for name, scale in PERCENT.items())


def mechanism_table(study: Study) -> Table | None:
    """The subject's means, extremes and counts for each data set, and their macro."""
    if not has_mechanism(study):
        return None
    rows = mechanism_rows(study, study.roles.own)
    return Table("mechanism", "What the operators did", _columns(), rows)


def mechanism_by_method_table(study: Study) -> Table | None:
    """The same for every method that has diagnostics, where there are several."""
    methods = [m for m in study.methods if m != study.roles.base and has_mechanism(study, m)]
    if len(methods) < 2:
        return None
    rows = []
    for method in methods:
        for row in mechanism_rows(study, method):
            values = {"method": method_name(method), **row.values}
            rows.append(Row(values, {"method": method, **row.about}))
    columns = (Column("method", "method"), *_columns())
    title = "What the operators did, every method"
    return Table("mechanism_by_method", title, columns, rows, detail=True)


def mechanism_rows(study: Study, method: str) -> list[Row]:
    """A method's rows: a data set each, then the macro where there are several."""
    rows: list[Row] = []
    means: list[dict[str, float | None]] = []
    frames: list[pl.DataFrame] = []
    for dataset in study.datasets:
        draws = mechanism_draws(study, dataset, method)
        by_query = draws.group_by("query_id", maintain_order=True).agg(pl.col(NEEDED).mean())
        mean = by_query.select(pl.col(NEEDED).mean()).row(0, named=True)
        means.append(mean)
        frames.append(draws)
        rows.append(_mechanism_row({"dataset": dataset}, dataset_name(dataset), mean, [draws]))
    if len(rows) > 1:
        rows.append(_mechanism_row({"macro": True}, "macro", _average(means), frames))
    return rows


def _columns() -> tuple[Column, ...]:
    titles = DIAGNOSTICS.items()
    forms = {key: "{:.4f}" if key == "rr_change" else "{:.2f}" for key in DIAGNOSTICS}
    return (
        Column("dataset", "data set"),
        *(Column(key, title, forms[key]) for key, title in titles),
        Column("support_retained", "support retained (%)", "{:.4f}"),
        Column("max_angle", "largest angle (°)", "{:.2f}", help="45° is the bound"),
        Column("min_support", "least support (%)", "{:.5f}"),
        Column("pairs", "query-draws", "{:d}", help="without fallbacks"),
        Column("no_relevant", "without relevant", "{:d}", help=NO_RELEVANT),
    )


def _average(means: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    averaged: dict[str, float | None] = {}
    for key in means[0]:
        values = [mean[key] for mean in means]
        known = [value for value in values if value is not None]
        averaged[key] = macro(known) if len(known) == len(values) else None
    return averaged


def _mechanism_row(
    about: dict[str, object],
    name: str,
    mean: Mapping[str, float | None],
    frames: Sequence[pl.DataFrame],
) -> Row:
    columns = ("dense_angle_deg", "support_retained", "no_relevant")
    pooled = pl.concat([frame.select(columns) for frame in frames])
    extremes: dict[str, Value] = {
        "max_angle": pooled["dense_angle_deg"].max(),  # pyright: ignore[reportAssignmentType]
        "min_support": pooled["support_retained"].min(),  # pyright: ignore[reportAssignmentType]
        "pairs": pooled.height,
        "no_relevant": int(pooled["no_relevant"].sum()),
    }
    return Row({"dataset": name, **mean, **extremes}, about)
