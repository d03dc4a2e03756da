"""What decides a fusion beside its inputs: the parameters in its key, and the work that computes
it.
"""

from fractions import Fraction
from typing import Any

from desa_ray.config import FusionConfig, MethodConfig, RunConfig
from desa_ray.core.evaluation import computed_plainly
from desa_ray.core.fusion.cutoffs import CUTOFFS
from desa_ray.core.fusion.weights import TOP_SCORES
from desa_ray.experiment.fusing import kappa_of, rule_params
from desa_ray.experiment.methods import BY_SCORES, SCORE
from desa_ray.experiment.pools import replay_pool
from desa_ray.stages.fusion import FusionWork
from desa_ray.stages.lazy_fusion import LazyFusionWork
from desa_ray.stages.plugged import rule_plugin
from desa_ray.stages.rule_fusion import RuleFusionWork
from desa_ray.stages.score_fusion import ScoreFusionWork


def wants_scores(method: MethodConfig) -> bool:
    """Whether a fusion reads the scores of its channels, and not their order alone."""
    return method.fusion in BY_SCORES or method.weighting == "confidence"


def fusion_params(config: RunConfig, method: MethodConfig, measures: list[str]) -> dict[str, Any]:
    """The parameters of a fusion stage; what came later is there only where it is not the default,
    so that older keys stay.

    Args:
        method: as it is fused (`fusing.with_rule`).
    """
    fusion, kappa = config.fusion, kappa_of(config.fusion, [method])
    if kappa is None:  # what keys hold of rules that have none; of the oldest of them, 60
        kappa = FusionConfig.kappa if method.fusion == SCORE else Fraction(0)
    params: dict[str, Any] = {
        "channels": [
            {"name": own.name, "kind": own.kind, "weight": str(own.weight)}
            for own in method.channels
        ],
        "fusion": method.fusion,
        "weighting": method.weighting,
        "prefix": method.prefix,
        "kappa": str(kappa),
        "k": fusion.k,
        "measures": measures,
        "cutoffs": list(CUTOFFS),
        "run_depth": config.evaluation.run_depth,
    }
    if fusion.replay != "exact":
        params["replay"] = fusion.replay
    if config.evaluation.exponential_cutoffs:
        params["exponential_cutoffs"] = True
    params |= rule_params(method, fusion)
    plugged = None if method.fusion in BY_SCORES else rule_plugin(method.fusion)
    if plugged:
        params["plugin"] = plugged
    if wants_scores(method):
        params["top_scores"] = TOP_SCORES
    if computed_plainly(measures):
        params["plain_measures"] = 1
    if config.ranking != "complete":
        params["ranking"] = config.ranking
    return params


def fusion_work(config: RunConfig, method: MethodConfig) -> FusionWork:
    """What fuses the channels of a method."""
    pool, size = replay_pool(config), config.cluster.shard_queries
    if method.fusion == SCORE:
        return ScoreFusionWork(pool, size)
    if method.fusion in BY_SCORES:
        return RuleFusionWork(pool, size)
    if config.ranking == "lazy":
        return LazyFusionWork(pool, size)
    return FusionWork(pool, size)
