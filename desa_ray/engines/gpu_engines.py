"""Engines that encode on a GPU: which ones an encoder can use, and which libraries for GPUs are
installed here.

A GPU's kernels are not batch-invariant: the bits of a vector may change with the texts beside it.
So each of these engines encodes whole blocks of `encoder.block_size` texts by number, and its name
and the block size are part of the identity of its vectors.
"""

import importlib.metadata
import importlib.util
from pathlib import Path

from desa_ray.config import EncoderConfig
from desa_ray.engines.model_files import find_model
from desa_ray.engines.plugged import ENCODERS

CPU, TORCH, ONNX, OWN = "cpu", "torch_cuda", "onnx_cuda", "gpu"  # OWN: a plug-in's, on a GPU
LIBRARIES = {TORCH: "sentence-transformers", ONNX: "onnxruntime-gpu", OWN: ""}
VERSIONS = {TORCH: 1, ONNX: 1}  # raise one when that engine computes other bits from equal files
SCORERS = {"torch": "torch", "faiss_gpu": "faiss-gpu"}  # `encoder.scorer` -> its library


def gpu_engines(config: EncoderConfig, model_home: Path) -> tuple[str, ...]:
    """The engines that could encode with this model on a GPU, the preferred one first; none for
    static vectors.

    Raises:
        DesaError: a file of the model is missing.
    """
    if config.backend not in ENCODERS:
        return (OWN,)
    if config.backend == "sentence_transformers":
        return (TORCH,)
    if config.backend == "static":
        return ()
    ready_made = find_model(config, model_home).config is None
    return (ONNX,) if ready_made else (TORCH, ONNX)


def gpu_libraries() -> frozenset[str]:
    """Those of LIBRARIES and SCORERS that are installed here and made for GPUs; imports none."""
    found = {""}
    torch = _version("torch")
    if torch and "+cpu" not in torch:
        found.add("torch")
        if importlib.util.find_spec("sentence_transformers") is not None:
            found.add("sentence-transformers")
    for name in ("onnxruntime-gpu", "faiss-gpu"):
        if _version(name):
            found.add(name)
    return frozenset(found)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
