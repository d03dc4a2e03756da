"""A cell of an experiment, taken from a table of query records: its labels, its rows, its means.

A method that was given other texts than its own (a generator label such as
`recorded:hyde<-references`) is a method of its own here, `hyde on references`, so that it is never
taken for the real one.

Records of one cell given twice (a resumed sweep, a copy) are one cell; two cells with the same
description but different numbers are an error, because no table could show both.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from desa_ray.config import DEFAULT_RULE
from desa_ray.core.rules.kinds import uses_kappa
from desa_ray.core.statistics.aggregate import by_query
from desa_ray.errors import DesaError, Problems, listed
from desa_ray.report.names import LEAVES_OUT, STAND_IN
from desa_ray.report.records_check import HINT, REQUIRED, check_columns, with_types
from desa_ray.store.content import rows_content
from desa_ray.types import sha256_json

LABELS = ("dataset", "method", "generator", "encoder", "kappa", "k", "n_refs", "corpus_docs")
# Settings that records name only where they are not these (`experiment/settings.py`, `LATER`).
UNNAMED = {
    "fusion.rule": DEFAULT_RULE,
    "sparse.analyzer": "en",
    "sparse.kind": "bm25",
    "evaluation.exponential_cutoffs": "false",
    "encoder.engine": "cpu",
}
CHANNEL_KIND = re.compile(r"method\.channels\.[0-9]+\.kind")
MEANS = (
    *("ndcg_at_10", "recall_at_20", "depth_dense", "depth_sparse", "depth_total"),
    *("sparse_support", "dense_exhausted", "sparse_exhausted"),
)


@dataclass(frozen=True)
class RecordedCell:
    """One method on one collection under one setting. Labels are null where a method does not use
    the thing; `place` counts the cells in the order in which they came.

    `settings` are all settings of its run that its records name, `axes` those in which cells with
    equal labels differ.
    """

    dataset: str
    method: str
    generator: str | None
    encoder: str | None
    kappa: str | None
    k: int
    n_refs: int | None
    corpus_docs: int
    qrels_hash: str
    records: pl.DataFrame = field(repr=False, compare=False)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    axes: tuple[str, ...] = field(default=(), repr=False, compare=False)
    place: int = field(default=0, repr=False, compare=False)

    def value(self, axis: str) -> Any:
        """The value of a label or of a setting; None where the cell does not use it."""
        return getattr(self, axis) if axis in LABELS else self.settings.get(axis)

    @cached_property
    def queries(self) -> frozenset[str]:
        return frozenset(self.records["query_id"])

    @property
    def config_hash(self) -> str:
        return str(self.records["config_hash"][0])

    @property
    def draws(self) -> int:
        return self.records["draw"].n_unique()

    @cached_property
    def means(self) -> pl.DataFrame:
        """One row per query, `query_id` and the draw-averaged columns of `MEANS`, in UTF-8 order of
        the ids.
        """
        return by_query(self.records, MEANS).sort("query_id")

    def mean(self, column: str) -> float | None:
        """The data set's mean over the queries that have a value; None where none has."""
        value = self.means[column].mean()
        return None if value is None else float(value)  # pyright: ignore[reportArgumentType]

    def describe(self) -> dict[str, str]:
        """What the report says of its input."""
        labels = {name: self.value(name) for name in (*LABELS, *self.axes)}
        return {
            **{name: str(value) for name, value in labels.items() if value is not None},
            "queries": str(len(self.queries)),
            "draws": str(self.draws),
            "records_sha256": rows_content(self.records),
        }

    def __str__(self) -> str:
        parts = [
            f"{name} {self.value(name)}"
            for name in (*LABELS[2:], *self.axes)
            if self.value(name) is not None
        ]
        return f"{self.dataset}/{self.method} ({', '.join(parts)})"


def cut_cells(records: pl.DataFrame) -> list[RecordedCell]:
    """All cells of the records, sorted by their labels.

    Raises:
        Problems: everything wrong: columns missing, a query without all draws of its cell or with
            one twice, two different cells with one name.
    """
    if not records.height:
        raise DesaError("there are no query records", where="records", hint=HINT)
    check_columns(records, "records")  # what they hold was checked file by file when they were read
    sources = "source" in records.columns
    problems: list[DesaError] = []
    found: dict[tuple, tuple[RecordedCell, str]] = {}  # by labels and settings
    if "settings" not in records.columns:
        records = records.with_columns(settings=pl.lit(None, pl.String))
    groups = [*LABELS, "qrels_hash", "config_hash", "settings", *(["source"] if sources else [])]
    for place, (labels, rows) in enumerate(records.group_by(groups, maintain_order=True)):
        source = str(labels[-1]) if sources else "records"
        rows = rows.drop("source", "settings", strict=False).sort("draw", "query_id")
        # What only another cell has came in as nulls; columns go by name, so that the order of
        # loading leaves no trace.
        rows = rows.select(
            n for n in sorted(rows.columns) if n in REQUIRED or rows[n].null_count() < rows.height
        )
        rows = with_types(rows)
        named = _named(dict(zip(LABELS, labels, strict=False)))
        qrels_hash = str(labels[len(LABELS)])
        known = settings_of(labels[len(LABELS) + 2], source)
        if not uses_kappa(_rule(known)):
            # Records of earlier versions hold the one that was configured
            named["kappa"], rows = None, rows.with_columns(kappa=pl.lit(None, pl.String))
        cell = RecordedCell(
            **named, qrels_hash=qrels_hash, records=rows, settings=known, place=place
        )
        problems += _incomplete(cell, source)
        base = (
            *(
                getattr(cell, name) if name == "kappa" else labels[at]
                for at, name in enumerate(LABELS)
            ),
            qrels_hash,
            sha256_json(sorted(cell.queries)),
        )
        key = next((k for k in found if k[0] == base and _same(found[k][0], cell)), (base, place))
        if key not in found:
            found[key] = cell, source
            continue
        first, other = found[key]
        if _values(first) != _values(cell):
            what = f"two runs of {cell} hold different numbers: {other} and {source}"
            problems.append(
                DesaError(what, where="records", hint="choose one with runs= or records=")
            )
        elif _rank(cell) > _rank(first):
            found[key] = replace(cell, place=first.place), source
        kept = first.settings.items() & cell.settings.items() if cell.settings else ()
        shared = dict(kept) if first.settings and cell.settings else first.settings or cell.settings
        found[key] = replace(found[key][0], settings=shared), found[key][1]
    if problems:
        raise Problems(problems)
    return sorted(_with_axes({key: cell for key, (cell, _) in found.items()}), key=_order)


def settings_of(text: str | None, where: str) -> dict[str, str]:
    """The settings that a record names.

    Raises:
        DesaError: they are not what a run writes.
    """
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        what = f"column settings holds {listed([repr(text)])[:100]}, which no run writes"
        raise DesaError(what, where=where, hint="run the cell again; what is stored is reused")
    return found


def _same(first: RecordedCell, second: RecordedCell) -> bool:
    """Whether two cells with equal labels are one: equal settings, or settings that did not reach
    the results; records without settings do not say.
    """
    if not first.settings or not second.settings or first.settings == second.settings:
        return True
    return first.config_hash == second.config_hash


def _with_axes(found: Mapping[tuple, RecordedCell]) -> list[RecordedCell]:
    """The cells, each knowing the settings in which cells with equal labels differ; a cell whose
    rule has no kappa is like those of any.
    """
    at = LABELS.index("kappa")
    groups: dict[Any, dict[str | None, list[RecordedCell]]] = {}
    for (base, _), cell in found.items():
        group = groups.setdefault((*base[:at], *base[at + 1 :]), {})
        group.setdefault(cell.kappa, []).append(cell)
    axes: set[str] = set()
    for by_kappa in groups.values():
        without = by_kappa.get(None, [])
        for first, *others in by_kappa.values():
            for other in (*others, *without):
                axes |= {name for name, _ in first.settings.items() ^ other.settings.items()}
    ordered = tuple(sorted(axes))
    return [
        replace(cell, axes=ordered, settings={**_unnamed(cell, axes), **cell.settings})
        for cell in found.values()
    ]


def _unnamed(cell: RecordedCell, axes: Collection[str]) -> dict[str, str]:
    """What a cell's records leave out of the settings in which cells differ, where it uses them."""
    kinds = {value for name, value in cell.settings.items() if CHANNEL_KIND.fullmatch(name)}
    unused = [
        *(["encoder."] if cell.encoder is None else []),
        *(["sparse."] if kinds and "sparse" not in kinds else []),
    ]
    return {
        name: value
        for name, value in UNNAMED.items()
        if name in axes and not name.startswith(tuple(unused))
    }


def _rule(settings: Mapping[str, str]) -> str:
    """What fused a cell: the rule of its method, or the one that was chosen."""
    own = settings.get("method.fusion", DEFAULT_RULE)
    return settings.get("fusion.rule", DEFAULT_RULE) if own == DEFAULT_RULE else own


def number_of(value: object) -> float:
    """A label as a number to sort by (a fraction such as 1/2 too); infinity for words, also for
    "nan" and "1/0".
    """
    numerator, _, denominator = str(value).partition("/")
    try:
        found = float(numerator) / float(denominator or 1)
    except (ValueError, ZeroDivisionError):
        return math.inf
    return math.inf if math.isnan(found) else found


def _named(labels: dict[str, Any]) -> dict[str, Any]:
    generator, _, stand_ins = (labels["generator"] or "").partition(":")
    texts = (
        "+".join(stand_in.partition("<-")[2] for stand_in in stand_ins.split(","))
        if stand_ins
        else ""
    )
    method = labels["method"] + (STAND_IN + texts if texts else "")
    return {**labels, "method": method, "generator": generator or None}


def _order(cell: RecordedCell) -> list[tuple[float, str]]:
    """By the labels, numbers as numbers."""
    values = [cell.value(name) for name in LABELS]
    values += [cell.qrels_hash, *(cell.value(name) for name in cell.axes)]
    return [(number_of(value), str(value)) for value in values]


def _rank(cell: RecordedCell) -> tuple[int, str]:
    """Which of two equal cells is kept: the one with more columns."""
    return len(cell.records.columns), cell.config_hash


def _values(cell: RecordedCell) -> str:
    """A hash over what every record has, whatever further measures its run asked for."""
    return rows_content(
        cell.records.select(name for name in REQUIRED if name not in ("config_hash", "fusion_key"))
    )


def _incomplete(cell: RecordedCell, source: str) -> Sequence[DesaError]:
    counts = cell.records.group_by("query_id").agg(
        pl.len().alias("rows"), pl.col("draw").n_unique().alias("draws")
    )
    partial = pl.col("draws") != (pl.col("draws") if cell.method in LEAVES_OUT else cell.draws)
    odd = counts.filter((pl.col("rows") != pl.col("draws")) | partial)
    if not odd.height:
        return ()
    names = listed(sorted(odd["query_id"]))
    what = (
        f"{cell}: {odd.height} of {counts.height} queries lack a draw or have a draw twice: {names}"
    )
    return (DesaError(what, where=source, hint="run the cell again; what is stored is reused"),)
