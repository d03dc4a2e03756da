"""Part of a collection as a separate collection: a snapshot of its corpus, a sample of its queries,
the judgments of both.

The tables of the part are keyed by their own content, like those of any collection: what depends on
the queries alone (generated text, text vectors) stays when only the corpus shrinks, and a folder
with the same rows is the same collection. Rows keep the order of the whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from desa_ray.config import DatasetConfig
from desa_ray.data.subsets import sample, snapshot
from desa_ray.pipeline.stage import Finished, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import (
    DOCUMENTS,
    PART,
    QRELS,
    ROWS_A_PART,
    TABLES,
    CollectionStages,
    read_rows,
    tables_record,
)
from desa_ray.store.tables import read_array, write_array, write_table
from desa_ray.types import Collection

CHOSEN = {"corpus": "documents.npy", "queries": "queries.npy"}


@dataclass(frozen=True)
class SelectionWork(Work):
    """Chooses rows of the whole. Parts: int64 row numbers of the documents and of the queries,
    ascending.
    """

    pool: None = None

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": [0, stage.inputs["corpus"].artifact.manifest()["counts"]["rows"]]}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, *CHOSEN.values())

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        documents, queries, qrels = (read_rows(stage.inputs[table]) for table in TABLES)
        size, count = stage.params["size"], stage.params["sample"]
        rows: dict[str, Sequence[int]] = {
            "corpus": range(documents.height),
            "queries": range(queries.height),
        }
        if size != "all":
            relevant = set(qrels.filter(pl.col("grade") > 0)["doc_id"])
            rows["corpus"] = snapshot(documents["id"].to_list(), relevant, size)
        if count != "all":
            rows["queries"] = sample(queries["id"].to_list(), set(qrels["query_id"]), count)
        for table, name in CHOSEN.items():
            write_array(stage.artifact, name, np.array(rows[table], np.int64))

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        documents, queries, qrels = (_chosen_rows(stage, table) for table in TABLES)
        found = Collection("", documents, queries, qrels)
        counts, hashes = tables_record(found)
        judged = found.qrels.filter(pl.col("grade") > 0)["query_id"]
        counts |= {
            "empty_documents": _empty(found.documents),
            "empty_queries": _empty(found.queries),
            "queries_without_positive": found.queries.height - judged.n_unique(),
        }
        return Finished(stage.key.digest, counts, {"tables": hashes})


@dataclass(frozen=True)
class ChosenTableWork(Work):
    """Writes one table of a part (`corpus`, `queries` or `qrels`) from the tables of the whole."""

    table: str
    selection: Stage
    pool: None = None

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(_chosen_rows(self.selection, self.table).height, ROWS_A_PART)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, PART)

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        rows = _chosen_rows(self.selection, self.table)[shard.start : shard.stop]
        write_table(
            stage.artifact, shard.parts[0], rows, QRELS if self.table == "qrels" else DOCUMENTS
        )

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return Finished(stage.params["content"], {"rows": layout["bounds"][-1]})


def selection_stage(config: DatasetConfig, whole: CollectionStages) -> Stage:
    """The stage that chooses; running it finds out whether the whole has what is asked for."""
    inputs = {"corpus": whole.documents, "queries": whole.queries, "qrels": whole.qrels}
    asked = {"size": config.size, "sample": config.sample}
    label = " ".join(
        [config.name, *(f"{what} {value}" for what, value in asked.items() if value != "all")]
    )
    return Stage(whole.documents.store, "selection", 1, asked, SelectionWork(), inputs, label)


def selected(
    whole: CollectionStages, selection: Stage, record: Mapping[str, Any]
) -> CollectionStages:
    """The part's table stages behind a stored selection (its manifest)."""

    def table(name: str) -> Stage:
        work = ChosenTableWork(name, selection)
        params = {"content": record["meta"]["tables"][name]}
        return Stage(selection.store, name, 1, params, work, label=selection.label)

    counts = {**whole.counts, **record["counts"]}
    return CollectionStages(
        *(whole.name, table("corpus"), table("queries"), table("qrels"), counts),
        *(whole.documents, whole.queries),
    )


def _chosen_rows(selection: Stage, table: str) -> pl.DataFrame:
    """The part's rows of one table, in the order of the whole."""
    if table == "qrels":
        documents, queries = (_chosen_rows(selection, name)["id"] for name in CHOSEN)
        # Every relevant document is chosen, but those that the whole corpus lacks.
        kept = pl.col("doc_id").is_in(documents.implode()) | (pl.col("grade") > 0)
        asked = pl.col("query_id").is_in(queries.implode())
        return read_rows(selection.inputs["qrels"]).filter(asked & kept)
    rows = read_array(selection.artifact, CHOSEN[table])
    return read_rows(selection.inputs[table])[rows]


def _empty(table: pl.DataFrame) -> int:
    return sum(not text.strip() for text in table["text"])
