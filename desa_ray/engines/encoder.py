"""The dense encoder as the rest of the platform sees it: its identity (for keys) and how to load
it.

`encoder_identity` reads files and no model, so a plan knows early that weights are missing;
`load_encoder` starts the engine, in the process that encodes. The query prefix is part of the text
that callers pass, never added in here.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from desa_ray.config import EncoderConfig
from desa_ray.engines.bert_files import check_weights, read_architecture
from desa_ray.engines.gpu_engines import CPU, LIBRARIES, ONNX, TORCH, gpu_engines
from desa_ray.engines.gpu_engines import VERSIONS as GPU_VERSIONS
from desa_ray.engines.model_files import find_model, graph_positions, model_width, sha256_file
from desa_ray.engines.plugged import (
    ENCODERS,
    GuardedEncoder,
    ShortenedEncoder,
    encoder_engine,
    plain_identity,
)
from desa_ray.engines.static_encoder import StaticEncoder, static_shape
from desa_ray.engines.tokenizer import load_tokenizer
from desa_ray.engines.vectors import VERSIONS
from desa_ray.errors import DesaError
from desa_ray.plugins import Identity
from desa_ray.types import sha256_json


class Encoder(Protocol):
    """An engine that turns texts into unit vectors.

    Attributes:
        dimension: length of a vector.
        block_size: texts must come in whole blocks counted from text 0 (the last may be shorter);
            1: as they like.
    """

    dimension: int
    block_size: int

    def encode(self, texts: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
        """float32 [len(texts), dimension], rows of length one in the order of `texts`; `names` are
        for errors.
        """
        ...


def encoder_identity(
    config: EncoderConfig, *, model_home: Path, engine: str | None = None
) -> dict[str, Any]:
    """Everything that decides an encoder's vectors, for artifact keys: contents and settings, no
    paths.

    Args:
        engine: `cpu`, whose vectors have no engine in their identity, or one of `gpu_engines`; None
            for the CPU, unless `encoder.engine=gpu`.

    Raises:
        DesaError: the engine or a file of the model is missing, or the settings do not fit the
            model.
    """
    if config.backend not in ENCODERS:
        identity = _plugged_identity(config, model_home)
    else:
        identity = _own_identity(config, model_home)
    if config.dimensions is not None:  # which most encoders have not: their keys stay
        identity["dimensions"] = config.dimensions
    if engine is None:
        engine = gpu_engines(config, model_home)[0] if config.engine == "gpu" else CPU
    if engine != CPU:
        identity["engine"] = engine
    if engine in GPU_VERSIONS:
        identity |= {"version": GPU_VERSIONS[engine], "block_size": config.block_size}
    return identity


def _plugged_identity(config: EncoderConfig, model_home: Path) -> dict[str, Any]:
    own, engine = encoder_engine(config.backend)
    found = plain_identity(own, own.called(engine.identity, config, model_home))
    return {
        **found,
        "backend": config.backend,
        "plugin": own.identity,
        "model": config.model,
        "revision": config.revision or "",
        "pooling": config.pooling,
        "max_tokens": config.max_tokens,
    }


def _own_identity(config: EncoderConfig, model_home: Path) -> dict[str, Any]:
    _require_engine(config)
    files = find_model(config, model_home)
    static = config.backend == "static"
    if static and config.engine == "gpu":
        what = "static vectors are made on CPUs alone"
        raise DesaError(what, where="encoder.engine", hint="set encoder.engine=cpu")
    width = static_shape(files.weights)[1] if static else None
    if config.dimensions is not None and config.dimensions > (width or model_width(files)):
        width = width or model_width(files)
        raise DesaError(
            f"dimensions={config.dimensions}, but {config.model} has {width}",
            where=f"encoder {config.name}",
            hint="lower encoder.dimensions",
        )
    identity: dict[str, Any] = {
        "backend": config.backend,
        "version": VERSIONS[config.backend],
        "model": config.model,
        "revision": config.revision or "",
        "weights_sha256": sha256_file(files.weights),
        "tokenizer_sha256": sha256_file(files.tokenizer),
        "pooling": config.pooling,
        "max_tokens": config.max_tokens,
        "normalisation": "l2",
    }
    if static:
        return identity
    if config.backend == "sentence_transformers":
        assert files.config is not None
        return identity | {
            "architecture_sha256": sha256_file(files.config),
            "block_size": config.block_size,
        }
    if files.config is not None:
        architecture = read_architecture(files.config)
        identity["architecture_sha256"] = sha256_json(asdict(architecture))
        positions = architecture.positions
    else:
        positions = graph_positions(files.weights)
    if positions is not None and config.max_tokens > positions // 8 * 8:
        raise DesaError(
            f"max_tokens={config.max_tokens}, but {config.model} has {positions} positions",
            where=f"encoder {config.name}",
            hint="lower encoder.max_tokens",
        )
    return identity


def check_encoder(config: EncoderConfig, *, model_home: Path) -> None:
    """Look into the files of an ONNX encoder before a run relies on them.

    Raises:
        DesaError: a tensor or the tokenizer is not what the model needs; names file and tensor.
    """
    if config.backend not in ("onnx", "static"):
        return
    files = find_model(config, model_home)
    if files.config is not None:
        check_weights(files.weights, read_architecture(files.config))
    load_tokenizer(files.tokenizer, config.max_tokens, special=config.backend != "static")


def load_encoder(
    config: EncoderConfig,
    *,
    threads: int,
    model_home: Path,
    batch_size: int = 8,
    plugin: Identity | None = None,
    engine: str = CPU,
) -> Encoder:
    """Start the engine of `config.backend`, or the one that encodes with its model on a GPU.

    Args:
        threads: CPU threads of the engine.
        model_home: folder for what is made once per model (converted graphs), and for models put
            there by hand.
        batch_size: texts a run of an ONNX graph; changes no bit.
        plugin: the identity of the plug-in that the plan was made with.
        engine: `cpu` or one of `gpu_engines`.

    Raises:
        DesaError: as `encoder_identity`, or a file of the model cannot be read.
    """
    if config.backend not in ENCODERS:
        own, plugged = encoder_engine(config.backend, plugin)
        settings = {"threads": threads, "model_home": model_home, "batch_size": batch_size}
        encoder: Encoder = GuardedEncoder(own, own.called(plugged.load, config, **settings))
    else:
        encoder = _load_own(config, threads, model_home, batch_size, engine)
    if config.dimensions is None:
        return encoder
    return ShortenedEncoder(encoder, config.dimensions, f"encoder {config.name}")


def _load_own(
    config: EncoderConfig, threads: int, model_home: Path, batch_size: int, engine: str
) -> Encoder:
    _require_engine(config, engine)
    files = find_model(config, model_home)
    if config.backend == "static":
        return StaticEncoder(config, files)
    if engine == TORCH or config.backend == "sentence_transformers":
        from desa_ray.engines.torch_encoder import TorchEncoder

        device = "cpu" if engine == CPU else "cuda"
        try:
            return TorchEncoder(config, files, threads=threads, device=device)
        except (
            OSError,
            ValueError,
            RuntimeError,
            LookupError,
            TypeError,
            AttributeError,
        ) as error:
            # Its many loaders
            reason = " ".join(str(error).split())[:300]
            what = f"cannot be loaded: {type(error).__name__}: {reason}"
            raise DesaError(
                what, where=str(files.weights.parent), hint="fetch the model again"
            ) from error
    from desa_ray.engines.onnx_encoder import OnnxCudaEncoder, OnnxEncoder

    kind = OnnxCudaEncoder if engine == ONNX else OnnxEncoder
    return kind(config, files, threads=threads, model_home=model_home, batch_size=batch_size)


def _require_engine(config: EncoderConfig, engine: str = CPU) -> None:
    if importlib.util.find_spec("sentence_transformers") is not None:
        return
    if engine == TORCH and config.backend != "sentence_transformers":
        raise DesaError(
            f"encoding on a GPU needs {LIBRARIES[TORCH]} and torch, which are not installed here",
            where=f"encoder {config.name}",
            hint="install requirements/gpu.txt there, or set encoder.engine=cpu",
        )
    if config.backend == "sentence_transformers":
        raise DesaError(
            "encoder.backend=sentence_transformers needs sentence-transformers and torch, which are"
            " not installed",
            where=f"encoder {config.name}",
            hint=(
                "install the gpu extra (desa-ray[gpu]), or set encoder.backend=onnx and"
                " encoder.path to a folder with model.safetensors"
            ),
        )
