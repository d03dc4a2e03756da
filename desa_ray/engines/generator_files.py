"""Where a generator's weights are: a folder, a package, the model home, or the hub at a pinned
revision.

Nothing here loads a model. An explicit `generator.path` is final. What is found is checked for
completeness, because an engine's own words for a missing shard come minutes later and name neither
the place nor the hint.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desa_ray.config import GeneratorConfig
from desa_ray.engines.model_files import sha256_file
from desa_ray.engines.smollm2 import GGUF_SHA256, PACKAGE, smollm2_folder
from desa_ray.errors import DesaError, listed

TOKENIZERS = ("tokenizer.json", "tokenizer.model")
TOKENIZER_CONFIG = "tokenizer_config.json"
INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
# `consolidated.safetensors`, which some repositories add, is the same weights a second time.
WANTED = (
    "config.json",
    "generation_config.json",
    "*token*",
    "vocab*",
    "merges.txt",
    "*.jinja",
    "model*.safetensors*",
)
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Converted:
    """A model that a package holds in another form: its hash, and what converts it under a model
    home.
    """

    sha256: str
    folder: Callable[[Path], Path]


CONVERTED: Mapping[str, Converted] = {PACKAGE: Converted(GGUF_SHA256, smollm2_folder)}


@dataclass(frozen=True)
class GeneratorFiles:
    """A complete model folder: `config.json`, a tokenizer, and safetensors weights of
    `weight_bytes` in `dtype`.
    """

    folder: Path
    weight_bytes: int
    dtype: str

    def bytes_as(self, dtype: str) -> int:
        """The weights' size in memory when loaded as `dtype`."""
        return self.weight_bytes * ITEM_BYTES[dtype] // ITEM_BYTES[self.dtype]


def find_generator(config: GeneratorConfig, model_home: Path) -> GeneratorFiles:
    """The folder of `config`'s model: `generator.path`, else its package, else `model_home/NAME`,
    else the hub.

    Raises:
        DesaError: nothing found, incomplete, or the hub lacks the revision; names every place
            looked in and the hint.
    """
    if config.path:
        return complete(Path(config.path), config)
    if config.package:
        return complete(CONVERTED[config.package].folder(model_home), config)
    if (model_home / config.name).is_dir():
        return complete(model_home / config.name, config)
    return complete(_from_hub(config, model_home), config)


def folder_hash(folder: Path) -> str:
    """Hex SHA-256 over the names and contents of everything in a model folder that decides its
    text.
    """
    digest = hashlib.sha256()
    for file in sorted({file for pattern in WANTED for file in folder.glob(pattern)}):
        digest.update(f"{file.name} {sha256_file(file)}\n".encode())
    return digest.hexdigest()


def complete(folder: Path, config: GeneratorConfig) -> GeneratorFiles:
    """`folder`, if it holds everything an engine loads.

    Raises:
        DesaError: names the files that are missing or unreadable.
    """
    hint = (
        "complete the folder, or point generator.path at another"
        if config.path
        else "delete the folder and rerun"
    )
    if not folder.is_dir():
        raise DesaError(
            "no such folder",
            where=str(folder),
            hint="set generator.path to the folder of the weights",
        )
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any((folder / name).is_file() for name in TOKENIZERS):
        missing.append(" or ".join(TOKENIZERS))
    try:
        shards = _shards(folder)
        missing += [name for name in shards if not (folder / name).is_file()]
        if missing:
            raise DesaError(f"the model lacks {listed(missing)}", where=str(folder), hint=hint)
        values = _json(folder / "config.json")
        dtype = str(values.get("dtype") or values.get("torch_dtype") or "float32")
        templated = (folder / "chat_template.jinja").is_file() or "chat_template" in _json(
            folder / TOKENIZER_CONFIG
        )
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError, OSError) as error:
        raise DesaError(
            f"the model's JSON files cannot be read: {error!r}", where=str(folder), hint=hint
        ) from None
    if not templated:
        hint = "use an instruction-tuned model, with its own tokenizer"
        raise DesaError("the model's tokenizer has no chat template", where=str(folder), hint=hint)
    size = sum((folder / name).stat().st_size for name in shards)
    return GeneratorFiles(folder, size, dtype if dtype in ITEM_BYTES else "float32")


def _shards(folder: Path) -> list[str]:
    if (folder / INDEX).is_file():
        names = sorted(set(_json(folder / INDEX)["weight_map"].values()))
        if outside := [name for name in names if Path(name).name != name]:
            raise ValueError(f"{INDEX} names {outside[0]!r}, which is not a file of the folder")
        return names
    return [WHOLE]


def _json(path: Path) -> dict[str, Any]:
    """An object from a file; empty where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _from_hub(config: GeneratorConfig, model_home: Path) -> Path:
    """The snapshot at the pinned revision, from the hub's cache or downloaded."""
    import huggingface_hub as hub
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, revision = config.model, config.revision
    assert repository is not None
    assert revision is not None
    try:
        return Path(
            hub.snapshot_download(repository, revision=revision, allow_patterns=list(WANTED))
        )
    except RevisionNotFoundError:
        what = f"{repository} has no revision {revision}" + (
            f": {config.revision_note}" if config.revision_note else ""
        )
        hint = (
            "set generator.revision to a commit of that repository, or generator.path to a folder"
            " of the weights"
        )
    except GatedRepoError:
        what, hint = f"{repository} is gated", "accept its terms on the hub and set HF_TOKEN"
    except RepositoryNotFoundError:
        what, hint = (
            f"the hub has no repository {repository}",
            "check generator.model; a private one needs HF_TOKEN",
        )
    except Exception as error:  # whatever the HTTP library raises: unreachable, refused, cut off
        reason = (
            "HF_HUB_OFFLINE is set"
            if hub.constants.HF_HUB_OFFLINE
            else f"the hub did not answer: {_line(error)}"
        )
        what = (
            f"no weights: no folder {model_home / config.name}, nothing in the hub's cache of"
            f" {repository} at "
        )
        what += f"{revision[:12]}, and {reason}"
        hint = (
            "put the model there, or set generator.path to its folder, or run once with network"
            " access"
        )
    raise DesaError(what, where=f"generator {config.name}", hint=hint)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
