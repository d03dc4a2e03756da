"""Ranked prefixes: what lazy retrieval keeps of a channel instead of its complete ranking.

A prefix artifact holds the first `depth` documents of every query's ranking, exact scores, ties by
number, and how long the ranking is. Like a ranking, it does not depend on kappa or weights. Dense
scores are computed for one group of documents at a time, by whichever worker takes the group: each
keeps its own best, `finish` merges them, and no process ever holds a score for every document.
Sparse lists are scored likewise where postings are kept in ranges, and one range of documents at a
time, for one query after another.

Where a fusion finds a prefix too short, `deepened` makes the one twice as deep, for the queries
that need it, and keeps it in the store under the depth and the query: another kappa finds it there.
What a prefix holds depends on its depth alone, never on groups, blocks, workers, or on which run
asked for it.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.fusion.cutoffs import CUTOFFS
from desa_ray.core.topk import Keys, TopK, best_hits, documents_of, scores_of
from desa_ray.pipeline.sizes import Params
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, shards_of
from desa_ray.stages.columns import edges, list_column
from desa_ray.stages.dense_ranking import corpus_size, dense_queries, dense_scores
from desa_ray.stages.ranking import (
    ChannelWork,
    RankedQuery,
    finish_ranked,
    own_documents,
    write_ranked,
)
from desa_ray.stages.score_layout import (
    SparseShards,
    block_of,
    document_ranges,
    group_shards,
    groups_and_blocks,
)
from desa_ray.stages.sparse_ranking import corpus_size as documents
from desa_ray.stages.sparse_ranking import sparse_hits, without
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.tables import read_array, read_table, write_array, write_table

FIRST_DEPTH = 4096  # at least the largest cutoff of the diagnostics
# What a group of ranges has of each query: its best hits, ascending by number, and how many hits
RUNS = pl.Schema({"docs": pl.List(pl.Int32), "scores": pl.List(pl.Float64), "length": pl.Int64})


class PrefixWork(ChannelWork):
    """What both channels' prefixes share."""

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        return params.get("depth"), params.get("operator")

    def ranked_shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        """The parts by query, merged where there are groups."""
        return shards_of(layout, "docs-{}.npy", "queries-{}.parquet")

    @abstractmethod
    def prefixes(
        self, engine: WorkerCache, stage: Stage, rows: Sequence[int], depth: int
    ) -> list[np.ndarray]:
        """The first `depth` documents of some queries, scored again."""


@dataclass(frozen=True)
class DensePrefixWork(PrefixWork):
    """Operator, exact scores, selection. One shard per group of documents and block of queries.

    Parts: `keys-*.npy`, uint64 [queries, kept] of a group and block (`desa_ray.core.topk`);
    `angles-*.npy` of a block; and, merged by `finish`, what `desa_ray.stages.ranking` writes of
    rankings.
    """

    pool: Pool
    memory_gb: float

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return groups_and_blocks(stage)

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        def parts(group: int, block: int) -> list[str]:
            angles = [f"angles-{block:05d}.npy"] if group == 0 else []
            return [f"keys-{group:05d}-{block:05d}.npy", *angles]

        return group_shards(layout, parts)

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        artifact = stage.artifact
        block = block_of(self.ranked_shards(stage.stored_layout()), shard)
        rows = range(block.start, block.stop)
        queries, angles = dense_queries(engine, stage, rows)
        # One more than the prefix: the query's own document may have to go.
        depth = stage.params["depth"] + bool(stage.params["exclude_self"])
        chosen = TopK(len(rows), depth, shard.stop - shard.start)
        for first, scores in dense_scores(
            engine, stage, queries, self.memory_gb, shard.start, shard.stop
        ):
            chosen.add(scores, first)
        kept = np.empty((len(rows), min(depth, shard.stop - shard.start)), np.uint64)
        for offset in range(len(rows)):
            kept[offset] = chosen.keys(offset)
        write_array(artifact, shard.parts[0], kept)
        for part in shard.parts[1:]:
            write_array(artifact, part, np.array([np.nan if a is None else a for a in angles]))

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        artifact = stage.artifact
        blocks = self.ranked_shards(layout)
        own = own_documents(WorkerCache(), stage)
        groups = len(layout["groups"]) - 1
        for number, block in enumerate(blocks):
            parts = [
                read_array(artifact, f"keys-{group:05d}-{number:05d}.npy")
                for group in range(groups)
            ]
            angles = read_array(artifact, f"angles-{number:05d}.npy")
            ranked = []
            for offset, row in enumerate(range(block.start, block.stop)):
                keys = (
                    np.sort(np.concatenate([part[offset] for part in parts]))
                    if groups > 1
                    else parts[0][offset]
                )
                angle = None if np.isnan(angles[offset]) else float(angles[offset])
                ranked.append(
                    _dense(keys, layout["groups"][-1], stage.params["depth"], own.get(row), angle)
                )
            write_ranked(artifact, block.parts, ranked)
        return finish_ranked(artifact, blocks)

    def prefixes(
        self, engine: WorkerCache, stage: Stage, rows: Sequence[int], depth: int
    ) -> list[np.ndarray]:
        """The first `depth` documents of some queries, scored again."""
        found = dense_best(engine, stage, rows, depth, self.memory_gb)
        return [docs for docs, _ in found]


def _dense(keys: Keys, total: int, depth: int, own: int | None, angle: float | None) -> RankedQuery:
    """A query's prefix from the best keys of all documents."""
    docs, scores = kept(keys, depth, own)
    top = [*(float(score) for score in scores[:2]), None, None]
    return RankedQuery(docs, total - (own is not None), (top[0], top[1]), angle)


def kept(keys: Keys, depth: int, own: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Documents and scores behind keys, without a query's own document."""
    docs, scores = documents_of(keys), scores_of(keys)
    if own is not None:
        docs, scores = docs[docs != own], scores[docs != own]
    return docs[:depth], scores[:depth]


def dense_best(
    engine: WorkerCache, stage: Stage, rows: Sequence[int], depth: int, memory_gb: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first `depth` documents of some queries and their float32 scores, scored again."""
    own = own_documents(engine, stage)
    total = corpus_size(stage.inputs["vectors"])
    fitting = max(1, int(memory_gb * 2**28 / (8 * min(2 * depth, total))))
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for begin in range(0, len(rows), fitting):
        some = rows[begin : begin + fitting]
        queries, _ = dense_queries(engine, stage, some)
        chosen = TopK(len(some), depth + 1, total)
        for first, scores in dense_scores(engine, stage, queries, memory_gb):
            chosen.add(scores, first)
        found += [kept(chosen.keys(i), depth, own.get(row)) for i, row in enumerate(some)]
    return found


@dataclass(frozen=True)
class SparsePrefixWork(PrefixWork, SparseShards):
    """BM25 lists of each text source, operator, selection. Parts as a ranking's; where postings are
    kept in ranges, one shard per group of ranges and block of queries, whose `runs-*.parquet` are
    merged by `finish`.
    """

    @staticmethod
    def group_part(group: int, block: int) -> str:
        return f"runs-{group:05d}-{block:05d}.parquet"

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        layout, depth = stage.stored_layout(), stage.params["depth"]
        if "groups" not in layout:
            rows = range(shard.start, shard.stop)
            ranked = [_sparse(*sparse_best(engine, stage, row, depth)) for row in rows]
            write_ranked(stage.artifact, shard.parts, ranked)
            return
        block = block_of(self.ranked_shards(layout), shard)
        runs: list[tuple[np.ndarray, np.ndarray, int]] = []
        for row in range(block.start, block.stop):
            runs.append(_run(engine, stage, row, depth, (shard.start, shard.stop)))
        table = {
            "docs": list_column(*_flat([docs for docs, _, _ in runs])),
            "scores": list_column(*_flat([scores.astype(np.float64) for _, scores, _ in runs])),
            "length": [length for _, _, length in runs],
        }
        write_table(stage.artifact, shard.parts[0], pl.DataFrame(table, RUNS), RUNS)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        blocks = self.ranked_shards(layout)
        if "groups" in layout:
            for number, block in enumerate(blocks):
                write_ranked(stage.artifact, block.parts, _merged(stage, layout, number))
        return finish_ranked(stage.artifact, blocks)

    def prefixes(
        self, engine: WorkerCache, stage: Stage, rows: Sequence[int], depth: int
    ) -> list[np.ndarray]:
        return [sparse_best(engine, stage, row, depth)[0] for row in rows]


def _merged(stage: Stage, layout: Mapping[str, Any], block: int) -> list[RankedQuery]:
    """The prefixes of a block of queries, from the runs of all groups."""
    groups = range(len(layout["groups"]) - 1)
    runs = [
        read_table(stage.artifact, SparsePrefixWork.group_part(group, block), RUNS)
        for group in groups
    ]
    ranked: list[RankedQuery] = []
    for row in range(runs[0].height):
        docs = np.concatenate([run["docs"][row].to_numpy() for run in runs])
        scores = np.concatenate([run["scores"][row].to_numpy() for run in runs])
        length = sum(run["length"][row] for run in runs)
        ranked.append(_sparse(*best_hits(docs, scores, stage.params["depth"]), length))
    return ranked


def _sparse(docs: np.ndarray, scores: np.ndarray, length: int) -> RankedQuery:
    top = [*(float(score) for score in scores[:2]), None, None]
    return RankedQuery(docs, length, (top[0], top[1]))


def _flat(lists: Sequence[np.ndarray]) -> tuple[pl.Series, np.ndarray]:
    return pl.Series(np.concatenate(lists)), edges([own.size for own in lists])


def sparse_best(
    engine: WorkerCache, stage: Stage, row: int, depth: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """The first `depth` documents of a query, their scores, and how long the whole list is."""
    docs, scores, length = _run(engine, stage, row, depth, (0, documents(stage)))
    return *best_hits(docs, scores, depth), length


def _run(
    engine: WorkerCache, stage: Stage, row: int, depth: int, span: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, int]:
    """At least the first `depth` hits of a query among some documents, by number, their scores,
    and how many hits there are.
    """
    own = own_documents(engine, stage).get(row)
    docs, scores, length = np.empty(0, np.int32), np.empty(0, np.float64), 0
    for start, stop in document_ranges(stage, span):
        hits = sparse_hits(engine, stage, row, start, stop)
        part_docs, part_scores = without(hits, own)
        length += part_docs.size
        best = np.sort(best_hits(part_docs, part_scores, depth)[0])  # hit lists ascend by number
        part_scores = part_scores[np.searchsorted(part_docs, best)]
        docs, scores = np.concatenate([docs, best]), np.concatenate([scores, part_scores])
    return docs, scores, length


def prefix_stage(
    params: Mapping[str, Any],
    inputs: Mapping[str, Stage],
    work: PrefixWork,
    label: str,
    depth: int | None = None,
) -> Stage:
    """The prefixes of a channel; parameters and inputs are those of its ranking."""
    depth = max(FIRST_DEPTH if depth is None else depth, *CUTOFFS)
    store = inputs["queries"].store
    return Stage(store, "prefix", 1, {**params, "depth": depth}, work, inputs, label)


def deepened(
    engine: WorkerCache, stage: Stage, rows: Sequence[int], depth: int
) -> dict[int, np.ndarray]:
    """Query row -> its first `depth` documents (all, where there are fewer), from the store or
    scored and put there.

    The place is an artifact of its own without a manifest: a part per query, as complete as it was
    ever asked for.
    """
    inputs = {role: source.artifact.manifest()["content"] for role, source in stage.inputs.items()}
    deep = replace(
        stage, name="prefix_deep", params={**stage.params, "depth": depth, "contents": inputs}
    )
    artifact = deep.artifact
    found = {row: read_array(artifact, _name(row)) for row in rows if artifact.has_part(_name(row))}
    missing = [row for row in rows if row not in found]
    if missing:
        work: Any = stage.work
        for row, docs in zip(missing, work.prefixes(engine, stage, missing, depth), strict=True):
            write_array(artifact, _name(row), np.ascontiguousarray(docs, "<i4"))
            found[row] = docs
    return found


def _name(row: int) -> str:
    return f"docs-{row:07d}.npy"
