"""Encoders and generators in the order of their effectiveness: nDCG@10 of every method with each of
them, best first, with 95 % intervals, and how far each is ahead of the next.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np
import polars as pl

from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.cells import RecordedCell
from desa_ray.report.names import NDCG, method_name
from desa_ray.report.results import over
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

AXES = ("encoder", "generator")


def value_order_tables(study: Study, sampling: Sampling) -> list[Table]:
    """A table of each such axis that varies."""
    found = [value_order_table(study, axis, sampling) for axis in AXES]
    return [table for table in found if table is not None]


def value_order_table(study: Study, axis: str, sampling: Sampling) -> Table | None:
    """Every method that ran with several values of the axis on all data sets of the main tables,
    over the queries that all of them judge; None where there is none.
    """
    rows = [row for method in study.methods for row in _rows(study, axis, method, sampling)]
    if not rows:
        return None
    columns = (
        Column("method", "method"),
        Column("value", axis),
        Column("ndcg", "nDCG@10", "{:.4f}", help="macro"),
        Column("ci", "95 % CI", "{:.4f}", help="bootstrap over queries"),
        Column("ahead", "ahead of the next by", "{:.4f}", help="paired by query"),
        Column("ahead_ci", "95 % CI of that", "{:.4f}"),
        Column("p", "p", "{:.4f}", help="sign flips; not adjusted for the number of values"),
    )
    notes = [
        over(study),
        "best first within a method; an interval that contains 0 leaves the order open",
    ]
    return Table(f"order_{axis}", f"{axis.capitalize()}s by nDCG@10", columns, rows, notes)


def _rows(study: Study, axis: str, method: str, sampling: Sampling) -> list[Row]:
    cells: dict[object, list[RecordedCell]] = {}
    for setting in study.varied(axis):
        own = [study.cell(dataset, method, setting) for dataset in study.datasets]
        if all(cell is not None and cell.value(axis) is not None for cell in own):
            cells[setting.value(axis)] = [cell for cell in own if cell is not None]
    if len(cells) < 2:
        return []
    values = [*cells]
    strata = [_together(of_dataset) for of_dataset in zip(*cells.values(), strict=True)]
    if not all(map(len, strata)):
        return []
    macros = np.mean([own.mean(0) for own in strata], axis=0)
    order = sorted(range(len(values)), key=lambda place: (-macros[place], str(values[place])))
    samples = sampling.bootstrap_means(strata).mean(1)
    rows: list[Row] = []
    for place, after in zip(order, [*order[1:], None], strict=True):
        found: dict[str, Value] = {"method": method_name(method), "value": str(values[place])}
        found |= {"ndcg": float(macros[place]), "ci": interval(samples[:, place])}
        if after is not None:
            ahead = [own[:, [place]] - own[:, [after]] for own in strata]
            found["ahead"] = float(macros[place] - macros[after])
            found["ahead_ci"] = interval(samples[:, place] - samples[:, after])
            found["p"] = float(sampling.sign_flip_p(ahead)[0])
        rows.append(Row(found, {"method": method, axis: values[place]}))
    return rows


def _together(cells: Sequence[RecordedCell]) -> np.ndarray:
    """Draw-averaged nDCG@10, float64 [Q, V], of the queries that have a value in all V cells."""
    frames = [
        cell.means.select("query_id", pl.col(NDCG.column).alias(str(place)))
        for place, cell in enumerate(cells)
    ]
    joined = reduce(
        lambda left, right: left.join(right, on="query_id", maintain_order="left"), frames
    )
    return joined.drop("query_id").drop_nulls().to_numpy()
