"""AnchorQE with a calibrated alpha, next to the methods that it is compared with, on the queries
that calibration did not use.

Each draw's first eight queries with valid references determine alpha and have no records of that
method (method.md section 3.4), so no table over all queries can hold it. Where some references were
invalid, draws are calibrated with different queries; a query that fell back in a draw, or that any
draw was calibrated with, is left out here, as the paper's authors leave it out.
"""

import polars as pl

from desa_ray.core.statistics.aggregate import macro
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.names import EFFECTIVENESS, LEAVES_OUT, dataset_name, method_name
from desa_ray.report.paper import BESIDE_CALIBRATED
from desa_ray.report.results import outcome_column
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value


def calibrated_table(study: Study, sampling: Sampling) -> Table | None:
    """Effectiveness of each data set, then macro, over the queries that are left."""
    del sampling
    rows: list[Row] = []
    means: dict[str, list[dict[str, float]]] = {}
    for dataset in study.datasets:
        queries = _left(study, dataset)
        if queries is None:
            continue
        for method in (*BESIDE_CALIBRATED, *LEAVES_OUT):
            own = _values(study, dataset, method, queries)
            if own is None:
                continue
            means.setdefault(method, []).append(own)
            values: dict[str, Value] = {
                "dataset": dataset_name(dataset),
                "method": method_name(method),
                "queries": len(queries),
                **own,
            }
            rows.append(Row(values, {"dataset": dataset, "method": method}))
    if not rows:
        return None
    for method, own in means.items():
        if len(own) == len(study.datasets) > 1:
            values = {"dataset": "macro", "method": method_name(method)}
            for outcome in EFFECTIVENESS:
                values[outcome.column] = macro([mean[outcome.column] for mean in own])
            rows.append(Row(values, {"macro": True, "method": method}))
    columns = (
        Column("dataset", "data set"),
        Column("method", "method"),
        Column("queries", "queries", "{:d}"),
        *(outcome_column(outcome) for outcome in EFFECTIVENESS),
    )
    same = "the same queries for every method of a data set"
    notes = [f"{same}: in all draws not used for calibration, and with valid references"]
    return Table("calibrated", "AnchorQE with a calibrated alpha", columns, rows, notes)


def _left(study: Study, dataset: str) -> frozenset[str] | None:
    """The queries that all calibrated cells of the main setting have in every draw, none of them a
    fallback.
    """
    cells = [study.calibrated(dataset, method) for method in LEAVES_OUT]
    found: list[frozenset[str]] = []
    for cell in filter(None, cells):
        draws = cell.records.filter(~pl.col("fallback")).group_by("query_id").len()
        found.append(frozenset(draws.filter(pl.col("len") == cell.draws)["query_id"]))
    return frozenset.intersection(*found) if found else None


def _values(
    study: Study, dataset: str, method: str, queries: frozenset[str]
) -> dict[str, float] | None:
    cell = study.cell(dataset, method) or study.calibrated(dataset, method)
    if cell is None:
        return None
    means = cell.means.filter(pl.col("query_id").is_in(list(queries)))
    found = {o.column: means[o.column].mean() for o in EFFECTIVENESS}
    return None if None in found.values() else found  # pyright: ignore[reportReturnType]
