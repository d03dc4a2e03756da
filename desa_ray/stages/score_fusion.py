"""Score fusion as a fusion stage: records without depths, from the top scores of each channel.

It takes only lengths and support from rankings, complete or not; the fused lists are the same.
"""

from dataclasses import dataclass
from fractions import Fraction

from desa_ray.core.fusion.depth import Replay
from desa_ray.core.fusion.scores import fuse_cut, fuse_scores, normalised
from desa_ray.stages.fused_records import FusedQuery, query_record
from desa_ray.stages.fusion import FusionWork
from desa_ray.stages.fusion_inputs import Inputs, Weighed

NO_DEPTHS = (
    "depths",
    "exhausted",
    "steps",
    "depth_dense",
    "depth_sparse",
    "depth_total",
    "dense_exhausted",
    "sparse_exhausted",
)


@dataclass(frozen=True)
class ScoreFusionWork(FusionWork):
    """As `FusionWork`, by scores; needs `scores:NAME` of every channel."""

    smaller = ""  # scores are fused from complete rankings alone

    def fuse_one(self, inputs: Inputs, row: int, query: str) -> FusedQuery:
        return _fused(inputs, row, query)


def _fused(inputs: Inputs, row: int, query: str) -> FusedQuery:
    params, weighed = inputs.params, Weighed(inputs, row)
    lists = [normalised(*scores.best(row), params["prefix"]) for scores in inputs.scores]
    weights: list[Fraction] = weighed.all_weights
    exact = params.get("replay") != "release"
    order = fuse_scores(lists, weights, exact)
    nothing = Replay((0,) * len(lists), (False,) * len(lists), 0, order[: params["k"]])
    record = query_record(inputs, row, query, weighed, nothing)
    record |= dict.fromkeys(NO_DEPTHS)
    if params.get("ranking") is None:  # complete
        record["ranking_hashes"] = [info["hash"] for info in weighed.infos]
    k = params["k"]
    tops = [fuse_cut(lists, weights, cutoff, exact)[:k] for cutoff in params["cutoffs"]]
    return FusedQuery(record, nothing, order, tops)
