"""Checks of a configuration by itself: all problems that need no file to be found."""

from collections.abc import Iterator

from desa_ray.config import ClusterConfig, RunConfig, SparseConfig
from desa_ray.core.evaluation import parse_measures
from desa_ray.core.fusion_constants import checked_kappa
from desa_ray.core.rules.kinds import KINDS
from desa_ray.engines.jvm import check_heap
from desa_ray.errors import DesaError, Problems, listed
from desa_ray.experiment.fusing import fused_config, rule_problems
from desa_ray.experiment.learned import learned_problems
from desa_ray.experiment.methods import (
    RECORDED,
    check_generator_map,
    check_method,
    texts_needed,
)
from desa_ray.pipeline.machine import this_machine
from desa_ray.plugins import plugin, shadowed
from desa_ray.stages.access_depths import check_access_depths
from desa_ray.stages.counted_fusion import check_counted
from desa_ray.stages.lazy_fusion import check_lazy
from desa_ray.stages.plugged import engines_named

GB = 1 << 30
MEASURES = ("nDCG@10", "R@20")


def measures_of(config: RunConfig) -> list[str]:
    """The names of all measures of a run."""
    return list(dict.fromkeys([*MEASURES, *config.evaluation.measures]))


def setting_problems(config: RunConfig) -> list[DesaError]:
    """Everything wrong with the settings as such: what can be known without any file."""
    fused = fused_config(config)
    of_rule = [*rule_problems(config)]
    kind, kappa = KINDS.get(fused.method.fusion), config.fusion.kappa
    if kind is not None and kind.small_kappa(kappa):
        what, hint = f"{kind.kappa_name} is {kappa}", "use 1 or more: 61 is kappa 60"
        of_rule.append(DesaError(what, where="fusion.kappa", hint=hint))
    # What is wrong with a rule would be told again of the method that it fuses.
    method = config.method if of_rule else fused.method
    problems = [
        *_unknown_engines(config),
        *_analyzer_problems(config),
        *learned_problems(config),
        *_scorer_problems(config),
        *_size_problems(config),
        *check_generator_map(config.generator),
        *of_rule,
        *check_method(method, config.generator, config.n_refs, config.prompt),
    ]
    if texts_needed(config.method):
        problems += decoding_problems(config)
    try:
        checked_kappa(kappa, "fusion.kappa")
    except DesaError as found:
        problems.append(found)
    try:
        parse_measures(measures_of(config))
    except Problems as found:
        problems += found.problems
    except DesaError as found:
        problems.append(found)
    if config.evaluation.access_depths and not problems:
        problems += check_access_depths(fused)
    if config.ranking == "lazy" and not problems:
        problems += check_lazy(fused, measures_of(config))
    if config.ranking == "counted" and not problems:
        problems += check_counted(fused, measures_of(config))
    return problems


def _analyzer_problems(config: RunConfig) -> Iterator[DesaError]:
    """Settings of the English analyzer beside another one."""
    sparse = config.sparse
    for name in ("stemmer", "stopwords"):
        if sparse.analyzer != "en" and getattr(sparse, name) is not None:
            what = f"applies only to analyzer=en, not to {sparse.analyzer}"
            hint = "leave it out, or use sparse.analyzer=en"
            yield DesaError(what, where=f"sparse.{name}", hint=hint)


def _scorer_problems(config: RunConfig) -> Iterator[DesaError]:
    """GPUs asked for and given none; or a scorer that float32 scores never use."""
    encoder = config.encoder
    if encoder.engine == "gpu" and config.cluster.encoder_gpus == 0:
        what = "engine=gpu, but cluster.encoder_gpus=0 gives an encoder none"
        yield DesaError(what, where="encoder.engine", hint="leave cluster.encoder_gpus out")
    if encoder.scorer in ("auto", "cpu"):
        return
    if encoder.scoring == "float32":
        what = f"scorer={encoder.scorer} applies only to scoring=int26"
        yield DesaError(what, where="encoder.scorer", hint="leave it out, or use int26")
    elif config.cluster.kind != "serial" and config.cluster.scorer_gpus == 0:
        what = f"scorer={encoder.scorer}, but cluster.scorer_gpus=0 gives scorers no GPU"
        hint = "leave cluster.scorer_gpus out, or set it to 1 or to a fraction such as 0.25"
        yield DesaError(what, where="encoder.scorer", hint=hint)


def _size_problems(config: RunConfig) -> Iterator[DesaError]:
    """Memory that this machine does not have; the nodes of a running cluster are asked by it."""
    cluster, generator = config.cluster, config.generator
    if cluster.kind == "existing":
        return
    memory = this_machine().memory
    if config.sparse.heap != SparseConfig.heap:  # the default is made for any machine
        try:
            check_heap(config.sparse.heap, memory)
        except DesaError as error:
            yield error
    sizes = {"cluster.memory_gb": cluster.memory_gb}
    if cluster.memory_gb == ClusterConfig.memory_gb:  # made for any machine
        sizes.clear()
    if generator.kind == "vllm" and generator.device == "cpu":
        sizes["generator.kv_cache_gb"] = generator.kv_cache_gb
    for where, size in sizes.items():
        if size * GB > memory:
            what = f"{size:g} GB exceed this machine's memory, {memory / GB:.3g} GB"
            yield DesaError(what, where=where, hint="lower it, or use cluster=existing")


def decoding_problems(config: RunConfig) -> Iterator[DesaError]:
    """Decoding that texts cannot have any more: they were recorded."""
    given = config.decoding.given
    if given and config.generator.kind == RECORDED:
        what = f"{listed(sorted(given))} given, but recorded texts are already decoded"
        hint = "leave it out, or choose a generator that generates texts (generator=)"
        yield DesaError(what, where="decoding", hint=hint)


def _unknown_engines(config: RunConfig) -> Iterator[DesaError]:
    """Engines and readers that nobody offers, or whose name a plug-in has as well."""
    for group, where, name, own in engines_named(config):
        try:
            if name not in own:
                plugin(group, name, own, where)
            elif clash := shadowed(group, name, own):
                yield clash
        except DesaError as error:
            yield error
