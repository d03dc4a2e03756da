"""The records of a fusion: their columns, what each query's says, and the parts that hold them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.cutoff_scores import CUT_EXPONENTIAL, cut_scores, exponential_cut_scores
from desa_ray.core.diagnostics import rr_change, support_retained, turnover
from desa_ray.core.evaluation import depth_needed, metric_name, scored
from desa_ray.core.fusion.depth import Replay
from desa_ray.pipeline.sizes import Params
from desa_ray.pipeline.stage import Shard
from desa_ray.stages.columns import frame_of
from desa_ray.stages.fusion_inputs import Inputs, Numbers, Weighed
from desa_ray.store.artifacts import Artifact
from desa_ray.store.tables import write_table
from desa_ray.types import sha256_json

FUSED = {
    "query_id": pl.String,
    "weights": pl.List(pl.String),  # as used, exact; "0" for a channel left out
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
    # against the Original sparse ranking; null without one sparse channel of a method with text,
    # and for fallbacks
    "turnover": pl.Float64,
    "rr_change": pl.Float64,  # also null where no relevant document stands in both rankings
    "support_retained": pl.Float64,
    "cutoffs": pl.List(pl.Int64),
    "cut_same_top": pl.List(pl.Boolean),  # one per cutoff, like the next two
    "cut_ndcg_at_10": pl.List(pl.Float64),  # null: no positive judgment
    "cut_recall_at_20": pl.List(pl.Float64),
    "fallback": pl.Boolean,
    "top": pl.List(pl.String),
    "ranking_hashes": pl.List(pl.String),
    # Several prompts: their hashes, divided by commas, in the order of the channels
    "generation_hash": (pl.String),
    "replay_hash": pl.String,
}
RUN = pl.Schema({"query_id": pl.String, "docs": pl.List(pl.String)})


def fused_schema(params: Params) -> pl.Schema:
    """Columns of a fused-record table: the fixed ones, then one Float64 per measure (null: no
    positive judgment), and nDCG with exponential gain under the cutoffs where it was asked for.
    """
    own: dict[str, Any] = {metric_name(measure): pl.Float64() for measure in params["measures"]}
    if params.get("exponential_cutoffs"):
        own[CUT_EXPONENTIAL] = pl.List(pl.Float64())
    return pl.Schema({**FUSED, **own})


@dataclass(frozen=True)
class FusedQuery:
    """One query: its record so far, and the orders whose ids are looked up for all queries of a
    shard together.
    """

    record: dict[str, Any]
    replayed: Replay
    head: Numbers
    tops: list[Numbers]


def evaluated(
    inputs: Inputs, queries: Sequence[str], fused: Sequence[FusedQuery]
) -> list[dict[str, Any]]:
    """The records of fused queries, with the ids of their tops and all measures."""
    measures = inputs.params["measures"]
    needed = depth_needed(measures)
    orders: list[Numbers] = []
    for one in fused:
        orders += [one.replayed.topk, one.head[:needed], *one.tops]
    names = iter(inputs.names(orders))
    records: list[dict[str, Any]] = []
    heads: dict[str, list[str]] = {}
    cut_tops: list[list[list[str]]] = []  # per query, per cutoff
    for query, one in zip(queries, fused, strict=True):
        same = np.array_equal(one.head[: one.replayed.topk.size], one.replayed.topk)
        assert same, f"certified and complete top differ for query {query}"
        top, heads[query] = next(names), next(names)
        cut_tops.append([next(names) for _ in one.tops])
        same_top = [own == top for own in cut_tops[-1]]
        records.append({**one.record, "top": top, "cut_same_top": same_top})
    grades = {query: inputs.grades[query] for query in queries if query in inputs.grades}
    values = scored(grades, heads, measures)
    for record, of_cutoffs in zip(records, cut_scores(queries, cut_tops, grades), strict=True):
        query = record["query_id"]
        record |= {metric_name(measure): values.get((query, measure)) for measure in measures}
        record |= of_cutoffs
    if inputs.params.get("exponential_cutoffs"):
        exponential = exponential_cut_scores(queries, cut_tops, grades)
        for record, own in zip(records, exponential, strict=True):
            record[CUT_EXPONENTIAL] = own
    return records


def write_shard(
    inputs: Inputs,
    artifact: Artifact,
    shard: Shard,
    fused: Sequence[FusedQuery],
    records: Sequence[Mapping[str, Any]],
) -> None:
    """The two parts of a shard: the top of the fused run, and records."""
    docs = inputs.listed([one.head[: inputs.params["run_depth"]] for one in fused])
    run = pl.DataFrame({"query_id": [one["query_id"] for one in records], "docs": docs}, RUN)
    write_table(artifact, shard.parts[0], run, RUN)
    schema = fused_schema(inputs.params)
    columns: dict[str, list] = {}
    for name in schema:
        columns[name] = [record.get(name) for record in records]
    write_table(artifact, shard.parts[1], frame_of(columns, schema), schema)


def mechanism(inputs: Inputs, row: int, query: str, sparse: Numbers) -> dict[str, float | None]:
    """The diagnostics of method.md section 9 of a complete sparse ranking."""
    assert inputs.original_sparse is not None
    original = inputs.original_sparse.docs(row)
    relevant = inputs.relevant.get(query, np.empty(0, np.int32))
    return {
        "turnover": turnover(sparse, original),
        "rr_change": rr_change(sparse, original, relevant),
        "support_retained": support_retained(sparse, original),
    }


def head_needed(params: Params) -> int | None:
    """How many documents of the fused order are looked at; None for all."""
    needed = depth_needed(params["measures"])
    return None if needed is None else max(needed, params["run_depth"], params["k"])


def query_record(
    inputs: Inputs, row: int, query: str, weighed: Weighed, replayed: Replay
) -> dict[str, Any]:
    """The columns that need no complete ranking."""
    kinds, lengths = weighed.kinds, weighed.cut_lengths
    depths, exhausted = [0] * len(lengths), [length == 0 for length in lengths]
    for c, depth, ended in zip(weighed.places, replayed.depths, replayed.exhausted, strict=True):
        depths[c], exhausted[c] = depth, ended
    record: dict[str, Any] = {
        "query_id": query,
        "weights": [str(weight) for weight in weighed.all_weights],
        "depths": depths,
        "exhausted": exhausted,
        "lengths": lengths,
        "steps": replayed.steps,
        "depth_total": sum(depths),
        "dense_angle_deg": next(
            (i["angle_deg"] for i in weighed.infos if i["angle_deg"] is not None), None
        ),
        "cutoffs": inputs.params["cutoffs"],
        "fallback": any(fallback[row] for fallback in inputs.fallbacks),
        "generation_hash": ",".join(hashes[row] for hashes in inputs.text_hashes) or None,
        "replay_hash": sha256_json([depths, exhausted, replayed.steps, replayed.topk.tolist()]),
    }
    for kind in ("dense", "sparse"):
        own = [c for c, other in enumerate(kinds) if other == kind]
        record[f"depth_{kind}"] = sum(depths[c] for c in own) if own else None
        record[f"{kind}_exhausted"] = all(exhausted[c] for c in own) if own else None
    # With several sparse channels the expanded one holds the others' support.
    support = [
        length for length, kind in zip(weighed.lengths, kinds, strict=True) if kind == "sparse"
    ]
    record["sparse_support"] = max(support) if support else None
    return record
