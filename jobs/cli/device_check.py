"""What `desa doctor` says of GPUs and CPUs: where encoders, scores and generators would run."""

from desa_ray.config import ClusterConfig
from desa_ray.engines.gpu_engines import LIBRARIES, ONNX, SCORERS, TORCH
from desa_ray.pipeline.devices import (
    ENCODER_BYTES,
    GB,
    MOST_ENCODERS,
    MOST_SCORERS,
    SCORER_BYTES,
    Devices,
)

from .checkup import Finding

HINT = "install requirements/gpu.txt on every node with GPUs"


def devices_finding(name: str, devices: Devices, config: ClusterConfig) -> Finding:
    """Where engines run by default; a warning where GPUs are there and their libraries are not."""
    if not devices.with_gpus:
        what = f"{devices.place} has no GPU: encoders and dense scores on CPUs; generators of"
        return Finding(name, "ok", f"{what} kind vllm need generator.device=cpu")
    encoding = [engine for engine in (TORCH, ONNX) if not devices.lacks(LIBRARIES[engine])]
    scoring = [scorer for scorer in SCORERS if not devices.lacks(SCORERS[scorer])]
    scorer_bytes = SCORER_BYTES + int(config.memory_gb * GB)
    words = [
        _words(
            "encoders",
            LIBRARIES[encoding[0]] if encoding else "",
            devices.share(ENCODER_BYTES, config.encoder_cpus, MOST_ENCODERS),
        ),
        _words(
            "dense scores",
            SCORERS[scoring[0]] if scoring else "",
            devices.share(scorer_bytes, 1, MOST_SCORERS),
        ),
        "generators of kind vllm on whole GPUs",
    ]
    what = f"{devices}: {'; '.join(words)}"
    if encoding and scoring:
        return Finding(name, "ok", what)
    lacks = devices.lacks(SCORERS["torch"] if encoding else LIBRARIES[TORCH])
    return Finding(name, "warn", f"{what} ({lacks})", HINT)


def _words(what: str, library: str, share: float) -> str:
    return f"{what} on GPUs by {library}, {share:g} GPU each" if library else f"{what} on CPUs"
