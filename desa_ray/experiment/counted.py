"""The stages of a counted run: for each channel of a method, the ranks of the documents that can
affect the result (method.md section 6.14).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from desa_ray.config import ClusterConfig
from desa_ray.pipeline.stage import Pool, Stage
from desa_ray.stages.asked import AskedWork, asked_stage
from desa_ray.stages.counted_fusion import CountedFusionWork, CountedPlan
from desa_ray.stages.counts import DenseCountsWork, SparseCountsWork, counts_stage
from desa_ray.stages.fusion import FusionWork

Scored = tuple[dict[str, Any], dict[str, Stage], str]  # parameters, inputs and label of a channel


def counted(
    fused: Stage,
    plan: CountedPlan,
    scored: Mapping[str, Scored],
    original: Scored | None,
    scorers: Pool,
    cluster: ClusterConfig,
) -> Stage:
    """A fusion of heads, `fused`, with the counts that it needs beside them.

    Args:
        scored: what decides the scores of each channel, by name.
        original: the same of the ranking that the diagnostics compare with, where they mean
            something.
    """
    heads = {
        role.replace("channel:", "head:"): stage
        for role, stage in fused.inputs.items()
        if role.startswith("channel:")
    }
    judged = {role: fused.inputs[role] for role in ("qrels", "corpus")}
    sparse = SparseCountsWork(scorers, cluster.shard_queries)
    within = {"within": plan.within}
    counts: dict[str, Stage] = {}
    for name, (params, inputs, label) in scored.items():
        given = {**inputs, **heads} if plan.within else inputs
        if params["kind"] == "dense" and plan.within:
            asked = asked_stage(params | within, given, AskedWork(scorers), label)
            work = DenseCountsWork(scorers, cluster.memory_gb)
            given = {**inputs, "asked": asked}
            counts[f"counts:{name}"] = counts_stage(params | within, given, work, label)
        elif params["kind"] == "sparse" and (plan.within or original):
            if original:
                given = {**given, **judged, "original": fused.inputs["original_sparse"]}
            counts[f"counts:{name}"] = counts_stage(params | within, given, sparse, label)
    if original:
        params, inputs, label = original
        asking = params | {"within": 0}
        counts["counts_of_original"] = counts_stage(asking, {**inputs, **judged}, sparse, label)
    work = fused.work
    assert isinstance(work, FusionWork)
    return replace(
        fused,
        params={**fused.params, **within},
        work=CountedFusionWork(work.pool, work.shard_queries),
        inputs={**fused.inputs, **counts},
    )
