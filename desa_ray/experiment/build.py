"""From one prepared configuration to the stages of its cell. Reads and writes nothing; `prepare`
has done that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from desa_ray.config import DEFAULT_RULE, MethodConfig, RunConfig
from desa_ray.engines.gpu_engines import CPU
from desa_ray.experiment.channels import Channels
from desa_ray.experiment.counted import counted
from desa_ray.experiment.fused_by import fusion_params, fusion_work, wants_scores
from desa_ray.experiment.fusing import kappa_of, with_rule
from desa_ray.experiment.methods import (
    BY_SCORES,
    ORIGINAL,
    expands,
    has_reference,
    prompts,
)
from desa_ray.experiment.pools import replay_pool, scorer_pool
from desa_ray.experiment.prepare import Prepared
from desa_ray.pipeline.stage import Stage
from desa_ray.stages.access_depths import access_depths_stage
from desa_ray.stages.collection import CollectionStages
from desa_ray.stages.fusion import fusion_stage


@dataclass(frozen=True)
class Cell:
    """One configuration and its final stages.

    Attributes:
        fused: fusion stages, one per draw.
        reference: the fusion stage of Original under the same settings, which "shallower in both"
            compares with; None for Original itself and for methods without both channels.
        access: the depths with random access beside each of `fused`; none unless asked for.
        engine: what encodes: `cpu`, or an engine on GPUs (`desa_ray.engines.gpu_engines`).
        devices: what encodes and scores, in words.
    """

    config: RunConfig
    collection: CollectionStages
    fused: tuple[Stage, ...]
    reference: Stage | None
    recording_counts: Mapping[str, int]
    access: tuple[Stage, ...] = ()
    engine: str = CPU
    devices: tuple[str, ...] = ()

    @property
    def targets(self) -> list[Stage]:
        return [*self.fused, *([self.reference] if self.reference else []), *self.access]


class Builder:
    """Builds the cell of one prepared configuration; stages are made once and shared by methods and
    draws.

    Args:
        rankings: those made for other cells of the same run; thousands of cells share a few.
    """

    def __init__(self, prepared: Prepared, rankings: dict[tuple[str, ...], Stage] | None = None):
        self.prepared, self.rankings = prepared, rankings

    def cell(self) -> Cell:
        """The cell: its stages with their keys; what is stored of them is not looked at."""
        prepared, config = self.prepared, self.prepared.config
        channels = Channels(prepared, self.rankings)
        draws = range(config.draws if prompts(config.method) else 1)
        fused = tuple(self._fused(channels, config.method, draw) for draw in draws)
        compared = has_reference(config.method)
        reference = self._fused(channels, ORIGINAL, 0) if compared else None
        access: tuple[Stage, ...] = ()
        if config.evaluation.access_depths:
            pool, size = replay_pool(config), config.cluster.shard_queries
            access = tuple(access_depths_stage(stage, pool, size) for stage in fused)
        engine, counts = prepared.encoder.get("engine", CPU), prepared.recording_counts
        parts = prepared.collection, fused, reference, counts, access, engine
        return Cell(config, *parts, prepared.devices)

    def _fused(self, made: Channels, named: MethodConfig, draw: int) -> Stage:
        config = self.prepared.config
        method = with_rule(named, config.fusion)
        texts = {prompt: made.source.stage(prompt, draw) for prompt in prompts(method)}
        channels = {c.name: made.ranking(method, c, draw) for c in method.channels}
        original = self._original_sparse(made, method)
        scores: dict[str, Stage] = {}
        if wants_scores(method):
            scores = {c.name: made.top_scores(method, c, draw) for c in method.channels}
        label, kappa = f"{method.name} draw {draw}", kappa_of(config.fusion, [method])
        if kappa is not None:
            label += f" kappa {kappa}"
        if config.fusion.rule != DEFAULT_RULE:
            label += f" {config.fusion.rule}"
        params, work = fusion_params(config, method, made.measures), fusion_work(config, method)
        stages = self.prepared.collection, channels, texts, original
        fused = fusion_stage(*stages, params, work, label, scores)
        if config.ranking != "counted" or method.fusion in BY_SCORES:
            return fused
        scored = {c.name: made.scored(method, c, draw) for c in method.channels}
        compared = made.scored(ORIGINAL, ORIGINAL.channels[1], 0) if original else None
        pool = scorer_pool(config)
        return counted(fused, made.counted_for(method), scored, compared, pool, config.cluster)

    def _original_sparse(self, made: Channels, method: MethodConfig) -> Stage | None:
        """Original's sparse ranking, which that of an expanded method is compared with; None where
        it has not one sparse channel, or rankings are held in part.
        """
        sparse = [channel for channel in method.channels if channel.kind == "sparse"]
        diagnosed = len(sparse) == 1 and any(map(expands, method.channels))
        if not diagnosed or self.prepared.config.ranking == "lazy":
            return None
        return made.ranking(ORIGINAL, ORIGINAL.channels[1], 0)
