"""The cells of one report, checked to be comparable, and how tables ask for them.

A report has one *setting* (encoder, generator, kappa, K, number of references) that its main tables
are about, and one collection per data set. What differs in one thing only (another kappa, encoder,
generator, corpus size) is robustness. Cells that should be paired but were run on other queries,
judgments or K are refused, with what differs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from desa_ray.errors import DesaError, Problems, choices, listed
from desa_ray.report.cells import RecordedCell, cut_cells, number_of
from desa_ray.report.choice import chosen_roles, chosen_value, two_channels
from desa_ray.report.names import LEAVES_OUT, METHODS, STAND_IN, Outcome, dataset_name
from desa_ray.report.roles import Roles

UNNAMED = Roles()
AXES = ("encoder", "generator", "kappa", "k", "n_refs")


@dataclass(frozen=True)
class Setting:
    """What the main tables hold fixed; None where no cell uses the thing."""

    encoder: str | None
    generator: str | None
    kappa: str | None
    k: int
    n_refs: int | None
    further: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def axes(self) -> tuple[str, ...]:
        return (*AXES, *self.further)

    def value(self, axis: str) -> Any:
        return getattr(self, axis) if axis in AXES else self.further.get(axis)

    def having(self, axis: str, value: Any) -> "Setting":
        """The same setting with another value of one axis."""
        if axis in AXES:
            return replace(self, **{axis: value})
        return replace(self, further={**self.further, axis: value})

    def fits(self, cell: RecordedCell) -> bool:
        """Whether the cell agrees in everything that it uses at all."""
        return all(cell.value(axis) in (None, self.value(axis)) for axis in self.axes)


class Study:
    """Comparable cells.

    Args:
        records: query records of any number of cells.
        primary: wanted values of the setting by axis, and of `corpus_docs`; others are the first
            that the records have.
        methods, datasets: keep only these; all where empty.
        roles: who is compared with whom; what they leave open is chosen from the records.
        usual: choose the setting as the paper's preset does: kappa 60, most references, largest
            corpus, else what most cells have.

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
        roles: Roles = UNNAMED,
        usual: bool = False,
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
        self.usual = usual
        self.setting = self._choose(primary or {})
        self.roles = chosen_roles(roles, cells)
        self.collections = self._collections((primary or {}).get("corpus_docs"))
        self._check()

    def _choose(self, wanted: Mapping[str, object]) -> Setting:
        chosen: dict[str, Any] = {}
        further = self.cells[0].axes if self.cells else ()
        settings = wanted.get("settings") or {}
        assert isinstance(settings, Mapping)
        if unknown := [name for name in settings if name not in further]:
            what = f"cells do not differ in {listed(unknown)}"
            hint = choices(unknown[0], further) if further else "leave it out"
            raise DesaError(what, where="primary.settings", hint=hint)
        for axis in (*AXES, *further):
            asked = wanted.get(axis) if axis in AXES else settings.get(axis)
            chosen[axis], others = chosen_value(self.cells, axis, asked, usual=self.usual)
            if others:
                self.notes.append(
                    f"main tables are about {axis} {chosen[axis]}; there are also: {listed(others)}"
                )
        own = {axis: chosen.pop(axis) for axis in further}
        return Setting(**chosen, further=own)

    def _collections(self, documents: object) -> dict[str, tuple[int, str, frozenset[str]]]:
        """Data set -> documents, hash of judgments and queries of the main tables: documents as
        asked for, else the first cell's (of the paper's preset: the most), then most queries and
        cells.
        """
        chosen = {}
        for dataset in sorted({cell.dataset for cell in self.cells}):
            own = [
                cell for cell in self.cells if cell.dataset == dataset and self.setting.fits(cell)
            ]
            sizes = [cell.corpus_docs for cell in sorted(own, key=lambda cell: cell.place)]
            if not sizes:
                self.notes.append(
                    f"{dataset} has no cell with the main setting and is left out of the main"
                    " tables"
                )
                continue
            asked = [size for size in sizes if str(size) == str(documents)]
            size = asked[0] if asked else max(sizes) if self.usual else sizes[0]
            if others := sorted(set(sizes) - {size}):
                what = f"main tables are about {size} documents of {dataset}"
                self.notes.append(f"{what}; there are also: {listed(others)}")
            counts = Counter(
                (cell.corpus_docs, cell.qrels_hash, cell.queries)
                for cell in own
                if cell.corpus_docs == size
            )
            chosen[dataset] = max(counts, key=lambda c: (len(c[2]), counts[c], c[1], sorted(c[2])))
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
                    " queries, since the others calibrated its alpha; main tables leave it out"
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

    @cached_property
    def two_channels(self) -> list[str]:
        """Methods of the main setting whose records have a dense and a sparse depth."""
        found = []
        for method in self.methods:
            if all(map(two_channels, self.cells_of(method))):
                found.append(method)
        return found

    def cells_of(self, method: str) -> list[RecordedCell]:
        """A method's cells in the main setting, by data set."""
        cells = [self.cell(dataset, method) for dataset in self.datasets]
        return [cell for cell in cells if cell]

    @property
    def about(self) -> str:
        """The setting and the collections of the main tables, in words."""
        setting = self.setting
        parts = [f"encoder {setting.encoder}" if setting.encoder else ""]
        parts.append(f"generator {setting.generator}" if setting.generator else "")
        parts += [f"κ {setting.kappa}" if setting.kappa else "", f"K {setting.k}"]
        parts.append(f"{setting.n_refs} references" if setting.n_refs else "")
        parts += [f"{name} {value}" for name, value in setting.further.items()]
        for dataset, (documents, _, queries) in self.collections.items():
            name = dataset_name(dataset)
            parts.append(f"{name}: {documents:,} documents, {len(queries):,} queries")
        return "; ".join(part for part in parts if part)

    def cell(
        self, dataset: str, method: str, setting: Setting | None = None
    ) -> RecordedCell | None:
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

    def calibrated(self, dataset: str, method: str) -> RecordedCell | None:
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
    ) -> dict[str, tuple[RecordedCell, RecordedCell]] | None:
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

    def counterpart(self, cell: RecordedCell, method: str) -> RecordedCell | None:
        """Another method's cell to pair this one with: same corpus, judgments and setting, and at
        least its queries.
        """
        further = {axis: cell.value(axis) for axis in self.setting.further}
        setting = Setting(*(getattr(cell, axis) for axis in AXES), further=further)
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
        values = {cell.value(axis) for cell in self.cells} - {None}
        order = sorted(values, key=lambda value: (number_of(value), str(value)))
        return [self.setting.having(axis, value) for value in order]


def paired_values(own: RecordedCell, other: RecordedCell, columns: Sequence[str]) -> np.ndarray:
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


def signed_differences(
    own: RecordedCell, other: RecordedCell, outcomes: Sequence[Outcome]
) -> np.ndarray:
    """Query differences [Q, outcomes], positive where `own` is better, over the queries that have
    all values.
    """
    values = paired_values(own, other, [outcome.column for outcome in outcomes])
    return (values[:, :, 0] - values[:, :, 1]) * [outcome.sign for outcome in outcomes]
