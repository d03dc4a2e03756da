"""Fusion and replay of one method and draw: one record per query, and the top of its fused run.

Reads complete rankings, computes the exact fused order, the certification depths, the effectiveness
and the diagnostics that need whole rankings. It is the only stage that depends on kappa and
weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from desa_ray.core.fusion.cutoffs import cut
from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Count, Finished, Pool, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import CollectionStages, documents_behind
from desa_ray.stages.fused_records import (
    RUN,
    FusedQuery,
    evaluated,
    fused_schema,
    head_needed,
    mechanism,
    query_record,
    write_shard,
)
from desa_ray.stages.fusion_inputs import Inputs, Weighed
from desa_ray.stages.plugged import rule_of
from desa_ray.stages.ranking import queries_in
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_table
from desa_ray.types import sha256_json

FUSED_DOCUMENTS = 1 << 20  # what a shard of more than `shard_queries` queries may fuse
MOST_JOINED = 4  # shards of `shard_queries` that become one


@dataclass(frozen=True)
class FusionWork(Work):
    """Fuses, replays and evaluates.

    Inputs: one ranking per channel, `channel:NAME`, and with confidence weights its top scores,
    `scores:NAME`; one generation per prompt, `generation:PROMPT`; `queries`, `corpus`, `qrels`; and
    `original_sparse`, the ranking that the mechanism diagnostics compare with, where they mean
    something.
    """

    pool: Pool
    shard_queries: int
    unit = "queries"
    smaller = "ranking=counted"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        documents = stage.inputs["corpus"].rows
        return {"bounds": bounds(queries_in(stage), self.queries_per_shard(documents))}

    def queries_per_shard(self, documents: int) -> int:
        """A query of a small collection takes a millisecond: more of them make a shard worth its
        files.
        """
        fitting = FUSED_DOCUMENTS // max(1, documents)
        return max(self.shard_queries, min(MOST_JOINED * self.shard_queries, fitting))

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "run-{}.parquet", "part-{}.parquet")

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        inputs = Inputs(engine, stage)
        queries = inputs.queries[shard.start : shard.stop]
        fused = self.fuse(inputs, range(shard.start, shard.stop), queries)
        write_shard(inputs, stage.artifact, shard, fused, evaluated(inputs, queries, fused))

    def fuse(self, inputs: Inputs, rows: Sequence[int], queries: Sequence[str]) -> list[FusedQuery]:
        """The queries of a shard, one after the other."""
        return [self.fuse_one(inputs, *own) for own in zip(rows, queries, strict=True)]

    def fuse_one(self, inputs: Inputs, row: int, query: str) -> FusedQuery:
        """One query, from complete rankings."""
        return _fuse(inputs, row, query)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        table = read_fused(stage)
        content = sha256_json([rows_content(table), rows_content(read_run(stage))])
        return Finished(content, {"rows": table.height, "fallbacks": int(table["fallback"].sum())})

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        queries, documents = rows["queries"], rows["corpus"]
        head = min(documents, params["run_depth"])
        return Size(queries, queries * documents * len(params["channels"]), queries * head)

    @classmethod
    def comparable_key(cls, params: Params, rows: Rows) -> Any:
        return params["fusion"], params.get("ranking")

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        return len(params.get("channels", ())), params.get("weighting")

    def plan_group(self, stage: Stage) -> str:
        return ""

    def shard_rows(self, rows: Rows) -> int:
        return self.queries_per_shard(rows["corpus"])

    def worker_bytes(self, stage: Stage, queries: int) -> int | None:
        """For one query: ranks of every document in every channel, its score and a mark, for the
        replay, and for the fusion once more where it is complete. Rankings themselves are mapped
        from the disk.
        """
        documents = documents_behind(stage)
        if documents is None:
            return None
        copies = 1 if stage.params.get("ranking") == "lazy" else 2
        return documents * (4 * len(stage.params["channels"]) + 9) * copies

    def metrics(self, stage: Stage, parts: Sequence[str]) -> Iterator[Count]:
        yield Count("queries_replayed", stage.rows_of(parts), {})


def fusion_stage(
    collection: CollectionStages,
    channels: Mapping[str, Stage],
    generations: Mapping[str, Stage],
    original_sparse: Stage | None,
    params: Mapping[str, Any],
    work: FusionWork,
    label: str,
    scores: Mapping[str, Stage],
) -> Stage:
    """The fusion of one method and draw.

    Args:
        channels: the ranking (or prefix) stage of each channel by name.
        generations: the texts of each prompt that the channels are built from.
        original_sparse: the ranking that the mechanism diagnostics compare with, where they mean
            something.
        scores: the top scores of each channel by name, where the method uses them.
    """
    inputs = {
        "queries": collection.queries,
        "corpus": collection.documents,
        "qrels": collection.qrels,
    }
    inputs |= {f"generation:{prompt}": stage for prompt, stage in generations.items()}
    inputs |= {f"channel:{name}": stage for name, stage in channels.items()}
    inputs |= {f"scores:{name}": stage for name, stage in scores.items()}
    if original_sparse is not None:
        inputs["original_sparse"] = original_sparse
    return Stage(collection.queries.store, "fusion", 2, params, work, inputs, label)


def _fuse(inputs: Inputs, row: int, query: str) -> FusedQuery:
    params = inputs.params
    fusion = rule_of(params["fusion"], params.get("replay", "exact"), params.get("plugin"))
    kappa, k = Fraction(params["kappa"]), params["k"]
    complete = [ranking.docs(row) for ranking in inputs.rankings]
    weighed = Weighed(inputs, row)
    channels = weighed.used(cut(complete, params["prefix"]))
    replayed = fusion.replay(channels, weighed.weights, kappa, k)
    record = query_record(inputs, row, query, weighed, replayed)
    record["ranking_hashes"] = [info["hash"] for info in weighed.infos]
    sparse = [
        ranking for ranking, kind in zip(complete, weighed.kinds, strict=True) if kind == "sparse"
    ]
    if inputs.original_sparse is not None and not record["fallback"]:
        record |= mechanism(inputs, row, query, sparse[0])
    depth = head_needed(params)
    head, tops = fusion.both(channels, weighed.weights, kappa, depth, k, params["cutoffs"])
    return FusedQuery(record, replayed, head, tops)


def read_fused(stage: Stage) -> pl.DataFrame:
    """The records of one method and draw, in query order."""
    artifact = stage.artifact
    schema = fused_schema(stage.params)
    shards = stage.stored_shards()
    return pl.concat([read_table(artifact, shard.parts[1], schema) for shard in shards])


def read_run(stage: Stage) -> pl.DataFrame:
    """The first `run_depth` documents per query, best first."""
    artifact = stage.artifact
    shards = stage.stored_shards()
    return pl.concat([read_table(artifact, shard.parts[0], RUN) for shard in shards])
