"""Fixed cutoffs: what cutting both lists at L does to the judgment of DESA against Original
(method.md section 7).

Shares count query-draws within each data set, then are averaged over data sets.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from desa_ray.core.statistics.aggregate import macro
from desa_ray.core.statistics.inference import TIE
from desa_ray.report.draws import has, paired_draws
from desa_ray.report.gain import LINEAR_COLUMN
from desa_ray.report.names import EFFECTIVENESS, NDCG, Outcome
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

CUTOFFS = ("cutoffs", "cut_ndcg_at_10", "cut_recall_at_20", "cut_same_top")
LABELS = ("gain", "tie", "loss")


@dataclass(frozen=True)
class Transitions:
    """Macro shares in percent at one cutoff: `matrix[fixed label][complete label]`, in the order
    gain, tie, loss.
    """

    matrix: np.ndarray

    @property
    def change(self) -> float:
        return float(self.matrix.sum() - np.trace(self.matrix))

    @property
    def reversal(self) -> float:
        return float(self.matrix[0, 2] + self.matrix[2, 0])


def cutoff_lengths(study: Study) -> list[int]:
    """The cutoffs L that all DESA and Original cells recorded."""
    if not has(study, ("desa", "original"), CUTOFFS):
        return []
    cells = [
        study.cell(dataset, method) for dataset in study.datasets for method in ("desa", "original")
    ]
    lengths = [set(cell.records["cutoffs"].explode().drop_nulls()) for cell in cells if cell]
    return sorted(set.intersection(*lengths))


def transitions(study: Study, outcome: Outcome, length: int) -> Transitions:
    """DESA against Original under the cutoff `length` (rows) and on complete lists (columns)."""
    matrices = []
    for dataset in study.datasets:
        pairs = paired_draws(study, dataset).with_columns(
            _at(f"cut_{outcome.column}", length), _at(f"cut_{outcome.column}", length, "_original")
        )
        pairs = pairs.drop_nulls([outcome.column, f"cut_{outcome.column}"])
        fixed = _labels(pairs, f"cut_{outcome.column}")
        # Results under cutoffs are recorded with linear gain, so both labels have it.
        linear = outcome is NDCG and LINEAR_COLUMN in pairs.columns
        complete = _labels(pairs, LINEAR_COLUMN if linear else outcome.column)
        counts = np.zeros((3, 3))
        np.add.at(counts, (fixed, complete), 1)
        matrices.append(100 * counts / max(len(fixed), 1))
    return Transitions(np.mean(matrices, axis=0))


def _at(column: str, length: int, suffix: str = "") -> pl.Expr:
    place = pl.col(f"cutoffs{suffix}").list.eval(pl.element() == length).list.arg_max()
    return pl.col(f"{column}{suffix}").list.get(place).alias(f"{column}{suffix}")


def _labels(pairs: pl.DataFrame, column: str) -> np.ndarray:
    """0 gain, 1 tie (within 1e-12), 2 loss."""
    change = (pairs[column] - pairs[f"{column}_original"]).to_numpy()
    return np.where(change > TIE, 0, np.where(change < -TIE, 2, 1))


def cutoff_tables(study: Study) -> list[Table]:
    lengths = cutoff_lengths(study)
    if not lengths:
        return []
    rows, cells = [], []
    for length in lengths:
        same = []
        for dataset in study.datasets:
            desa = study.cell(dataset, "desa")
            assert desa
            same.append(100 * desa.records.select(_at("cut_same_top", length).mean()).item())
        values: dict[str, Value] = {"length": length, "same_top": macro(same)}
        for outcome in EFFECTIVENESS:
            found = transitions(study, outcome, length)
            values |= {
                f"{outcome.column}_change": found.change,
                f"{outcome.column}_reversal": found.reversal,
            }
            for fixed, shares in zip(LABELS, found.matrix.tolist(), strict=True):
                shown: dict[str, Value] = {
                    "length": length,
                    "outcome": outcome.title,
                    "fixed": fixed,
                }
                about = {"length": length, "outcome": outcome.column, "fixed": fixed}
                cells.append(Row(shown | dict(zip(LABELS, shares, strict=True)), about))
        rows.append(Row(values, {"length": length}))
    columns = [
        Column("length", "L", "{:d}"),
        Column(
            "same_top",
            "exact top K %",
            "{:.2f}",
            help="query-draws whose ordered top K is that of complete lists",
        ),
    ]
    for outcome in EFFECTIVENESS:
        columns += [
            Column(
                f"{outcome.column}_change",
                f"{outcome.title} changed %",
                "{:.2f}",
                help="gain, tie or loss differs",
            ),
            Column(
                f"{outcome.column}_reversal",
                f"{outcome.title} reversed %",
                "{:.2f}",
                help="gain against loss",
            ),
        ]
    note = (
        "DESA against Original, each query-draw once with both lists cut at L, once complete; macro"
        " shares"
    )
    first = (
        Column("length", "L", "{:d}"),
        Column("outcome", "outcome"),
        Column("fixed", "under L"),
    )
    onward = tuple(Column(label, f"complete: {label} %", "{:.2f}") for label in LABELS)
    return [
        Table("cutoffs", "Fixed cutoffs", columns, rows, [note]),
        Table(
            "transitions",
            "Fixed cutoffs: transitions",
            (*first, *onward),
            cells,
            [note],
            detail=True,
        ),
    ]
