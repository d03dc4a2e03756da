"""How many requests vLLM may process at once, from the memory that the weights leave free."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from desa_ray.config import GeneratorConfig
from desa_ray.engines.engine_group import GIB, await_memory
from desa_ray.engines.generator_files import ITEM_BYTES, GeneratorFiles
from desa_ray.errors import DesaError

MOST = 1024  # vLLM's own default on the largest GPUs
UNKNOWN = 64  # where a model's files do not say how large its cache is
BESIDE = 0.1  # share of the memory that activations take


def cache_bytes_per_token(folder: Path, dtype: str) -> int | None:
    """Bytes that one token takes in the cache of keys and values; None where `config.json` does not
    say: 2 x layers x heads of keys and values x width of a head x bytes of a number.
    """
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        text: dict[str, Any] = config.get("text_config", config)
        heads = int(text["num_attention_heads"])
        width = int(text.get("head_dim") or text["hidden_size"] // heads)
        shared = int(text.get("num_key_value_heads") or heads)
        return 2 * int(text["num_hidden_layers"]) * shared * width * ITEM_BYTES[dtype]
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None


def requests_at_once(
    config: GeneratorConfig, files: GeneratorFiles, gpus: Sequence[tuple[int, int]]
) -> int:
    """`generator.max_num_seqs`, or as many requests of full length as the memory holds, so that
    none is ever put back.

    Args:
        gpus: free and total bytes of each GPU of the engine; none on a CPU.
    """
    if config.max_num_seqs is not None:
        return config.max_num_seqs
    per_token = cache_bytes_per_token(files.folder, config.dtype)
    if not per_token:
        return UNKNOWN
    if gpus:
        share = config.gpu_memory_utilization - BESIDE * config.gpu_memory_utilization
        cache = sum(total for _, total in gpus) * share - files.bytes_as(config.dtype)
    else:
        cache = config.kv_cache_gb * GIB
    return max(1, min(MOST, int(cache // (per_token * config.max_model_len))))


def await_gpus(config: GeneratorConfig, files: GeneratorFiles) -> list[tuple[int, int]]:
    """Free and total bytes of the GPUs of an engine, once its share is free.

    Raises:
        DesaError: it does not become free, or is too small for the weights.
    """

    def used() -> list[tuple[int, int]]:
        return _gpu_memory()[: config.tensor_parallel_size]

    await_memory(used, config.gpu_memory_utilization)
    found = used()
    budget = sum(total for _, total in found) * config.gpu_memory_utilization
    if (weights := files.bytes_as(config.dtype)) > budget:
        raise DesaError(
            f"too little GPU memory: the weights take {weights / GIB:.1f} GiB, the share is"
            f" {budget / GIB:.1f} GiB",
            where=f"generator {config.name}",
            hint="raise generator.tensor_parallel_size or generator.gpu_memory_utilization",
        )
    return found


def _gpu_memory() -> list[tuple[int, int]]:
    """(free, total) bytes of the GPUs this process may use; read from the driver, so that CUDA need
    not start here.
    """
    from vllm.third_party import pynvml  # pyright: ignore[reportMissingImports]

    pynvml.nvmlInit()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = (
        range(pynvml.nvmlDeviceGetCount())
        if visible is None
        else [name for name in visible.split(",") if name]
    )
    memory = []
    for name in names:
        by_number = str(name).isdigit()
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex if by_number else pynvml.nvmlDeviceGetHandleByUUID
        )(int(name) if by_number else str(name))
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        memory.append((int(info.free), int(info.total)))
    return memory
