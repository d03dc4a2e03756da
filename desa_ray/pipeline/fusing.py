"""Fusion and replay of one method and draw: a record a query, and the head of its fused run.

Reads complete rankings, computes the exact fused order, the certification depths and the effectiveness. It is the only
stage that knows kappa and weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from desa_ray.core.fusion import fuse_order
from desa_ray.core.metrics import depth_needed, evaluate, metric_name
from desa_ray.core.replay import replay
from desa_ray.pipeline.collection import read_rows
from desa_ray.pipeline.generations import read_generations
from desa_ray.pipeline.rankings import Rankings, Scratch
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, bounds, shards_of, stored_layout
from desa_ray.store.artifacts import Store
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_table, write_table
from desa_ray.types import sha256_json

FUSED = {
    "query_id": pl.String,
    "depths": pl.List(pl.Int64),
    "exhausted": pl.List(pl.Boolean),
    "lengths": pl.List(pl.Int64),
    "steps": pl.Int64,
    "depth_dense": pl.Int64,
    "depth_sparse": pl.Int64,
    "depth_total": pl.Int64,
    "sparse_support": pl.Int64,
    "dense_exhausted": pl.Boolean,
    "sparse_exhausted": pl.Boolean,
    "dense_angle_deg": pl.Float64,
    "fallback": pl.Boolean,
    "top": pl.List(pl.String),
    "ranking_hashes": pl.List(pl.String),
    "generation_hash": pl.String,
    "replay_hash": pl.String,
}
RUN = pl.Schema({"query_id": pl.String, "docs": pl.List(pl.String)})


def fused_schema(measures: list[str]) -> pl.Schema:
    """Columns of a fused-record table: the fixed ones, then one Float64 a measure (null: no positive judgment)."""
    return pl.Schema({**FUSED, **{metric_name(measure): pl.Float64() for measure in measures}})


@dataclass(frozen=True)
class FusionWork:
    """Inputs: one ranking a channel under the channel's name, `queries`, `corpus`, `qrels`, `generation` if any."""

    pool: Pool
    shard_queries: int

    def layout(self, store: Store, stage: Stage) -> Mapping[str, Any]:
        rows = stage.inputs["queries"].artifact(store).manifest()["counts"]["rows"]
        return {"bounds": bounds(rows, self.shard_queries)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "run-{}.parquet", "part-{}.parquet")

    def run(self, engine: Scratch, store: Store, stage: Stage, shard: Shard) -> None:
        params = stage.params
        names = [channel["name"] for channel in params["channels"]]
        kinds = [channel["kind"] for channel in params["channels"]]
        weights = [Fraction(channel["weight"]) for channel in params["channels"]]
        kappa, k = Fraction(params["kappa"]), params["k"]
        queries = read_rows(store, stage.inputs["queries"], shard.start, shard.stop)
        corpus = stage.inputs["corpus"]
        ids = engine.get(f"ids {corpus.key.digest}", lambda: read_rows(store, corpus)["id"])
        rankings = [Rankings(store, stage.inputs[f"channel:{name}"]) for name in names]
        generation = stage.inputs.get("generation")
        generated = read_generations(store, generation).records if generation is not None else None
        needed = depth_needed(params["measures"])
        depth = None if needed is None else max(needed, params["run_depth"], k)

        rows: list[dict[str, Any]] = []
        heads: dict[str, list[str]] = {}
        for offset, query_id in enumerate(queries["id"]):
            row = shard.start + offset
            channels = [ranking.docs(row) for ranking in rankings]
            infos = [ranking.info(row) for ranking in rankings]
            replayed = replay(channels, weights, kappa, k)
            order = fuse_order(channels, weights, kappa, depth)
            top = ids.gather(replayed.topk).to_list()
            heads[query_id] = ids.gather(order).to_list()
            assert heads[query_id][: len(top)] == top, f"certified and complete top differ for query {query_id}"
            record: dict[str, Any] = {
                "query_id": query_id,
                "depths": list(replayed.depths),
                "exhausted": list(replayed.exhausted),
                "lengths": [info["length"] for info in infos],
                "steps": replayed.steps,
                "depth_total": sum(replayed.depths),
                "top": top,
                "ranking_hashes": [info["hash"] for info in infos],
                "replay_hash": sha256_json(
                    [list(replayed.depths), list(replayed.exhausted), replayed.steps, replayed.topk.tolist()]
                ),
                "dense_angle_deg": next((i["angle_deg"] for i in infos if i["angle_deg"] is not None), None),
                "fallback": bool(generated is not None and generated["fallback"][row]),
                "generation_hash": generated["text_hash"][row] if generated is not None else None,
            }
            for kind in ("dense", "sparse"):
                own = [c for c, other in enumerate(kinds) if other == kind]
                record[f"depth_{kind}"] = sum(replayed.depths[c] for c in own) if own else None
                record[f"{kind}_exhausted"] = all(replayed.exhausted[c] for c in own) if own else None
            # With several sparse channels the expanded one holds the others' support.
            sparse = [info["length"] for info, kind in zip(infos, kinds, strict=True) if kind == "sparse"]
            record["sparse_support"] = max(sparse) if sparse else None
            rows.append(record)
        schema = fused_schema(params["measures"])
        table = pl.DataFrame(rows, pl.Schema(FUSED), strict=True)
        table = _with_measures(table, read_rows(store, stage.inputs["qrels"]), heads, params["measures"])
        run_heads = {"query_id": list(heads), "docs": [docs[: params["run_depth"]] for docs in heads.values()]}
        write_table(stage.artifact(store), shard.parts[0], pl.DataFrame(run_heads, RUN), RUN)
        write_table(stage.artifact(store), shard.parts[1], table.select(schema.names()), schema)

    def finish(self, store: Store, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        table = read_fused(store, stage)
        content = sha256_json([rows_content(table), rows_content(read_run(store, stage))])
        return Finished(content, {"rows": table.height, "fallbacks": int(table["fallback"].sum())})


def _with_measures(
    table: pl.DataFrame, qrels: pl.DataFrame, heads: Mapping[str, list[str]], measures: list[str]
) -> pl.DataFrame:
    own = qrels.filter(pl.col("query_id").is_in(list(heads)))
    values = evaluate(own, heads, measures)
    for measure in measures:
        name = metric_name(measure)
        column = values.filter(pl.col("measure") == measure).select("query_id", pl.col("value").alias(name))
        table = table.join(column, on="query_id", how="left", maintain_order="left")
    return table


def read_fused(store: Store, stage: Stage) -> pl.DataFrame:
    """The records of one method and draw, in query order."""
    artifact = stage.artifact(store)
    schema = fused_schema(stage.params["measures"])
    shards = stage.work.shards(stored_layout(store, stage))
    return pl.concat([read_table(artifact, shard.parts[1], schema) for shard in shards])


def read_run(store: Store, stage: Stage) -> pl.DataFrame:
    """The first `run_depth` documents a query, best first."""
    artifact = stage.artifact(store)
    shards = stage.work.shards(stored_layout(store, stage))
    return pl.concat([read_table(artifact, shard.parts[0], RUN) for shard in shards])
