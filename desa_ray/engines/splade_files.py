"""SPLADE's files and settings, without loading the model: where they are, how logits are pooled,
and everything that decides a weight, for keys (method.md section 4.3).
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from desa_ray.config import EncoderConfig, SparseConfig
from desa_ray.engines.bert_files import check_weights, read_architecture
from desa_ray.engines.model_files import ModelFiles, find_model, graph_positions, sha256_file
from desa_ray.engines.tokenizer import load_tokenizer
from desa_ray.errors import DesaError
from desa_ray.lines import shown_value
from desa_ray.types import sha256_json

VERSION = 1  # raised when other weights are computed from equal files
MAX_TOKENS = 256  # where no setting says otherwise
POOLING_FILE = "1_SpladePooling/config.json"  # of Sentence Transformers
MAX_POOLING_FILE = 1 << 20
CHOICES = {
    "pooling": ("max", "sum"),
    "activation": ("relu", "log1p_relu"),  # log(1 + .) of either follows
}
HINTS = {"encoder.": "sparse.", "encoder ": "sparse "}


def splade_files(config: SparseConfig, model_home: Path) -> ModelFiles:
    """The model's files, found as an encoder's are.

    Raises:
        DesaError: a file is missing; names the places looked in.
    """
    wanted = EncoderConfig(
        name=config.name,
        backend="onnx",
        model=config.model or config.name,
        revision=config.revision,
        package=config.package,
        weights=config.weights,
        path=config.path,
    )
    try:
        return find_model(wanted, model_home)
    except DesaError as error:
        told = [error.what, error.where, error.hint]
        for old, new in HINTS.items():
            told = [text.replace(old, new) for text in told]
        raise DesaError(told[0], where=told[1], hint=told[2]) from None


def tokens_of(config: SparseConfig) -> int:
    """How many tokens of a text are kept."""
    return config.max_tokens or MAX_TOKENS


def chosen(config: SparseConfig, files: ModelFiles) -> dict[str, str]:
    """`pooling` and `activation`: the settings', else the model's own, else max and relu.

    Raises:
        DesaError: the model's own configuration asks for another one.
    """
    own = _own_pooling(files.weights.parent / POOLING_FILE)
    given = {
        "pooling": config.pooling or own.get("pooling_strategy", "max"),
        "activation": config.activation or own.get("activation_function", "relu"),
    }
    for name, value in given.items():
        if value not in CHOICES[name]:
            what = f"{name} is {shown_value(value)}, expected one of {', '.join(CHOICES[name])}"
            hint = f"set sparse.{name}"
            raise DesaError(what, where=str(files.weights.parent / POOLING_FILE), hint=hint)
    return given


def _own_pooling(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            values = json.loads(file.read(MAX_POOLING_FILE))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        what = f"cannot be read: {' '.join(str(error).split())[:200]}"
        raise DesaError(what, where=str(path), hint="fetch it again") from None
    return values if isinstance(values, dict) else {}


def splade_identity(config: SparseConfig, model_home: Path) -> dict[str, Any]:
    """Everything that decides the weights of a text, for artifact keys.

    Raises:
        DesaError: a file of the model is missing or not what it must be.
    """
    files = splade_files(config, model_home)
    identity: dict[str, Any] = {
        "kind": "splade",
        "version": VERSION,
        "model": config.model or config.name,
        "revision": config.revision or "",
        "weights_sha256": sha256_file(files.weights),
        "tokenizer_sha256": sha256_file(files.tokenizer),
        "max_tokens": tokens_of(config),
        **chosen(config, files),
    }
    if files.config is not None:
        architecture = read_architecture(files.config)
        check_weights(files.weights, architecture, head=True)
        identity["architecture_sha256"] = sha256_json(asdict(architecture))
        positions = architecture.positions
    else:
        positions = graph_positions(files.weights)
    if positions is not None and tokens_of(config) > positions // 8 * 8:
        what = f"max_tokens={tokens_of(config)}, but the model has {positions} positions"
        raise DesaError(what, where=f"sparse {config.name}", hint="lower sparse.max_tokens")
    load_tokenizer(files.tokenizer, tokens_of(config))
    return identity
