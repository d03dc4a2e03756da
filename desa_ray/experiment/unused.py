"""Settings that a configuration does not use: those of another rule, engine, reader or channel than
it has, or of a part that a better one replaces.

They enter no result. A value that somebody gave for one of them is refused where no cell of the
sweep uses it, and cells that differ in nothing else are one cell.
"""

from collections.abc import Iterator
from dataclasses import fields
from itertools import accumulate
from typing import NamedTuple

from desa_ray.config import DatasetConfig, GeneratorConfig, MethodConfig, RunConfig, SparseConfig
from desa_ray.core.rules.kinds import without_effect
from desa_ray.data.load import READERS
from desa_ray.engines.plugged import GENERATORS
from desa_ray.errors import DesaError, listed
from desa_ray.experiment.fusing import fused_methods, with_rule
from desa_ray.experiment.methods import (
    RECORDED,
    REFERENCES_PROMPT,
    has_reference,
    needs_text,
    prompts,
)
from desa_ray.experiment.settings import flat_settings

SHARED = ("name", "kind", "map", "revision_note")  # of every generator
ASKS = ("concurrency", "request_timeout_s", "max_attempts", "backoff_s", "max_backoff_s")
OF_GENERATORS = {  # kind -> the settings that mean something to it
    RECORDED: ("folder", "strict"),
    "vllm": (
        *("model", "revision", "package", "path", "dtype", "device"),
        *("batch_invariant", "tensor_parallel_size", "gpu_memory_utilization", "kv_cache_gb"),
        *("max_num_seqs", "max_model_len"),
    ),
    "openai": (
        *("model", "revision", "base_url", "api_key_env", "extended_sampling", "seed_bits"),
        *ASKS,
    ),
}
ON_DEVICE = {"cuda": ("kv_cache_gb",), "cpu": ("tensor_parallel_size", "gpu_memory_utilization")}
OF_READERS = {  # kind -> the settings that other kinds alone have
    "demo": ("path", "split", "url", "ir_datasets_id"),
    "beir_folder": ("url", "ir_datasets_id"),
    "beir": ("ir_datasets_id",),
    "msmarco": ("url", "ir_datasets_id"),
    "tables": ("url", "ir_datasets_id"),
    "ir_datasets": ("path", "split", "url"),
}


class Unused(NamedTuple):
    """A setting, or a group of settings, that a configuration does not use.

    Attributes:
        name: dotted; it stands for all settings below it.
        why: in words that follow `has no effect: `.
    """

    name: str
    why: str
    hint: str = "leave it out"

    def covers(self, name: str) -> bool:
        """Whether it is this setting, or one below it."""
        return name == self.name or name.startswith(f"{self.name}.")


def unused(config: RunConfig) -> list[Unused]:
    """What a configuration does not use; nothing where it has mistakes, which others report."""
    try:
        method = with_rule(config.method, config.fusion)
        return [
            *_of_fusion(config, method),
            *_of_channels(config, method),
            *_of_texts(config, method),
            *_of_dataset(config.dataset),
        ]
    except (DesaError, LookupError):  # no such rule, operator or prompt
        return []


def used_settings(config: RunConfig) -> tuple[tuple[str, str], ...]:
    """(name, value) of every setting that a cell uses; cells for which they are equal are one."""
    names = {own.name for own in unused(config)}
    found: list[tuple[str, str]] = []
    for name, value in flat_settings(config):
        above = accumulate(name.split("."), "{}.{}".format)
        if names.isdisjoint(above):
            found.append((name, value))
    return tuple(found)


def _of_fusion(config: RunConfig, method: MethodConfig) -> Iterator[Unused]:
    rules = [with_rule(own, config.fusion).fusion for own in fused_methods(config)]
    for name, why in without_effect(method.fusion).items():
        if all(name in without_effect(rule) for rule in rules):
            yield Unused(f"fusion.{name}", why)
    if config.method.prefix is not None and not has_reference(config.method):
        why = f"method {method.name} has a prefix of its own, {config.method.prefix}"
        hint = f"use method.prefix={config.fusion.prefix or 'N'}"
        yield Unused("fusion.prefix", why, hint)
    kinds = {channel.kind for channel in method.channels}
    if config.fusion.weights and not kinds & {*config.fusion.weights}:
        why = f"method {method.name} has no {' or '.join(config.fusion.weights)} channel"
        yield Unused("fusion.weights", why)


def _of_channels(config: RunConfig, method: MethodConfig) -> Iterator[Unused]:
    kinds = {channel.kind for channel in method.channels}
    if "dense" not in kinds:
        yield Unused("encoder", f"method {method.name} has no dense channel")
    if "sparse" not in kinds:
        for setting in fields(SparseConfig):
            if setting.name != "java_home":  # every run checks and records its Java
                why = f"method {method.name} has no sparse channel"
                yield Unused(f"sparse.{setting.name}", why)
    encoder = config.encoder
    if encoder.path:
        yield Unused("encoder.package", f"the model comes from encoder.path={encoder.path}")
    if encoder.backend == "onnx" and encoder.engine == "cpu":
        yield Unused("encoder.block_size", "vectors of backend=onnx do not depend on blocks")
    yield from _of_sparse(config.sparse, any(map(needs_text, method.channels)))


def _of_sparse(sparse: SparseConfig, expanded: bool) -> Iterator[Unused]:
    if sparse.kind == "bm25":
        return
    for name in ("k1", "b"):
        yield Unused(f"sparse.{name}", f"sparse={sparse.kind} has no {name}", "use sparse=bm25")
    if sparse.tokenizer:
        for name in ("analyzer", "stemmer", "stopwords", "heap"):
            yield Unused(f"sparse.{name}", f"terms come from sparse.tokenizer={sparse.tokenizer}")
    if not expanded:
        yield Unused("sparse.combine", "the method's sparse query is the query alone")


def _of_texts(config: RunConfig, method: MethodConfig) -> Iterator[Unused]:
    named, generator = prompts(method), config.generator
    if not named:
        why = f"method {method.name} uses no generated text"
        for name in ("generator", "n_refs", "prompt", "decoding"):
            yield Unused(name, why)
        if config.draws != 1:
            yield Unused("draws", f"{why}, so it has one draw")
        return
    if REFERENCES_PROMPT not in named:
        why = f"method {method.name} uses texts of {listed(named)}, not of {REFERENCES_PROMPT}"
        yield Unused("n_refs", why)
    if generator.map and not {*generator.map} & {*named}:
        yield Unused("generator.map", f"method {method.name} uses texts of {listed(named)}")
    yield from _of_generator(generator)


def _of_generator(generator: GeneratorConfig) -> Iterator[Unused]:
    if generator.kind not in OF_GENERATORS:
        return
    own = (*SHARED, *OF_GENERATORS[generator.kind])
    for setting in fields(GeneratorConfig):
        if setting.name not in own:
            why = f"generator {generator.name} is of kind {generator.kind}"
            hint = "leave it out, or choose another with generator="
            yield Unused(f"generator.{setting.name}", why, hint)
    if generator.kind == "vllm":
        for name in ON_DEVICE[generator.device]:
            yield Unused(f"generator.{name}", f"generator.device is {generator.device}")
        if generator.path and generator.package:
            yield Unused("generator.package", f"the model comes from {generator.path}")


def _of_dataset(dataset: DatasetConfig) -> Iterator[Unused]:
    for name in OF_READERS.get(dataset.kind, ()):
        why = f"data set {dataset.name} is of kind {dataset.kind}"
        hint = "leave it out, or use dataset=beir_folder"
        yield Unused(f"dataset.{name}", why, hint)
    if dataset.kind == "beir" and dataset.path is not None:
        yield Unused("dataset.url", f"the files come from dataset.path={dataset.path}")


assert {*OF_READERS} == {*READERS}, "every reader says what it ignores"
assert {*OF_GENERATORS} == {RECORDED, *GENERATORS}, "so does every generator"
assert {own.name for own in fields(GeneratorConfig)} == {*SHARED}.union(*OF_GENERATORS.values())
