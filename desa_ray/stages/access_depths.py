"""Depths with random access and least depths of one method and draw, next to a fusion (method.md
section 6.15).

A stage of its own, asked for by `evaluation.access_depths`: fusions keep their keys and contents,
and records have its columns where it ran. It reads what the fusion reads. A counted run holds no
whole lists, so it has no least depths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from desa_ray.config import RunConfig
from desa_ray.core.fusion.access import least_depths, threshold_depths
from desa_ray.core.fusion.counted import head_of, members
from desa_ray.core.fusion.cutoffs import cut
from desa_ray.core.fusion.rrf import rank_matrix
from desa_ray.errors import DesaError
from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, shards_of
from desa_ray.stages.counted_fusion import counted_ranks
from desa_ray.stages.fusion_inputs import Inputs, Weighed
from desa_ray.stages.query_shards import QueryShards
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_table, write_table

ACCESS = pl.Schema(
    {
        "ta_depths": pl.List(pl.Int64),  # one per channel, 0 for one of weight 0
        "ta_depth_total": pl.Int64,
        "least_depths": pl.List(pl.Int64),  # null but for two whole lists
        "least_depth_total": pl.Int64,
        "least_pairs": pl.Int64,
    }
)
ROWS = pl.Schema({"query_id": pl.String, **ACCESS})


def check_access_depths(config: RunConfig) -> list[DesaError]:
    """Why a configuration has no depths with random access."""
    where, hint = "evaluation.access_depths", "leave it out"
    found: list[DesaError] = []
    if config.method.fusion != "rrf":
        what = f"depths with random access are those of rrf, not of {config.method.fusion!r}"
        found.append(DesaError(what, where=where, hint=hint))
    if config.ranking == "lazy":
        what = "a lazy run looks up no ranks"
        found.append(DesaError(what, where=where, hint="use ranking=complete or ranking=counted"))
    return found


@dataclass(frozen=True)
class AccessDepthsWork(QueryShards):
    """One row per query. Inputs: those of the fusion."""

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "depths-{}.parquet")

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        inputs = Inputs(engine, stage)
        found = [
            {"query_id": inputs.queries[row], **_depths(inputs, row)}
            for row in range(shard.start, shard.stop)
        ]
        write_table(stage.artifact, shard.parts[0], pl.DataFrame(found, ROWS), ROWS)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        table = read_access_depths(stage)
        return Finished(rows_content(table), {"rows": table.height})

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        queries = rows["queries"]
        return Size(queries, queries * rows["corpus"] * len(params["channels"]), queries)


def _depths(inputs: Inputs, row: int) -> dict[str, Any]:
    """The columns of one query."""
    params, weighed = inputs.params, Weighed(inputs, row)
    kappa, k, weights = Fraction(params["kappa"]), params["k"], weighed.weights
    lengths = weighed.used(weighed.cut_lengths)
    held = [ranking.docs(row) for ranking in inputs.rankings]
    channels = weighed.used(
        [docs[:length] for docs, length in zip(held, weighed.cut_lengths, strict=True)]
    )
    whole = [docs.size for docs in channels] == lengths
    head = head_of(lengths, weights, kappa, max(k, 1))
    documents = members(cut(channels, head.window), head.window)
    if whole and documents.size:
        ranks = rank_matrix(channels)[documents]
    elif documents.size and len(channels) > 1:
        asked = members(channels, params["within"])
        ranks = counted_ranks(inputs, row, weighed, channels, asked)
    else:  # nothing, or the head of a single list
        ranks = np.arange(1, documents.size + 1, dtype=np.int32)[:, None]
    used = threshold_depths(ranks, lengths, weights, kappa, k)
    depths = [0] * len(weighed.all_weights)
    for c, depth in zip(weighed.places, used, strict=True):
        depths[c] = depth
    least = least_depths(channels, weights, kappa, k) if whole and len(depths) == 2 else None
    return {
        "ta_depths": depths,
        "ta_depth_total": sum(depths),
        "least_depths": list(least.depths) if least else None,
        "least_depth_total": sum(least.depths) if least else None,
        "least_pairs": least.pairs if least else None,
    }


def access_depths_stage(fused: Stage, pool: Pool, shard_queries: int) -> Stage:
    """The depths beside a fusion stage; what decides them is a part of its parameters."""
    names = ("channels", "weighting", "prefix", "kappa", "k", "replay", "ranking", "within")
    params = {name: fused.params[name] for name in names if name in fused.params}
    work = AccessDepthsWork(pool, shard_queries)
    inputs, label = fused.inputs, f"{fused.label} depths"
    return Stage(fused.store, "access_depths", 1, params, work, inputs, label)


def read_access_depths(stage: Stage) -> pl.DataFrame:
    """The depths of one method and draw, in query order."""
    parts = [shard.parts[0] for shard in stage.stored_shards()]
    return pl.concat([read_table(stage.artifact, part, ROWS) for part in parts])


def with_access_depths(fused: pl.DataFrame, stage: Stage | None) -> pl.DataFrame:
    """Fused records with the columns of `ACCESS`; null without a stage."""
    if stage is None:
        return fused.with_columns(pl.lit(None, dtype).alias(n) for n, dtype in ACCESS.items())
    depths = read_access_depths(stage)
    return fused.join(depths, on="query_id", how="left", maintain_order="left")
