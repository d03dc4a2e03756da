"""Live generators by configuration: what enters their keys, and how one is loaded.

Both kinds are one `ChatEngine` to everybody else. The identity holds what changes the text by design; how the engine
runs (devices, shares, batches, addresses) stays out of it and is in the manifest instead.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import ChatEngine
from desa_ray.engines.engine_group import end_orphans, lead_group
from desa_ray.engines.generator_files import CONVERTED, complete, find_generator, folder_hash
from desa_ray.engines.live_generator import PROTOCOL
from desa_ray.engines.openai_generator import OpenAIGenerator
from desa_ray.engines.smollm2 import GGUF_SHA256, PACKAGE
from desa_ray.engines.vllm_generator import VllmGenerator
from desa_ray.errors import DesaError, Problems, listed

PACKAGE_HASHES: Mapping[str, str] = {PACKAGE: GGUF_SHA256}


def check_generator(config: GeneratorConfig) -> None:
    """Raises `Problems`: a setting that the configuration's kind needs is not there."""
    needed = {"recorded": (), "vllm": ("model",), "openai": ("model", "base_url")}[config.kind]
    problems = [
        DesaError(f"generator {config.name} needs it", where=f"generator.{name}", mend="set it")
        for name in needed
        if getattr(config, name) is None
    ]
    if config.kind == "vllm" and not (config.revision or config.path or config.package):
        mend = "set it to a commit, or generator.path to a folder"
        problems.append(DesaError("the hub's model needs a pinned revision", where="generator.revision", mend=mend))
    if config.package and config.package not in PACKAGE_HASHES:
        what = f"no model is known in the package {config.package!r}"
        problems.append(DesaError(what, where="generator.package", mend=f"choose {listed(PACKAGE_HASHES)}"))
    if problems:
        raise Problems(problems)


def generator_identity(config: GeneratorConfig) -> dict[str, Any]:
    """What enters a key beside prompt, data set and draw. Needs no engine; with `generator.path` it reads the weights.

    Raises:
        DesaError: settings are missing, or `generator.path` does not hold a complete model.
    """
    check_generator(config)
    identity = {"kind": config.kind, "protocol": PROTOCOL, "model": config.model}
    return identity | IDENTITIES[config.kind](config)


def _vllm_identity(config: GeneratorConfig) -> dict[str, Any]:
    if config.path:
        weights = {"weights": folder_hash(complete(Path(config.path), config).folder)}
    elif config.package:
        weights = {"weights": PACKAGE_HASHES[config.package]}
    else:
        weights = {"revision": config.revision}
    return {**weights, "dtype": config.dtype}


def _openai_identity(config: GeneratorConfig) -> dict[str, Any]:
    return {"revision": config.revision, "extended_sampling": config.extended_sampling}
