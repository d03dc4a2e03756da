"""Leakage: how much of the generated text occurs in relevant documents, and what each method gains
on the other queries (method.md section 10.5).

Texts, judgments and documents are read from the store, where the records' keys lead.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from desa_ray.core.overlap import Documents
from desa_ray.core.statistics.aggregate import macro
from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.build import Builder
from desa_ray.report.cells import RecordedCell
from desa_ray.report.names import EFFECTIVENESS, dataset_name, method_name
from desa_ray.report.results import over
from desa_ray.report.stored import StoredFusion
from desa_ray.report.study import Study, paired_values
from desa_ray.report.table import Column, Row, Table, Value
from desa_ray.store.artifacts import Store

KINDS = {"exact": "word for word", "13": "13 words in a row", "8": "8 words in a row"}
Overlap = pl.DataFrame  # `query_id`, `draw`, and a truth value per kind


def leakage(store: Store) -> tuple[str, Builder, str]:
    """The tables of one store, as a report wants further ones."""
    return "leakage", partial(leakage_tables, store), "needs methods with generated texts"


def leakage_tables(store: Store, study: Study, sampling: Sampling) -> list[Table]:
    """Shares of overlapping query-draws by method and draw, and effects without those queries."""
    read = _Read(store)
    found: dict[tuple[str, str], Overlap] = {}
    for method in study.methods:
        for dataset in study.datasets:
            cell = study.cell(dataset, method)
            overlap = read.of(cell) if cell and cell.generator else None
            if overlap is not None:
                found[dataset, method] = overlap
    if not found:
        return []
    tables = [_shares_table(study, found)]
    effects = _effects_table(study, found, sampling)
    return tables if effects is None else [*tables, effects]


class _Read:
    """Overlaps of cells; what methods share is read and compared once."""

    def __init__(self, store: Store):
        self._store = store
        self._documents: dict[tuple[str, str], Mapping[str, Documents]] = {}
        self._texts: dict[tuple[str, int | None, str], Overlap] = {}

    def of(self, cell: RecordedCell) -> Overlap | None:
        """One row per query-draw of the cell with a relevant document in its corpus."""
        frames = []
        for draw in cell.records.partition_by("draw", maintain_order=True):
            stored = StoredFusion(self._store, draw["fusion_key"][0], complete=False)
            tables = stored.key.inputs["corpus"], stored.key.inputs["qrels"]
            if tables not in self._documents:
                self._documents[tables] = _relevant(stored)
            generations = [
                digest
                for role, digest in stored.key.inputs.items()
                if role.startswith("generation:")
            ]
            about = ",".join(generations), cell.n_refs, ",".join(tables)
            if about not in self._texts:
                texts = [stored.table("generation", digest) for digest in generations]
                self._texts[about] = _compared(texts, cell.n_refs, self._documents[tables])
            number = pl.lit(draw["draw"][0], draw.schema["draw"])
            frames.append(self._texts[about].with_columns(draw=number))
        found = pl.concat(frames)
        there = found.filter(pl.col("query_id").is_in(list(cell.queries)))
        return there if there.height else None


def _relevant(stored: StoredFusion) -> dict[str, Documents]:
    """Query -> its relevant documents."""
    pairs = stored.qrels.filter(pl.col("grade") > 0).join(
        stored.corpus, left_on="doc_id", right_on="id"
    )
    texts = pairs.group_by("query_id", maintain_order=True).agg("text")
    return {query: Documents(own) for query, own in texts.iter_rows()}


def _compared(
    texts: list[pl.DataFrame], n_refs: int | None, documents: Mapping[str, Documents]
) -> Overlap:
    """Overlap of the texts that a method uses, by query; fallbacks have none."""
    own: dict[str, list[str]] = {}
    for table in texts:
        for query, written in table.select("query_id", "texts").iter_rows():
            own.setdefault(query, []).extend((written or [])[:n_refs])
    rows = [
        {"query_id": query, **documents[query].shared(written)}
        for query, written in own.items()
        if query in documents
    ]
    schema = {"query_id": pl.String, **dict.fromkeys(KINDS, pl.Boolean)}
    return pl.DataFrame(rows, schema)


def _shares_table(study: Study, found: Mapping[tuple[str, str], Overlap]) -> Table:
    rows = []
    for (dataset, method), overlap in found.items():
        draws = overlap.partition_by("draw", maintain_order=True)
        queries = overlap.group_by("query_id").agg(pl.col(list(KINDS)).max())
        labels = [str(draw["draw"][0]) for draw in draws]
        for label, own in zip((*labels, "any"), (*draws, queries), strict=True):
            values: dict[str, Value] = {"dataset": dataset_name(dataset), "draw": label}
            values |= {"method": method_name(method), "queries": own.height}
            for kind in KINDS:
                values[kind] = 100 * float(own[kind].cast(pl.Float64).to_numpy().mean())
            rows.append(Row(values, {"dataset": dataset, "method": method, "draw": label}))
    columns = (
        Column("dataset", "data set"),
        Column("method", "method"),
        Column("draw", "draw"),
        Column("queries", "queries", "{:d}", help="with a relevant document in the corpus"),
        *(Column(kind, f"{words} %", "{:.2f}") for kind, words in KINDS.items()),
    )
    notes = ["queries with a generated text that a relevant document holds, in part or whole"]
    title = "Overlap of generated texts with relevant documents"
    return Table("leakage", title, columns, rows, notes, about=study.about)


def _effects_table(
    study: Study, found: Mapping[tuple[str, str], Overlap], sampling: Sampling
) -> Table | None:
    """Each method against the reference: on all queries, then without those that overlap in any
    draw.
    """
    rows = []
    base = study.roles.base
    for method in study.methods:
        pairs = study.pairs(method, base) if method != base else None
        if pairs is None or any((dataset, method) not in found for dataset in pairs):
            continue
        for kind, words in {"": "none", **KINDS}.items():
            strata, left, all_of = [], 0, 0
            for dataset, (own, other) in pairs.items():
                hit = found[dataset, method].filter(pl.col(kind))["query_id"] if kind else []
                kept = _without(own, set(hit))
                measures = [outcome.column for outcome in EFFECTIVENESS]
                both = paired_values(kept, _without(other, set(hit)), measures)
                strata.append(both[:, :, 0] - both[:, :, 1])
                left += len(kept.queries)
                all_of += len(own.queries)
            values: dict[str, Value] = {"method": method_name(method), "without": words}
            values |= {"queries": left, "removed": 100 * (1 - left / all_of)}
            if all(map(len, strata)):
                values |= _effects(strata, sampling)
            rows.append(Row(values, {"method": method, "without": kind}))
    if not rows:
        return None
    columns = [
        Column("method", "method"),
        Column("without", "without queries that overlap"),
        Column("queries", "queries left", "{:d}"),
        Column("removed", "removed %", "{:.2f}"),
    ]
    for outcome in EFFECTIVENESS:
        columns.append(Column(outcome.column, f"{outcome.title} effect", "{:+.4f}"))
        columns.append(Column(f"{outcome.column}_ci", "its 95 % CI", "{:+.4f}"))
    notes = [over(study), f"each method against {method_name(base)} on the same queries"]
    title = "Effects without the queries whose texts overlap"
    return Table("leakage_effects", title, columns, rows, notes, about=study.about)


def _without(cell: RecordedCell, queries: set[str]) -> RecordedCell:
    return replace(cell, records=cell.records.filter(~pl.col("query_id").is_in(list(queries))))


def _effects(strata: list[np.ndarray], sampling: Sampling) -> dict[str, Value]:
    samples = sampling.bootstrap_means([np.ascontiguousarray(own) for own in strata]).mean(1)
    values: dict[str, Value] = {}
    for place, outcome in enumerate(EFFECTIVENESS):
        values[outcome.column] = macro([float(own[:, place].mean()) for own in strata])
        values[f"{outcome.column}_ci"] = interval(samples[:, place])
    return values
