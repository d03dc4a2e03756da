"""Live generators by configuration: what is part of their keys, and how one is loaded.

Both kinds are one `ChatEngine` to everybody else. The identity holds what changes the text by
design; how the engine runs (devices, shares, batches, addresses) stays out of it and is in the
manifest instead.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import ChatEngine
from desa_ray.engines.engine_group import end_orphans, lead_group, notes_folder
from desa_ray.engines.generator_files import CONVERTED, complete, find_generator, folder_hash
from desa_ray.engines.live_generator import PROTOCOL
from desa_ray.engines.openai_generator import OpenAIGenerator
from desa_ray.engines.plugged import GuardedGenerator, generator_engine, plain_identity
from desa_ray.engines.vllm_generator import VllmGenerator
from desa_ray.errors import DesaError, Problems, listed
from desa_ray.plugins import Identity


def check_generator(config: GeneratorConfig) -> None:
    """Raises `Problems` where a setting that the generator's kind needs is missing or unknown."""
    needed = {"vllm": ("model",), "openai": ("model", "base_url")}.get(config.kind, ())
    problems = [
        DesaError(
            "not set", where=f"generator.{name}", hint=f"the generator {config.name} needs it"
        )
        for name in needed
        if getattr(config, name) is None
    ]
    if config.kind == "vllm" and not (config.revision or config.path or config.package):
        hint = "set it to a commit of the model's repository, or generator.path to a folder"
        problems.append(DesaError("not set", where="generator.revision", hint=hint))
    if config.package and config.package not in CONVERTED:
        what = f"the package {config.package!r} contains no known model"
        problems.append(
            DesaError(what, where="generator.package", hint=f"choose {listed(CONVERTED)}")
        )
    if problems:
        raise Problems(problems)


def generator_identity(config: GeneratorConfig) -> dict[str, Any]:
    """What enters a key in addition to prompt, data set and draw; for live kinds only.

    Needs no engine. With `generator.path` it reads and hashes the weights.

    Raises:
        DesaError: settings are missing, or `generator.path` does not hold a complete model.
    """
    check_generator(config)
    common = {"kind": config.kind, "protocol": PROTOCOL, "model": config.model}
    if config.kind in _IDENTITIES:
        return common | _IDENTITIES[config.kind](config)
    own, engine = generator_engine(config.kind)
    found = plain_identity(own, own.called(engine.identity, config))
    return {**found, **common, "revision": config.revision, "plugin": own.identity}


def load_generator(
    config: GeneratorConfig,
    *,
    model_home: Path,
    threads: int = 1,
    plugin: Identity | None = None,
) -> ChatEngine:
    """Loads a live generator. A vLLM engine makes its process the leader of a process group: give
    it one of its own.

    Args:
        config: of a live kind.
        model_home: where models lie and are converted to.
        threads: CPU threads of an engine that may use several.
        plugin: the identity of the plug-in that the plan was made with.

    Raises:
        DesaError: it does not start; one wording per cause.
    """
    check_generator(config)
    if config.kind in _LOADERS:
        return _LOADERS[config.kind](config, model_home, threads)
    own, engine = generator_engine(config.kind, plugin)
    loaded = own.called(engine.load, config, model_home=model_home, threads=threads)
    return GuardedGenerator(own, loaded)


def _weights(config: GeneratorConfig) -> dict[str, Any]:
    if config.path:
        return {"weights": folder_hash(complete(Path(config.path), config).folder)}
    if config.package:
        return {"weights": CONVERTED[config.package].sha256}
    return {"revision": config.revision}


def _load_vllm(config: GeneratorConfig, model_home: Path, threads: int) -> ChatEngine:
    files = find_generator(config, model_home)
    notes = notes_folder(model_home.parent)
    end_orphans(notes)
    lead_group(notes)
    weights = _weights(config)
    revision = weights.get("revision") or f"sha256:{weights['weights']}"
    assert config.model is not None
    return VllmGenerator(config, files, model=config.model, revision=revision, threads=threads)


_IDENTITIES: Mapping[str, Callable[[GeneratorConfig], dict[str, Any]]] = {
    "vllm": lambda config: {**_weights(config), "dtype": config.dtype},
    "openai": lambda config: {
        "revision": config.revision,
        "extended_sampling": config.extended_sampling,
        **({"seed_bits": config.seed_bits} if config.seed_bits != 63 else {}),
    },
}
_LOADERS: Mapping[str, Callable[[GeneratorConfig, Path, int], ChatEngine]] = {
    "vllm": _load_vllm,
    "openai": lambda config, model_home, threads: OpenAIGenerator(config),
}
