"""Documents that a counted run asks for: whose scores and ranks in a dense channel decide the top
and its depths (method.md section 6.14).

They are those within rank `within` of some channel, and stand in the heads that pass 1 kept.
Whoever holds a document's vector scores it: `asked.parquet` has each query's documents, ascending,
and their exact scores, which a counting pass then compares all others with
(`desa_ray.stages.counts`). Like a head they depend on no kappa and no weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.fusion.counted import members
from desa_ray.engines.gemm import Gemm
from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage
from desa_ray.stages.collection import read_rows
from desa_ray.stages.columns import edges, list_column
from desa_ray.stages.dense_ranking import dense_queries
from desa_ray.stages.fusion_inputs import relevant_documents
from desa_ray.stages.ranking import ChannelWork, opened, own_documents, queries_in
from desa_ray.stages.score_layout import BLOCK_QUERIES, document_groups
from desa_ray.stages.stored_vectors import read_vectors, vector_shards
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_array, read_table, write_array, write_table

ASKED = pl.Schema({"docs": pl.List(pl.Int32), "scores": pl.List(pl.Float32)})
PART = "asked.parquet"


def asked_documents(engine: WorkerCache, stage: Stage, row: int) -> np.ndarray:
    """int32, ascending: the documents of a query that are asked for; its own one too, which
    `exclude_self` takes out of the counts of others.
    """
    heads = [s for role, s in stage.inputs.items() if role.startswith("head:")]
    wanted = [opened(engine, head).docs(row)[: stage.params["within"]] for head in heads]
    if "qrels" in stage.inputs:
        queries = stage.inputs["queries"]
        ids = engine.get(f"ids {queries.key.digest}", lambda: list(read_rows(queries)["id"]))
        relevant = relevant_documents(engine, stage.inputs["corpus"], stage.inputs["qrels"])
        wanted.append(relevant.get(ids[row], np.empty(0, np.int32)))
    own = own_documents(engine, stage).get(row)
    wanted.append(np.array([] if own is None else [own], np.int32))
    return members(wanted, sum(part.size for part in wanted))


@dataclass(frozen=True)
class AskedWork(ChannelWork):
    """One shard per group of documents, for all queries. Parts: `scores-*.npy`, float32, those of
    the group, query by query; and, merged by `finish`, `asked.parquet`.
    """

    pool: Pool

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        groups = document_groups(stage.inputs["vectors"])
        return {"groups": groups, "bounds": [0, queries_in(stage)]}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        groups = enumerate(pairwise(layout["groups"]))
        return [Shard(n, start, stop, (f"scores-{n:05d}.npy",)) for n, (start, stop) in groups]

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        gemm: Gemm = engine.gemm
        count = queries_in(stage)
        asked = [_within(asked_documents(engine, stage, row), shard) for row in range(count)]
        found = [np.empty(own.size, np.float32) for own in asked]
        vectors = stage.inputs["vectors"]
        for part in vector_shards(vectors):
            if part.start < shard.start or part.stop > shard.stop:
                continue
            documents = read_vectors(vectors, part)
            for first in range(0, count, BLOCK_QUERIES):
                rows = range(first, min(count, first + BLOCK_QUERIES))
                queries, _ = dense_queries(engine, stage, rows)
                for row, query in zip(rows, queries, strict=True):
                    a, b = np.searchsorted(asked[row], [part.start, part.stop])
                    if a < b:
                        own = gemm.prepared(documents[asked[row][a:b] - part.start])
                        found[row][a:b] = gemm.scores(gemm.prepared(query[None]), own)[0]
        write_array(stage.artifact, shard.parts[0], np.concatenate(found))

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        engine, count = WorkerCache(), queries_in(stage)
        docs = [asked_documents(engine, stage, row) for row in range(count)]
        scores = [np.empty(own.size, np.float32) for own in docs]
        for shard in self.shards(layout):
            part, place = read_array(stage.artifact, shard.parts[0]), 0
            for own, target in zip(docs, scores, strict=True):
                a, b = np.searchsorted(own, [shard.start, shard.stop])
                target[a:b] = part[place : place + b - a]
                place += b - a
        table = table_of({"docs": docs, "scores": scores}, ASKED)
        write_table(stage.artifact, PART, table, ASKED)
        items = sum(own.size for own in docs)
        return Finished(rows_content(table), {"rows": count, "items": items})

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        asked = min(rows["vectors"], 2 * params["within"]) * rows["queries"]
        return Size(rows["queries"], asked, asked)

    def shard_rows(self, rows: Rows) -> int:
        return rows["queries"]


def _within(docs: np.ndarray, shard: Shard) -> np.ndarray:
    return docs[slice(*np.searchsorted(docs, [shard.start, shard.stop]))]


def table_of(columns: Mapping[str, Sequence[np.ndarray]], schema: pl.Schema) -> pl.DataFrame:
    """A frame of columns of lists, a list for each query."""
    found: dict[str, pl.Series] = {}
    for name, lists in columns.items():
        flat = np.concatenate([np.empty(0, lists[0].dtype if lists else np.int32), *lists])
        found[name] = list_column(pl.Series(flat), edges([own.size for own in lists]))
    return pl.DataFrame(found, {name: schema[name] for name in columns})


def read_asked(engine: WorkerCache, stage: Stage) -> pl.DataFrame:
    """Documents and scores of all queries, read once per worker."""
    name = f"asked {stage.key.digest}"
    return engine.get(name, lambda: read_table(stage.artifact, PART, ASKED))


def asked_stage(
    params: Mapping[str, Any], inputs: Mapping[str, Stage], work: AskedWork, label: str
) -> Stage:
    """The documents asked of a dense channel.

    Args:
        params: those of the channel's ranking, and `within`.
        inputs: those of the channel's ranking, and `head:NAME`, every channel's head.
    """
    return Stage(inputs["queries"].store, "asked", 1, params, work, inputs, f"{label} asked")
