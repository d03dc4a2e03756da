"""Query records: the one table every later number is rebuilt from, and the summary of a cell.

A record is one (query, draw) of one cell. Draws are averaged within each query first, then queries (SPEC section 10).
Queries without a positive judgment have null effectiveness and count in depths only.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from desa_ray.core.metrics import metric_name
from desa_ray.pipeline.fusing import FUSED, read_fused, read_run
from desa_ray.pipeline.graph import Cell
from desa_ray.store.artifacts import Store
from desa_ray.types import sha256_json

LABELS = {
    "dataset": pl.String,
    "method": pl.String,
    "draw": pl.Int32,
    "generator": pl.String,
    "encoder": pl.String,
    "kappa": pl.String,
    "k": pl.Int64,
    "n_refs": pl.Int64,
    "corpus_docs": pl.Int64,
    "generation_key": pl.String,
    "fusion_key": pl.String,
    "qrels_hash": pl.String,
    "config_hash": pl.String,
}


def records_schema(measures: list[str]) -> pl.Schema:
    """Columns of `records.parquet`: labels, the fused record, the reference's depths, one Float64 a measure."""
    reference = {"reference_depth_dense": pl.Int64(), "reference_depth_sparse": pl.Int64()}
    return pl.Schema({**LABELS, **FUSED, **reference, **{metric_name(m): pl.Float64() for m in measures}})


def result_config(cell: Cell) -> dict[str, Any]:
    """The configuration that decides the results, as it enters keys: no paths, no cluster."""
    fusion = cell.fused[0]
    ranked = {role: dict(s.params) for role, s in fusion.inputs.items() if role.startswith("channel:")}
    generations = [dict(stage.inputs["generation"].params) for stage in cell.fused if "generation" in stage.inputs]
    tables = {role: fusion.inputs[role].params["content"] for role in ("corpus", "queries", "qrels")}
    return {"fusion": dict(fusion.params), "channels": ranked, "generations": generations, "collection": tables}


def labels(cell: Cell) -> dict[str, Any]:
    """What identifies a cell to people."""
    config = cell.config
    prompted = config.method.prompt is not None
    dense = any(channel.kind == "dense" for channel in config.method.channels)
    return {
        "dataset": config.dataset.name,
        "method": config.method.name,
        "generator": config.generator.name if prompted else None,
        "encoder": config.encoder.name if dense else None,
        "kappa": str(config.fusion.kappa),
        "k": config.fusion.k,
        "n_refs": config.n_refs if config.method.prompt == "references" else None,
        "corpus_docs": cell.collection.counts["documents"],
    }


def cell_records(store: Store, cell: Cell) -> pl.DataFrame:
    """All records of a computed cell, by draw, then query order."""
    reference = None
    if cell.reference is not None:
        reference = read_fused(store, cell.reference).select(
            "query_id",
            pl.col("depth_dense").alias("reference_depth_dense"),
            pl.col("depth_sparse").alias("reference_depth_sparse"),
        )
    common = {**labels(cell), "config_hash": sha256_json(result_config(cell))}
    frames = []
    for draw, stage in enumerate(cell.fused):
        own = {
            **common,
            "draw": draw,
            "generation_key": stage.inputs["generation"].key.digest if "generation" in stage.inputs else None,
            "fusion_key": stage.key.digest,
            "qrels_hash": stage.inputs["qrels"].params["content"],
        }
        frame = read_fused(store, stage)
        if reference is None:
            empty = pl.lit(None, pl.Int64)
            frame = frame.with_columns(empty.alias("reference_depth_dense"), empty.alias("reference_depth_sparse"))
        else:
            frame = frame.join(reference, on="query_id", how="left", maintain_order="left")
        frames.append(frame.with_columns(pl.lit(own[name], LABELS[name]).alias(name) for name in LABELS))
    schema = records_schema(cell.fused[0].params["measures"])
    return pl.concat(frames).select(schema.names()).cast(schema)


def cell_runs(store: Store, cell: Cell) -> list[pl.DataFrame]:
    """The fused runs, one frame a draw: `query_id`, `docs` (best first, `run_depth` at most)."""
    return [read_run(store, stage) for stage in cell.fused]


def summarise(records: pl.DataFrame, measures: list[str]) -> dict[str, float | None]:
    """Means over queries of draw-averaged values; None where no query has a value.

    Depths, support and exhaustion are over all queries, measures over those with a positive judgment, the dense angle
    over query-draws without a fallback. `both_shallower` is the share of queries whose draw-averaged depths are both
    below Original's.
    """
    columns = {
        **{metric_name(measure): pl.col(metric_name(measure)) for measure in measures},
        "depth_dense": pl.col("depth_dense"),
        "depth_sparse": pl.col("depth_sparse"),
        "depth_total": pl.col("depth_total"),
        "sparse_support": pl.col("sparse_support"),
        "dense_exhausted": pl.col("dense_exhausted").cast(pl.Float64),
        "sparse_exhausted": pl.col("sparse_exhausted").cast(pl.Float64),
        "dense_angle_deg": pl.col("dense_angle_deg"),
    }
    by_query = records.group_by("query_id", maintain_order=True).agg(
        *(column.mean().alias(name) for name, column in columns.items()),
        pl.col("reference_depth_dense").first(),
        pl.col("reference_depth_sparse").first(),
    )
    shallower = (pl.col("depth_dense") < pl.col("reference_depth_dense")) & (
        pl.col("depth_sparse") < pl.col("reference_depth_sparse")
    )
    means = by_query.select(*(pl.col(name).mean() for name in columns), both_shallower=shallower.mean())
    return means.row(0, named=True)


def per_draw(records: pl.DataFrame, measures: list[str]) -> list[dict[str, float | None]]:
    """The summary of each draw on its own."""
    return [summarise(frame, measures) for frame in records.partition_by("draw", maintain_order=True)]


def cell_summary(cell: Cell, records: pl.DataFrame) -> dict[str, Any]:
    """A cell's entry in `summary.json`, without the run's own fields (ids, artifact hashes, stage counts)."""
    measures = cell.fused[0].params["measures"]
    kappa = cell.config.fusion.kappa
    shown: Mapping[str, Any] = labels(cell) | {"kappa": int(kappa) if kappa.denominator == 1 else str(kappa)}
    return {
        **shown,
        "n_queries": records["query_id"].n_unique(),
        "draws": len(cell.fused),
        "fallbacks": int(records["fallback"].sum()),
        "metrics": summarise(records, measures),
    }
