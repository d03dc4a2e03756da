"""The cells of one report, checked to be comparable, and how tables ask for them.

A report has one *setting* (encoder, generator, kappa, K, number of references) that its main tables
are about, and one collection per data set. What differs in one thing only (another kappa, encoder,
generator, corpus size) is robustness. Cells that should be paired but were run on other queries,
judgments or K are refused, with what differs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from desa_ray.errors import DesaError, Problems, listed
from desa_ray.report.cells import Cell, cut_cells, number_of
from desa_ray.report.names import METHODS, STAND_IN, Outcome

AXES = ("encoder", "generator", "kappa", "k", "n_refs")
LEAVES_OUT = ("anchorqe_calibrated",)  # methods without the queries that they are calibrated with


@dataclass(frozen=True)
class Setting:
    """What the main tables hold fixed; None where no cell uses the thing."""

    encoder: str | None
    generator: str | None
    kappa: str
    k: int
    n_refs: int | None

    def fits(self, cell: Cell) -> bool:
        """Whether the cell agrees in everything that it uses at all."""
        return all(getattr(cell, axis) in (None, getattr(self, axis)) for axis in AXES)


class Study:
    """Comparable cells.

    Args:
        records: query records of any number of cells.
        primary: wanted values of the setting by axis; others are chosen: kappa 60, most references,
            else what most cells have (the first by name among equals).
        methods, datasets: keep only these; all where empty.

    Raises:
        Problems: everything that keeps the cells from being compared.
    """

    def __init__(
        self,
        records: pl.DataFrame,
        *,
        primary: Mapping[str, object] | None = None,
        methods: Sequence[str] = (),
        datasets: Sequence[str] = (),
    ):
        cells = cut_cells(records)
        for what, wanted in (("method", methods), ("dataset", datasets)):
            there = {getattr(cell, what) for cell in cells}
            if unknown := [name for name in wanted if name not in there]:
                what_is_wrong = f"no records of {what} {listed(unknown)}"
                raise DesaError(
                    what_is_wrong, where=f"{what}s", hint=f"there are: {listed(sorted(there), 40)}"
                )
            cells = [cell for cell in cells if not wanted or getattr(cell, what) in wanted]
        self.notes: list[str] = []
        self.cells = cells
        self.setting = self._choose(primary or {})
        self.collections = self._collections()
        self._check()

    def _choose(self, wanted: Mapping[str, object]) -> Setting:
        chosen: dict[str, object] = {}
        for axis in AXES:
            known = [getattr(cell, axis) for cell in self.cells]
            values = Counter(value for value in known if value is not None)
            known = sorted(values, key=lambda value: (number_of(value), str(value)))
            asked = wanted.get(axis)
            if asked is not None and str(asked) not in map(str, known):
                raise DesaError(
                    f"no cell has {axis} {asked}",
                    where=f"primary.{axis}",
                    hint=f"there are: {listed(known)}",
                )
            if asked is not None:
                chosen[axis] = next(value for value in known if str(value) == str(asked))
            elif axis == "k" and len(known) > 1:
                what = f"cells certify different top lists: K {listed(known)}"
                raise DesaError(
                    what, where="primary.k", hint=f"choose one, for example primary.k={known[0]}"
                )
            elif axis == "n_refs":
                chosen[axis] = max(values, default=None)
            else:
                usual = "60" if axis == "kappa" and "60" in values else None
                chosen[axis] = usual or max(known, key=lambda value: values[value], default=None)
            if others := [value for value in known if value != chosen[axis]]:
                self.notes.append(
                    f"main tables are about {axis} {chosen[axis]}; also there: {listed(others)}"
                )
        return Setting(**chosen)  # pyright: ignore[reportArgumentType]

    def _collections(self) -> dict[str, tuple[int, str, frozenset[str]]]:
        """Data set -> documents, hash of judgments and queries of the main tables: most documents,
        queries, cells.
        """
        chosen = {}
        for dataset in sorted({cell.dataset for cell in self.cells}):
            own = [
                cell for cell in self.cells if cell.dataset == dataset and self.setting.fits(cell)
            ]
            counts = Counter((cell.corpus_docs, cell.qrels_hash, cell.queries) for cell in own)
            if counts:
                chosen[dataset] = max(
                    counts, key=lambda c: (c[0], len(c[2]), counts[c], c[1], sorted(c[2]))
                )
            else:
                self.notes.append(
                    f"{dataset} has no cell with the main setting and is left out of the main"
                    " tables"
                )
        return chosen

    def _check(self) -> None:
        problems = []
        for cell in self.cells:
            documents, qrels, queries = self.collections.get(cell.dataset, (0, "", frozenset()))
            if (
                cell.corpus_docs != documents
                or not self.setting.fits(cell)
                or self.cell(cell.dataset, cell.method)
            ):
                continue
            if cell is self.calibrated(cell.dataset, cell.method):
                self.notes.append(
                    f"{cell.dataset}: {cell.method} has {len(cell.queries)} of {len(queries)}"
                    " queries, the others gave its alpha; main tables leave it out"
                )
                continue
            differs = []
            if lacking := sorted(queries - cell.queries):
                differs.append(f"lacks {len(lacking)} queries: {listed(lacking)}")
            if further := sorted(cell.queries - queries):
                differs.append(f"has {len(further)} further queries: {listed(further)}")
            if cell.qrels_hash != qrels:
                differs.append(f"other judgments (hash {cell.qrels_hash[:12]}, not {qrels[:12]})")
            hint = "run it on the same collection, or leave it out with methods= or datasets="
            problems.append(DesaError("; ".join(differs), where=str(cell), hint=hint))
        if problems:
            raise Problems(problems)

    @property
    def datasets(self) -> list[str]:
        return list(self.collections)

    @cached_property
    def methods(self) -> list[str]:
        """Methods with a cell in the main setting, known ones first."""
        there = {cell.method for cell in self.cells if self.cell(cell.dataset, cell.method)}
        order = {method: place for place, method in enumerate(METHODS)}
        return sorted(
            there, key=lambda method: (order.get(method.partition(STAND_IN)[0], len(order)), method)
        )

    def cell(self, dataset: str, method: str, setting: Setting | None = None) -> Cell | None:
        """The cell of the data set's main collection under a setting (default: the main one)."""
        setting = setting or self.setting
        return next(
            (
                cell
                for cell in self.cells
                if (cell.dataset, cell.method) == (dataset, method)
                and setting.fits(cell)
                and (cell.corpus_docs, cell.qrels_hash, cell.queries)
                == self.collections.get(dataset)
            ),
            None,
        )

    def calibrated(self, dataset: str, method: str) -> Cell | None:
        """The main setting's cell of a method that leaves out the queries of its calibration."""
        documents, qrels, queries = self.collections.get(dataset, (0, "", frozenset()))
        for cell in self.cells:
            same = (cell.dataset, cell.method) == (dataset, method) and self.setting.fits(cell)
            whole = (cell.corpus_docs, cell.qrels_hash) == (documents, qrels)
            if method in LEAVES_OUT and same and whole and cell.queries < queries:
                return cell
        return None

    def complete(self, *methods: str) -> bool:
        """Whether every data set has all these methods: only then is there a macro."""
        return all(self.cell(dataset, method) for dataset in self.datasets for method in methods)

    def dataset_means(
        self, method: str, column: str, setting: Setting | None = None
    ) -> list[float] | None:
        """Unrounded means of each data set, in order; None where a data set lacks the method
        or a value.
        """
        cells = [self.cell(dataset, method, setting) for dataset in self.datasets]
        means = [cell.mean(column) if cell else None for cell in cells]
        return None if None in means or not means else means  # pyright: ignore[reportReturnType]

    def pairs(
        self, own: str, other: str, setting: Setting | None = None
    ) -> dict[str, tuple[Cell, Cell]] | None:
        """Both methods' cells by data set; None where a data set lacks one of them."""
        found = {}
        for dataset in self.datasets:
            first, second = self.cell(dataset, own, setting), self.cell(dataset, other, setting)
            if first is None or second is None:
                return None
            found[dataset] = first, second
        return found or None

    def paired_means(
        self, own: str, other: str, column: str, setting: Setting | None = None
    ) -> tuple[list[float], list[float]] | None:
        """Unrounded means of two methods, a data set each; None where one of them is missing."""
        first, second = (
            self.dataset_means(own, column, setting),
            self.dataset_means(other, column, setting),
        )
        return None if first is None or second is None else (first, second)

    def counterpart(self, cell: Cell, method: str) -> Cell | None:
        """Another method's cell to pair this one with: same corpus, judgments and setting, and at
        least its queries.
        """
        setting = Setting(*(getattr(cell, axis) for axis in AXES))
        fitting = [
            other
            for other in self.cells
            if other.method == method
            and (other.dataset, other.corpus_docs, other.qrels_hash)
            == (cell.dataset, cell.corpus_docs, cell.qrels_hash)
            and setting.fits(other)
            and other.queries >= cell.queries
        ]
        return min(fitting, key=lambda other: len(other.queries), default=None)

    def varied(self, axis: str) -> list[Setting]:
        """The main setting with every value of one axis, in order, where cells that use it have
        more than one.
        """
        values = {getattr(cell, axis) for cell in self.cells} - {None}
        order = sorted(values, key=lambda value: (number_of(value), str(value)))
        return [replace(self.setting, **{axis: value}) for value in order]


def paired_values(own: Cell, other: Cell, columns: Sequence[str]) -> np.ndarray:
    """Draw-averaged values of both cells over their common queries that have all of them, float64
    [Q, columns, 2].
    """
    both = own.means.select("query_id", *columns).join(
        other.means.select("query_id", *columns),
        on="query_id",
        suffix="_other",
        maintain_order="left",
    )
    ordered = [name for column in columns for name in (column, f"{column}_other")]
    return both.select(ordered).drop_nulls().to_numpy().reshape(-1, len(columns), 2)


def signed_differences(own: Cell, other: Cell, outcomes: Sequence[Outcome]) -> np.ndarray:
    """Query differences [Q, outcomes], positive where `own` is better, over the queries that have
    all values.
    """
    values = paired_values(own, other, [outcome.column for outcome in outcomes])
    return (values[:, :, 0] - values[:, :, 1]) * [outcome.sign for outcome in outcomes]
