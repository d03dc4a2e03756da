"""Fixed cutoffs: how cutting both lists at L changes the judgment of a method against the reference
(method.md section 7).

Shares count query-draws within each data set, then are averaged over data sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from desa_ray.core.statistics.aggregate import macro
from desa_ray.core.statistics.inference import TIE
from desa_ray.report.draws import has, paired_draws
from desa_ray.report.gain import CUT_LINEAR, LINEAR_COLUMN
from desa_ray.report.names import EFFECTIVENESS, NDCG, Outcome, method_name
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

CUTOFFS = ("cutoffs", "cut_ndcg_at_10", "cut_recall_at_20", "cut_same_top")
LABELS = ("gain", "tie", "loss")
LINEAR = (
    "nDCG@10 is judged with linear gain here: the records hold no other under cutoffs"
    " (evaluation.exponential_cutoffs=true, which parity=release sets)"
)


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


def cutoff_lengths(study: Study, method: str | None = None) -> list[int]:
    """The cutoffs L that all cells of a method (the subject) and of the reference recorded."""
    both = (method or study.roles.own, study.roles.base)
    if not has(study, both, CUTOFFS):
        return []
    cells = [study.cell(dataset, one) for dataset in study.datasets for one in both]
    lengths = [set(cell.records["cutoffs"].explode().drop_nulls()) for cell in cells if cell]
    return sorted(set.intersection(*lengths))


def transitions(
    study: Study, outcome: Outcome, length: int, method: str | None = None
) -> Transitions:
    """A method (the subject) against the reference under the cutoff `length` (rows) and on complete
    lists (columns).
    """
    matrices = []
    for dataset in study.datasets:
        cut = f"cut_{outcome.column}"
        columns = ("cutoffs", cut, outcome.column, LINEAR_COLUMN, CUT_LINEAR)
        pairs = paired_draws(study, dataset, method or study.roles.own, columns).with_columns(
            _at(f"cut_{outcome.column}", length), _at(f"cut_{outcome.column}", length, "_original")
        )
        pairs = pairs.drop_nulls([outcome.column, f"cut_{outcome.column}"])
        fixed = _labels(pairs, f"cut_{outcome.column}")
        # Where results under cutoffs are known with linear gain only, both labels have it.
        linear = outcome is NDCG and _keeps_linear(pairs.columns)
        complete = _labels(pairs, LINEAR_COLUMN if linear else outcome.column)
        counts = np.zeros((3, 3))
        np.add.at(counts, (fixed, complete), 1)
        matrices.append(100 * counts / max(len(fixed), 1))
    return Transitions(np.mean(matrices, axis=0))


def _keeps_linear(columns: Sequence[str]) -> bool:
    """Whether a report with exponential gain judges nDCG under cutoffs with linear gain."""
    return LINEAR_COLUMN in columns and CUT_LINEAR not in columns


def _at(column: str, length: int, suffix: str = "") -> pl.Expr:
    place = pl.col(f"cutoffs{suffix}").list.eval(pl.element() == length).list.arg_max()
    return pl.col(f"{column}{suffix}").list.get(place).alias(f"{column}{suffix}")


def _labels(pairs: pl.DataFrame, column: str) -> np.ndarray:
    """0 gain, 1 tie (within 1e-12), 2 loss."""
    change = (pairs[column] - pairs[f"{column}_original"]).to_numpy()
    return np.where(change > TIE, 0, np.where(change < -TIE, 2, 1))


def cutoff_tables(study: Study) -> list[Table]:
    """The subject's changed judgments and transitions, and every method's changed judgments."""
    own = study.roles.own
    lengths = cutoff_lengths(study) if own != study.roles.base else []
    if not lengths:
        return []
    rows, cells = [], []
    for length in lengths:
        rows.append(Row(_changes(study, own, length), {"length": length}))
        for outcome in EFFECTIVENESS:
            found = transitions(study, outcome, length)
            for fixed, shares in zip(LABELS, found.matrix.tolist(), strict=True):
                shown: dict[str, Value] = {
                    "length": length,
                    "outcome": outcome.title,
                    "fixed": fixed,
                }
                about = {"length": length, "outcome": outcome.column, "fixed": fixed}
                cells.append(Row(shown | dict(zip(LABELS, shares, strict=True)), about))
    each = "each query-draw once with both lists cut at L, once complete; macro shares"
    names = f"{method_name(own)} against {method_name(study.roles.base)}"
    notes = [f"{names}, {each}"]
    subject = study.cell(study.datasets[0], own)
    if subject and _keeps_linear(subject.records.columns):
        notes.append(LINEAR)
    first = (
        Column("length", "L", "{:d}"),
        Column("outcome", "outcome"),
        Column("fixed", "under L"),
    )
    onward = tuple(Column(label, f"complete: {label} %", "{:.2f}") for label in LABELS)
    tables = [
        Table("cutoffs", "Fixed cutoffs", _columns(), rows, notes),
        Table(
            "transitions",
            "Fixed cutoffs: transitions",
            (*first, *onward),
            cells,
            notes,
            detail=True,
        ),
    ]
    methods = [m for m in study.two_channels if m != study.roles.base]
    by_method = []
    for method in methods:
        for length in cutoff_lengths(study, method):
            values = {"method": method_name(method), **_changes(study, method, length)}
            by_method.append(Row(values, {"method": method, "length": length}))
    if len({row.about["method"] for row in by_method}) > 1:
        columns = (Column("method", "method"), *_columns())
        note = f"each against {method_name(study.roles.base)}, {each}"
        title = "Fixed cutoffs, every method"
        tables.append(
            Table("cutoffs_by_method", title, columns, by_method, [note, *notes[1:]], detail=True)
        )
    return tables


def _changes(study: Study, method: str, length: int) -> dict[str, Value]:
    """One row: how often the top K is exact, and how often a judgment changes or is reversed."""
    same = []
    for dataset in study.datasets:
        cell = study.cell(dataset, method)
        assert cell
        same.append(100 * cell.records.select(_at("cut_same_top", length).mean()).item())
    values: dict[str, Value] = {"length": length, "same_top": macro(same)}
    for outcome in EFFECTIVENESS:
        found = transitions(study, outcome, length, method)
        values[f"{outcome.column}_change"] = found.change
        values[f"{outcome.column}_reversal"] = found.reversal
    return values


def _columns() -> list[Column]:
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
    return columns
