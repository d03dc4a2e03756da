"""The whole grid: every cell with its labels and swept settings, every measure and its interval."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from desa_ray.core.statistics.aggregate import by_query
from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.cells import LABELS, RecordedCell
from desa_ray.report.depth_tails import cell_tails, tail_columns
from desa_ray.report.names import (
    DEPTH_DENSE,
    DEPTH_SPARSE,
    DEPTH_TOTAL,
    PRIMARY,
    Outcome,
    dataset_name,
    method_name,
)
from desa_ray.report.records_check import FURTHER_NUMBERS, FURTHER_SHARES, SHARES
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

OUTCOMES = (*PRIMARY, DEPTH_TOTAL)
DEPTHS = (DEPTH_DENSE, DEPTH_SPARSE, DEPTH_TOTAL)
NO_MEASURE = (*FURTHER_NUMBERS, "dense_angle_deg", "seconds")


def grid_table(study: Study, sampling: Sampling) -> Table:
    """A row per cell: labels, swept settings, queries, draws, and every measure with its bootstrap
    interval over queries.
    """
    axes = [name for name in (*LABELS, *study.setting.further) if _varies(study.cells, name)]
    further = _measures(study.cells)
    outcomes = [*OUTCOMES, *further]
    rows = []
    for cell in study.cells:
        about = {name: cell.value(name) for name in axes}
        values: dict[str, Value] = {name: _shown(name, value) for name, value in about.items()}
        values |= {"queries": len(cell.queries), "draws": cell.draws}
        for outcome in DEPTHS:
            values |= cell_tails(cell, outcome.column)
        rows.append(Row(values | _means(cell, outcomes, sampling), about))
    columns = [Column(name, name) for name in axes]
    columns += [Column("queries", "queries", "{:d}"), Column("draws", "draws", "{:d}")]
    for outcome in outcomes:
        columns.append(Column(outcome.column, outcome.title, outcome.form))
        columns.append(Column(f"{outcome.column}_ci", f"{outcome.title}, 95 % CI", outcome.form))
        columns += tail_columns(outcome) if outcome in DEPTHS else []
    every = "every cell that was read; an interval is of the mean over its queries"
    notes = [
        every,
        "an en dash: the cell does not use the setting, or the setting makes no difference to it",
    ]
    return Table("grid", "The whole grid", columns, rows, notes, detail=True)


def _varies(cells: Sequence[RecordedCell], name: str) -> bool:
    return name in ("dataset", "method") or len({cell.value(name) for cell in cells} - {None}) > 1


def _shown(name: str, value: object) -> str | None:
    if name == "dataset":
        return dataset_name(str(value))
    if name == "method":
        return method_name(str(value))
    return None if value is None else str(value)


def _measures(cells: Sequence[RecordedCell]) -> list[Outcome]:
    """Further measures that any cell recorded."""
    usual = {*(outcome.column for outcome in OUTCOMES), *NO_MEASURE, *SHARES}
    found: dict[str, None] = {}
    for cell in cells:
        for name, kind in cell.records.schema.items():
            own = name not in usual and not name.startswith(("reference_", "cut_"))
            if own and (kind == pl.Float64 or name in FURTHER_SHARES):
                found[name] = None
    return [Outcome(name, name, "{:.4f}", higher=True) for name in found]


def _means(cell: RecordedCell, outcomes: Sequence[Outcome], sampling: Sampling) -> dict[str, Value]:
    known = [o.column for o in outcomes if o.column in cell.means.columns]
    means = cell.means.select("query_id", *known)
    further = [o.column for o in outcomes if o.column not in known]
    if any(name in cell.records.columns for name in further):
        means = means.join(by_query(cell.records, further), on="query_id", maintain_order="left")
    together: dict[bytes, list[str]] = {}  # measures of the same queries share their samples
    for name in means.columns[1:]:
        if means[name].count():
            together.setdefault(means[name].is_null().to_numpy().tobytes(), []).append(name)
    values: dict[str, Value] = {}
    for names in together.values():
        kept = np.ascontiguousarray(means.select(names).drop_nulls().to_numpy())
        samples = sampling.bootstrap_means([kept])[:, 0]
        for place, name in enumerate(names):
            values[name] = float(kept[:, place].mean())
            values[f"{name}_ci"] = interval(samples[:, place])
    return values
