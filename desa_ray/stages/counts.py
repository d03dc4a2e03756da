"""Counted ranks: the ranks in a channel of the documents that a counted run asks for, without
sorting; pass 2 of method.md section 6.14.

Every score is made once more, block after block, and compared with the asked documents' scores;
the counts of blocks and groups of documents add up, so no process ever holds a score for every
document. There is a shard for each group of documents and block of queries, or, where postings are
of one range, for each block of queries, whose lists are scored range by range. Beside the ranks a
sparse channel counts which of the original query's documents it still holds, where the diagnostics
ask for that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.counting import Counting
from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, shards_of
from desa_ray.stages.asked import asked_documents, read_asked, table_of
from desa_ray.stages.dense_ranking import dense_queries, dense_scores
from desa_ray.stages.ranking import ChannelWork, own_documents, ranking_size
from desa_ray.stages.score_layout import (
    BLOCK_QUERIES,
    SparseShards,
    block_of,
    document_ranges,
    group_shards,
    groups_and_blocks,
)
from desa_ray.stages.sparse_ranking import sparse_hits, sparse_hits_of, without
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_array, read_table, write_array, write_table

# `ranks` are 0 for documents that the channel lacks; `shared`: how many of the original query's
# documents it holds, null where nobody asks
COUNTS = pl.Schema({"docs": pl.List(pl.Int32), "ranks": pl.List(pl.Int32), "shared": pl.Int64})


class CountsWork(ChannelWork):
    """What both channels' counts share: parts `ranks-*.parquet`, a row for each query."""

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        whole = ranking_size(params, rows)
        kept = whole.items * 2 * max(1, params["within"])
        return Size(whole.items, whole.work, min(whole.volume, kept))

    def ranked_shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        """The parts by query."""
        return shards_of(layout, "ranks-{}.parquet")

    def finished(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        """Content and counts of all parts."""
        shards = self.ranked_shards(layout)
        table = pl.concat([read_table(stage.artifact, s.parts[0], COUNTS) for s in shards])
        items = int(table["docs"].list.len().sum())
        return Finished(rows_content(table), {"rows": table.height, "items": items})


@dataclass(frozen=True)
class DenseCountsWork(CountsWork):
    """Exact scores once more, compared with those of the documents asked for, input `asked`.

    Parts: `counts-*.npy` of a group and block, int64, query by query; merged by `finish`.
    """

    pool: Pool
    memory_gb: float

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return groups_and_blocks(stage)

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return group_shards(layout, lambda group, block: [f"counts-{group:05d}-{block:05d}.npy"])

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        block = block_of(self.ranked_shards(stage.stored_layout()), shard)
        rows = range(block.start, block.stop)
        asked = read_asked(engine, stage.inputs["asked"])
        counting = []
        for row in rows:
            docs, scores = (asked[name][row].to_numpy() for name in ("docs", "scores"))
            counting.append(Counting(docs, scores))
        queries, _ = dense_queries(engine, stage, rows)
        own = own_documents(engine, stage)
        span = shard.start, shard.stop
        for first, scores in dense_scores(engine, stage, queries, self.memory_gb, *span):
            docs = np.arange(first, first + scores.shape[1], dtype=np.int32)
            for row, of_query, values in zip(rows, counting, scores, strict=True):
                place = own.get(row, -1) - first
                if 0 <= place < docs.size:
                    of_query.add(np.delete(docs, place), np.delete(values, place))
                else:
                    of_query.add(docs, values)
        counts = np.concatenate([of_query.counts() for of_query in counting])
        write_array(stage.artifact, shard.parts[0], counts)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        engine, groups = WorkerCache(), len(layout["groups"]) - 1
        own = own_documents(engine, stage)
        asked = read_asked(engine, stage.inputs["asked"])
        for number, block in enumerate(self.ranked_shards(layout)):
            names = [f"counts-{group:05d}-{number:05d}.npy" for group in range(groups)]
            counts = sum(read_array(stage.artifact, name) for name in names)
            docs = [asked["docs"][row].to_numpy() for row in range(block.start, block.stop)]
            ends = np.cumsum([0, *(part.size for part in docs)])
            ranks = [1 + np.asarray(counts)[a:b].astype(np.int32) for a, b in pairwise(ends)]
            for row, part, of_query in zip(
                range(block.start, block.stop), docs, ranks, strict=True
            ):
                of_query[part == own.get(row, -1)] = 0
            _write(stage, block, docs, ranks, [None] * len(docs))
        return self.finished(stage, layout)

    def shard_rows(self, rows: Rows) -> int:
        return BLOCK_QUERIES


@dataclass(frozen=True)
class SparseCountsWork(CountsWork, SparseShards):
    """BM25 lists of each text source once more, range by range, and the operator; the documents
    asked for are scored from their own postings. `original`, a head of the Original ranking, where
    the support that is left of it is wanted. Where postings are kept in ranges, one shard per group
    of ranges and block of queries, whose `counts-*.parquet` are summed by `finish`.
    """

    @staticmethod
    def group_part(group: int, block: int) -> str:
        return f"counts-{group:05d}-{block:05d}.parquet"

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        layout = stage.stored_layout()
        rows, span = shard, None
        if "groups" in layout:
            rows = block_of(self.ranked_shards(layout), shard)
            span = shard.start, shard.stop
        found = [_sparse(engine, stage, row, span) for row in range(rows.start, rows.stop)]
        docs, ranks = [own[0] for own in found], [own[1] for own in found]
        _write(stage, shard, docs, ranks, [own[2] for own in found])

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        if "groups" in layout:
            for number, block in enumerate(self.ranked_shards(layout)):
                _write(stage, block, *_summed(stage, layout, number))
        return self.finished(stage, layout)


def _summed(
    stage: Stage, layout: Mapping[str, Any], block: int
) -> tuple[list[np.ndarray], list[np.ndarray], list[int | None]]:
    """Documents, ranks and support of a block of queries, from the counts of all groups."""
    groups = range(len(layout["groups"]) - 1)
    parts = [
        read_table(stage.artifact, SparseCountsWork.group_part(group, block), COUNTS)
        for group in groups
    ]
    docs = [own.to_numpy() for own in parts[0]["docs"]]
    ranks: list[np.ndarray] = []
    shared: list[int | None] = []
    for row, own in enumerate(docs):
        found = [part["ranks"][row].to_numpy() for part in parts]
        # each is 1 and the documents before it in a group; 0 in all where the channel lacks it
        before = sum((rank - 1 for rank in found), np.zeros(own.size, np.int32))
        ranks.append(np.where(found[0] > 0, before + 1, 0).astype(np.int32))
        support = [part["shared"][row] for part in parts]
        shared.append(None if None in support else sum(support))
    return docs, ranks, shared


def _sparse(
    engine: WorkerCache, stage: Stage, row: int, span: tuple[int, int] | None
) -> tuple[np.ndarray, np.ndarray, int | None]:
    """A query's documents, 1 plus how many of the documents of `span` (None: all) precede each, and
    how much of the original support the list holds there.
    """
    own, original = own_documents(engine, stage).get(row), stage.inputs.get("original")
    asked = asked_documents(engine, stage, row)
    there, scores = without(sparse_hits_of(engine, stage, row, asked), own)
    counting = Counting(there, scores)
    shared = 0
    for start, stop in document_ranges(stage, span):
        docs, values = without(sparse_hits(engine, stage, row, start, stop), own)
        counting.add(docs, values)
        if original is not None:
            others, _ = without(sparse_hits(engine, original, row, start, stop), own)
            shared += np.intersect1d(docs, others, assume_unique=True).size
    ranks = np.zeros(asked.size, np.int32)
    ranks[np.searchsorted(asked, there)] = 1 + counting.counts()
    return asked, ranks, None if original is None else shared


def _write(
    stage: Stage,
    shard: Shard,
    docs: list[np.ndarray],
    ranks: list[np.ndarray],
    shared: list[int | None],
) -> None:
    lists = table_of({"docs": docs, "ranks": ranks}, COUNTS)
    table = lists.with_columns(pl.Series("shared", shared, pl.Int64))
    write_table(stage.artifact, shard.parts[-1], table, COUNTS)


class Counts:
    """Reads a stage of counts row by row."""

    def __init__(self, stage: Stage):
        work: Any = stage.work
        parts = [shard.parts[-1] for shard in work.ranked_shards(stage.stored_layout())]
        self.table = pl.concat([read_table(stage.artifact, part, COUNTS) for part in parts])

    def ranks(self, row: int, documents: np.ndarray) -> np.ndarray:
        """int32: the ranks of some documents asked for, in the whole list; 0 where it lacks one."""
        docs, ranks = (self.table[name][row].to_numpy() for name in ("docs", "ranks"))
        places = np.searchsorted(docs, documents)
        assert np.array_equal(docs[places], documents), "documents that nobody asked for"
        return ranks[places]

    def shared(self, row: int) -> int:
        """How many of the original query's documents the list holds."""
        return self.table["shared"][row]


def opened_counts(cache: WorkerCache, stage: Stage) -> Counts:
    """The stage's counts, read once per worker."""
    return cache.get_mapped(f"counts {stage.key.digest}", lambda: Counts(stage))


def counts_stage(
    params: Mapping[str, Any], inputs: Mapping[str, Stage], work: CountsWork, label: str
) -> Stage:
    """The counts of a channel.

    Args:
        params: those of the channel's ranking, and `within`.
        inputs: those of the channel's ranking, with `asked` for a dense channel; for a sparse one
            `head:NAME`, every channel's head, and, for diagnostics, `qrels`, `corpus`, `original`.
    """
    return Stage(inputs["queries"].store, "rank_counts", 1, params, work, inputs, f"{label} counts")
