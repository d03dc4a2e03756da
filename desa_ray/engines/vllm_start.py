"""Starting vLLM: its environment, and one clear error for each way in which it does not start.

vLLM reads environment variables when it is imported and raises whatever its parts raise, often from
deep inside. What can be known beforehand is checked beforehand; the rest is recognised by the words
that vLLM, torch and CUDA use.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desa_ray.config import GeneratorConfig
from desa_ray.engines.engine_group import GIB
from desa_ray.engines.generator_files import GeneratorFiles
from desa_ray.engines.vllm_memory import await_gpus, requests_at_once
from desa_ray.errors import DesaError
from desa_ray.memory import available

OVERHEAD = GIB // 2  # what torch, vLLM and its buffers take beside weights and cache


@dataclass(frozen=True)
class Cause:
    """A way to fail: the words it is known by, what to say, how to fix it."""

    words: str
    what: str
    hint: str


CAUSES = (
    Cause(
        r"out of memory|less than desired (GPU|CPU) memory|No available memory for the cache|cache"
        r" is needed, which is "
        r"larger|Not enough memory|can't allocate memory|free memory.*KVCACHE",
        "too little memory for the model and its cache",
        "free memory, lower generator.max_model_len or generator.max_num_seqs, or change "
        "generator.gpu_memory_utilization (CPU: generator.kv_cache_gb)",
    ),
    Cause(
        r"No CUDA GPUs|Failed to infer device type|libcuda\.so|libcudart|libnvrtc|driver version is"
        r" insufficient|"
        r"driver on your system is too old|no kernel image|not compiled with CUDA|Found no NVIDIA"
        r" driver|forward "
        r"compatibility|NVML|CUDA driver initialization failed|CUDA unknown error",
        "no usable CUDA device for this build of vLLM",
        "check nvidia-smi and the driver against the CUDA version of the installed torch, or use a"
        " generator for CPUs (generator=smollm2)",
    ),
    Cause(
        r"[Bb]atch.invarian",
        "batch-invariant mode is not available on this device",
        "set generator.batch_invariant=false: texts may then depend on batches",
    ),
    Cause(
        r"tensor.parallel|must be divisible by tensor|World size",
        "the model cannot be spread over that many GPUs",
        "change generator.tensor_parallel_size: it must divide the model's attention heads, and"
        " there must be that many GPUs",
    ),
    Cause(
        r"larger than the derived max_model_len|max_position_embeddings",
        "generator.max_model_len is longer than the model's own context",
        "lower generator.max_model_len",
    ),
    Cause(
        r"xgrammar|structured.output",
        "the structured output backend does not work",
        "install xgrammar",
    ),
    Cause(
        r"[Ss]afetensor|HeaderTooLarge|InvalidHeader|checkpoint|size mismatch|weights? .*(not"
        r" initialized|missing)",
        "the model's weights cannot be read",
        "fetch the model's files again",
    ),
    Cause(
        r"[Mm]odel architectures .* not supported|does not recognize this architecture|model type",
        "this vLLM does not know the model's architecture",
        "choose another model or another vLLM",
    ),
)


def prepare_environment(config: GeneratorConfig, threads: int) -> None:
    """Set what vLLM reads at import. Threads beyond one would make a CPU's sums depend on the
    batch.
    """
    on_cpu = config.device == "cpu"
    invariant = {"VLLM_BATCH_INVARIANT": "1" if config.batch_invariant and not on_cpu else "0"}
    always = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives and dies with this process
        "HF_HUB_OFFLINE": "1",  # the weights are on this machine by now
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    cpu = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": str(config.kv_cache_gb),
        "OMP_NUM_THREADS": "1" if config.batch_invariant else str(threads),
    }
    os.environ.update(always | invariant | (cpu if on_cpu else {}))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def check_before(config: GeneratorConfig, files: GeneratorFiles) -> None:
    """What can be known before vLLM is imported.

    Raises:
        DesaError: vLLM or XGrammar is not installed, a setting the determinism mode forbids, too
            little memory.
    """
    where = f"generator {config.name}"
    for module, what in (
        ("vllm", "vLLM"),
        ("xgrammar", "XGrammar, the structured output backend,"),
    ):
        if importlib.util.find_spec(module) is None:
            hint = (
                "run `make vllm-env` and use .venv-vllm, or install the extra gpu, or use a"
                " server: "
            )
            raise DesaError(
                f"{what} is not installed", where=where, hint=hint + "generator=openai_server"
            )
    if config.device == "cpu":
        if config.batch_invariant and config.dtype != "float32":
            what = f"{config.dtype} texts depend on batches on a CPU"
            hint = "set generator.dtype=float32, or generator.batch_invariant=false"
            raise DesaError(what, where="generator.dtype", hint=hint)
        needed = files.bytes_as(config.dtype) + config.kv_cache_gb * GIB + OVERHEAD
        if needed > (free := available()):
            raise DesaError(
                f"too little memory: about {needed / GIB:.1f} GiB needed, {free / GIB:.1f}"
                " available",
                where=where,
                hint="free memory, or lower generator.kv_cache_gb",
            )


def start(config: GeneratorConfig, files: GeneratorFiles) -> Any:
    """A `vllm.LLM` of the model; call `prepare_environment` and `check_before` first.

    Raises:
        DesaError: it does not start; one wording per cause.
    """
    try:
        import torch  # pyright: ignore[reportMissingImports]
        import vllm  # pyright: ignore[reportMissingImports]
        from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]

        on_cpu = config.device == "cpu"
        # A build for GPUs that finds no driver has no platform at all.
        if not (current_platform.is_cpu() if on_cpu else current_platform.is_cuda_alike()):
            raise DesaError(
                f"{config.device} was requested, but this vLLM runs on"
                f" {current_platform.device_type or 'no device'}",
                where="generator.device",
                hint=(
                    "check nvidia-smi and whether the installed vLLM is the build for this machine,"
                    " or change it"
                ),
            )
        gpus = [] if on_cpu else await_gpus(config, files)
        if on_cpu:
            # Whoever imported torch first, and how
            torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        with _hidden("llvmlite.binding.ffi"):
            return vllm.LLM(
                **arguments(config, files.folder, requests_at_once(config, files, gpus))
            )
    except DesaError:
        raise
    except Exception as error:  # vLLM raises whatever its parts raise; each becomes one of ours
        raise explained(error, config) from error


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Inside, a module is not in the list of loaded ones. vLLM looks through all values of all
    modules, and fails at llvmlite's, which answers to every name with a function.
    """
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module


def arguments(config: GeneratorConfig, folder: Path, at_once: int) -> Mapping[str, Any]:
    """What `vllm.LLM` is called with. The Hugging Face files are named, for some repositories hold
    other forms too.
    """
    return {
        "model": str(folder),
        "config_format": "hf",
        "tokenizer_mode": "hf",
        "load_format": "safetensors",
        "dtype": config.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": at_once,
        "seed": 0,
        "tensor_parallel_size": config.tensor_parallel_size,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "distributed_executor_backend": "mp" if config.tensor_parallel_size > 1 else "uni",
        "enforce_eager": config.device == "cpu",
        # A cached prefix changes the shapes of what is computed, and so, in the last bits, the
        # text.
        "enable_prefix_caching": not config.batch_invariant,
        "structured_outputs_config": {"backend": "xgrammar"},
    }


def explained(error: BaseException, config: GeneratorConfig) -> DesaError:
    """The error for a failed start: the first known cause that its message or one it stems from
    speaks of.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is known for known in chain):
        # NVML errors cannot be compared
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    where = f"generator {config.name}"
    for link in chain:
        message = f"{type(link).__name__}: {link}"
        for cause in CAUSES:
            if re.search(cause.words, message):
                return DesaError(
                    f"{cause.what}; vLLM says: {_short(link)}", where=where, hint=cause.hint
                )
    return DesaError(
        f"vLLM did not start: {_short(error)}",
        where=where,
        hint="VLLM_LOGGING_LEVEL=INFO shows its log",
    )


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text[:300]}"
