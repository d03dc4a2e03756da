"""Encoders and generators of plug-ins: what entry points offer, and how their results are
checked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from desa_ray.config import EncoderConfig, GeneratorConfig
from desa_ray.engines.chat import ChatEngine, Output, Request
from desa_ray.engines.vectors import check_unit_rows
from desa_ray.errors import DesaError
from desa_ray.plugins import Identity, Plugin, plugin

ENCODERS: tuple[str, ...] = ("onnx", "sentence_transformers", "static")
GENERATORS: tuple[str, ...] = ("recorded", "vllm", "openai")
CORRECT = "correct the plug-in"


@dataclass(frozen=True)
class EncoderEngine:
    """What an entry point of `desa_ray.encoders` names; `encoder.backend` chooses it.

    Attributes:
        identity: takes the configuration and the folder of models, and returns everything that
            decides a bit of the vectors in addition to the model's name, revision, pooling and
            length, as plain values: hashes of weights, say. If vectors depend on the other texts of
            a batch, it has `block_size`.
        load: takes the configuration, `threads`, `model_home` and `batch_size`, and returns an
            `Encoder` (`desa_ray.engines.encoder`).
    """

    identity: Callable[[EncoderConfig, Path], Mapping[str, str | int]]
    load: Callable[..., Any]


@dataclass(frozen=True)
class GeneratorEngine:
    """What an entry point of `desa_ray.generators` names; `generator.kind` chooses it.

    Attributes:
        identity: takes the configuration and returns what changes the text in addition to the
            model's name.
        load: takes the configuration, `model_home` and `threads`, and returns a `ChatEngine`
            (`desa_ray.engines.chat`).
        isolated: it must have a process of its own.
        gpus: of one engine.
    """

    identity: Callable[[GeneratorConfig], Mapping[str, str | int]]
    load: Callable[..., ChatEngine]
    isolated: bool = False
    gpus: float = 0


def encoder_engine(name: str, expected: Identity | None = None) -> tuple[Plugin, EncoderEngine]:
    """The engine that `encoder.backend` names.

    Args:
        expected: the plug-in's identity in the plan; None where this is the plan.

    Raises:
        DesaError: there is none such, or it is not what it should be.
    """
    own = plugin("encoders", name, dict.fromkeys(ENCODERS), "encoder.backend")
    return own, _loaded(own, EncoderEngine, expected)


def generator_engine(name: str, expected: Identity | None = None) -> tuple[Plugin, GeneratorEngine]:
    """The engine that `generator.kind` names; arguments and errors as for `encoder_engine`."""
    own = plugin("generators", name, dict.fromkeys(GENERATORS), "generator.kind")
    return own, _loaded(own, GeneratorEngine, expected)


def _loaded(own: Plugin, kind: type[Any], expected: Identity | None) -> Any:
    loaded = own.load(expected)
    if not isinstance(loaded, kind):
        raise own.wrong(f"is a {type(loaded).__name__}, expected {kind.__name__}", CORRECT)
    return loaded


def plain_identity(own: Plugin, found: Any) -> dict[str, str | int]:
    """What a plug-in says of its engine, as it enters keys."""
    if not isinstance(found, Mapping) or not all(
        isinstance(name, str) and type(value) in (str, int) for name, value in found.items()
    ):
        raise own.wrong(
            "its identity is not a mapping of names to texts and whole numbers", CORRECT
        )
    return dict(found)


class GuardedEncoder:
    """An encoder of a plug-in whose vectors are checked."""

    def __init__(self, own: Plugin, encoder: Any):
        self._own, self._encoder = own, encoder
        try:
            self.dimension = int(encoder.dimension)
            self.block_size = int(getattr(encoder, "block_size", 1))
        except (AttributeError, TypeError, ValueError):
            raise own.wrong("its encoder has no dimension", CORRECT) from None

    def encode(self, texts: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
        """float32 [len(texts), dimension], rows of length one."""
        found = self._own.called(self._encoder.encode, list(texts), names)
        try:
            vectors_ND = np.asarray(found)
            check_unit_rows(vectors_ND, len(texts), self.dimension, names=names)
        except (DesaError, ValueError) as error:
            what = error.what if isinstance(error, DesaError) else "did not return an array"
            raise self._own.wrong(what, CORRECT) from None
        return vectors_ND


class GuardedGenerator:
    """A generator of a plug-in whose outputs are checked."""

    def __init__(self, own: Plugin, engine: ChatEngine):
        self._own, self._engine = own, engine

    @property
    def model(self) -> str:
        """What really answers."""
        return self._engine.model

    @property
    def revision(self) -> str | None:
        """Its revision, where it has one."""
        return self._engine.revision

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """One output per request, in order."""
        found = self._own.called(self._engine.generate, requests)
        outputs = list(found) if isinstance(found, list | tuple) else []
        if len(outputs) != len(requests) or not all(isinstance(one, Output) for one in outputs):
            what = f"did not return a list of {len(requests)} outputs"
            raise self._own.wrong(what, CORRECT)
        return outputs


class ShortenedEncoder:
    """The first dimensions of an encoder's vectors, at length one: Matryoshka embeddings.

    Source: Kusupati et al. 2022, Matryoshka Representation Learning, section 3.
    """

    def __init__(self, encoder: Any, dimensions: int, where: str):
        if dimensions > encoder.dimension:
            raise DesaError(
                f"dimensions={dimensions}, but the model has {encoder.dimension}",
                where=where,
                hint="lower encoder.dimensions",
            )
        self._encoder, self.dimension = encoder, dimensions
        self.block_size: int = encoder.block_size

    def encode(self, texts: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
        """float32 [len(texts), dimensions], rows of length one; normalised in float64."""
        first_ND = self._encoder.encode(texts, names)[:, : self.dimension].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # found below, by name
            first_ND /= np.sqrt((first_ND * first_ND).sum(axis=1, keepdims=True))
        vectors_ND = first_ND.astype(np.float32)
        check_unit_rows(vectors_ND, len(texts), self.dimension, names=names)
        return vectors_ND
