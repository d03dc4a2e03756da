"""What the files of a BERT folder say, checked field by field and tensor by tensor before anything
loads them.

`config.json` must describe a plain BERT encoder, and the header of `model.safetensors` every tensor
of it in its shape; both are read here without any library of models, so that a plan knows early.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from desa_ray.errors import DesaError
from desa_ray.lines import shown, shown_value

MAX_CONFIG = 1 << 20  # bytes
MAX_HEADER = 16 << 20
MAX_NUMBER = 1 << 20  # of layers, heads, dimensions or positions
FLOATS = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
OTHER = "use encoder.backend=sentence_transformers for other architectures"
AGAIN = "fetch it again"
DECODER = "cls.predictions.decoder.weight"


@dataclass(frozen=True)
class Architecture:
    """The part of a BERT `config.json` that decides what its weights compute."""

    layers: int
    heads: int
    hidden: int
    positions: int
    layer_norm_epsilon: float


def read_architecture(path: Path) -> Architecture:
    """Read `config.json`; refuses what the ONNX conversion would compute wrongly.

    Raises:
        DesaError: unreadable, a field is missing or no possible number, or not a plain
            BERT encoder.
    """
    values = _object(_read(path, MAX_CONFIG), path)
    needed = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in needed.items():
        if values.get(key, value) != value:
            what = f"{key} is {shown_value(values[key])}, only {value!r} can be converted"
            raise DesaError(what, where=str(path), hint=OTHER)
    architecture = Architecture(
        layers=_whole(values, "num_hidden_layers", path),
        heads=_whole(values, "num_attention_heads", path),
        hidden=_whole(values, "hidden_size", path),
        positions=_whole(values, "max_position_embeddings", path),
        layer_norm_epsilon=_epsilon(values, path),
    )
    if architecture.hidden % architecture.heads:
        what = (
            f"hidden_size {architecture.hidden} is not a multiple of num_attention_heads"
            f" {architecture.heads}"
        )
        raise DesaError(what, where=str(path), hint=AGAIN)
    return architecture


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise DesaError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    if len(data) > limit:
        raise DesaError(f"is larger than {limit >> 20} MiB", where=str(path), hint=AGAIN)
    return data


def _object(data: bytes, path: Path, what: str = "a BERT configuration") -> dict[str, Any]:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DesaError(
            f"not {what}: {' '.join(str(error).split())[:200]}", where=str(path), hint=AGAIN
        ) from None
    if not isinstance(values, dict):
        raise DesaError(f"not {what} but {shown_value(values)}", where=str(path), hint=AGAIN)
    return values


def _whole(values: Mapping[str, Any], name: str, path: Path) -> int:
    value = values.get(name)
    if type(value) is not int or not 1 <= value <= MAX_NUMBER:
        raise _wrong(values, name, f"a whole number from 1 to {MAX_NUMBER}", path)
    return value


def _epsilon(values: Mapping[str, Any], path: Path) -> float:
    value = values.get("layer_norm_eps")
    if type(value) is not float or not 0 < value < 1:
        raise _wrong(values, "layer_norm_eps", "a number between 0 and 1", path)
    return value


def _wrong(values: Mapping[str, Any], name: str, wanted: str, path: Path) -> DesaError:
    found = f"{name} is {shown_value(values[name])}" if name in values else f"{name} is missing"
    return DesaError(
        f"not a BERT configuration: {found}, expected {wanted}", where=str(path), hint=OTHER
    )


@dataclass(frozen=True)
class Tensor:
    """One tensor of a safetensors file: where its numbers are, and how many of which kind."""

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, as `plain_name` gives it and its header describes
    them.

    Raises:
        DesaError: no safetensors file: names the field or tensor that is wrong.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER):
                what = f"not a readable safetensors file: its header cannot have {length} bytes"
                raise DesaError(what, where=str(path), hint=AGAIN)
            entries = _object(file.read(length), path, "a readable safetensors file")
    except OSError as error:
        raise DesaError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    tensors: dict[str, Tensor] = {}
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        tensor = _tensor(entry, 8 + length, size)
        if tensor is None:
            what = f"not a readable safetensors file: tensor {shown(name)} is {shown_value(entry)}"
            raise DesaError(what, where=str(path), hint=AGAIN)
        plain = plain_name(name)
        if plain in tensors:
            raise DesaError(f"tensor {shown(plain)} is listed twice", where=str(path), hint=AGAIN)
        tensors[plain] = tensor
    return tensors


def plain_name(name: str) -> str:
    """A tensor's name without a leading `bert.`, and without the names that weights from TensorFlow
    have for the scale and bias of a norm.
    """
    plain = name.removeprefix("bert.")
    for old, new in (("gamma", "weight"), ("beta", "bias")):
        if plain.endswith(f"LayerNorm.{old}"):
            plain = plain.removesuffix(old) + new
    return plain


def _tensor(entry: Any, begin: int, size: int) -> Tensor | None:
    """A header's entry; None for an impossible one. `begin`: where the numbers begin in a
    file of `size`.
    """
    if not isinstance(entry, dict):
        return None
    kind, shape, offsets = (
        entry.get("dtype"),
        _sizes(entry.get("shape")),
        _sizes(entry.get("data_offsets")),
    )
    if not isinstance(kind, str) or shape is None or offsets is None or len(offsets) != 2:
        return None
    start, stop = begin + offsets[0], begin + offsets[1]
    told = (
        stop - start if kind not in FLOATS else np.dtype(FLOATS[kind]).itemsize * math.prod(shape)
    )
    return (
        Tensor(kind, shape, start, stop) if start <= stop <= size and stop - start == told else None
    )


def _sizes(value: Any) -> tuple[int, ...] | None:
    fits = isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
    return tuple(value) if fits else None


def check_weights(path: Path, architecture: Architecture, *, head: bool = False) -> None:
    """Every tensor of the architecture is there, in its shape, and finite; read once per process
    while the file lasts.

    Args:
        head: with the head of a masked language model.

    Raises:
        DesaError: names the tensor that is missing, misshapen or not finite.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise DesaError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    _checked(path, architecture, head, (found.st_size, found.st_mtime_ns, found.st_ino))


@lru_cache(maxsize=64)
def _checked(path: Path, architecture: Architecture, head: bool, _: tuple[int, int, int]) -> None:
    tensors = read_header(path)
    shapes = [*_shapes(tensors, architecture)]
    if head:
        shapes += _head_shapes(tensors, architecture.hidden)
    for name, shape in shapes:
        tensor = tensors.get(name)
        if tensor is None:
            hint = "check that it is a BERT encoder and that config.json belongs to it"
            raise DesaError(f"lacks the tensor {name!r}", where=str(path), hint=hint)
        if tensor.kind not in FLOATS:
            what = (
                f"tensor {name!r} is of type {shown(tensor.kind)[1:-1]},"
                f" expected one of {', '.join(FLOATS)}"
            )
            raise DesaError(what, where=str(path), hint="save the weights as float32")
        if not _fits(tensor.shape, shape, at_least=name == "embeddings.position_embeddings.weight"):
            expected = ", ".join(str(n or "any") for n in shape)
            what = (
                f"tensor {name!r} has the shape {list(tensor.shape)}, but config.json"
                f" says [{expected}]"
            )
            raise DesaError(
                what, where=str(path), hint="use the config.json and the weights of the same model"
            )
        if not _finite(path, tensor):
            what = f"tensor {name!r} contains a number that is not finite"
            raise DesaError(what, where=str(path), hint=AGAIN)


def _fits(found: tuple[int, ...], wanted: tuple[int, ...], *, at_least: bool) -> bool:
    """Whether a shape is the expected one; a 0 stands for any length, the first may be more
    with `at_least`.
    """
    if len(found) != len(wanted) or (at_least and found[0] < wanted[0]):
        return False
    pairs = list(zip(found, wanted, strict=True))[at_least:]
    return all(have > 0 if want == 0 else have == want for have, want in pairs)


def _shapes(
    tensors: Mapping[str, Tensor], architecture: Architecture
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor that the conversion reads, 0 for a length that is the file's
    own affair.
    """
    hidden = architecture.hidden
    yield "embeddings.word_embeddings.weight", (0, hidden)
    yield "embeddings.position_embeddings.weight", (architecture.positions, hidden)
    yield "embeddings.token_type_embeddings.weight", (0, hidden)
    yield from _norm("embeddings.LayerNorm", hidden)
    for number in range(architecture.layers):
        layer = f"encoder.layer.{number}"
        inner = tensors.get(f"{layer}.intermediate.dense.weight")
        wide = inner.shape[0] if inner is not None and inner.shape else 0
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            yield from _linear(f"{layer}.attention.{part}", hidden, hidden)
        yield from _norm(f"{layer}.attention.output.LayerNorm", hidden)
        yield from _linear(f"{layer}.intermediate.dense", wide, hidden)
        yield from _linear(f"{layer}.output.dense", hidden, wide)
        yield from _norm(f"{layer}.output.LayerNorm", hidden)


def _head_shapes(
    tensors: Mapping[str, Tensor], hidden: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """As `_shapes`, of the head; its matrix is that of the embeddings where it has none."""
    words = tensors.get("embeddings.word_embeddings.weight")
    size = words.shape[0] if words is not None and words.shape else 0
    yield from _linear("cls.predictions.transform.dense", hidden, hidden)
    yield from _norm("cls.predictions.transform.LayerNorm", hidden)
    yield "cls.predictions.bias", (size,)
    if DECODER in tensors:
        yield DECODER, (size, hidden)


def _linear(name: str, out: int, into: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (out, into)
    yield f"{name}.bias", (out,)


def _norm(name: str, size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (size,)
    yield f"{name}.bias", (size,)


def _finite(path: Path, tensor: Tensor) -> bool:
    kind = np.dtype(FLOATS[tensor.kind]).newbyteorder("<")
    with path.open("rb") as file:
        numbers = (
            np.memmap(file, kind, "r", tensor.start, tensor.shape)
            if math.prod(tensor.shape)
            else np.empty(0)
        )
        return bool(np.isfinite(numbers).all())
