"""A line of the table from `tests.benchmarks.generation`, which runs in the environment of vLLM."""

import json
import statistics
import subprocess
from pathlib import Path

from .harness import Measured, Target

PYTHON = Path(__file__).resolve().parents[2] / ".venv-vllm" / "bin" / "python"
TARGET = 0.95


def through_the_pool(requests: int, pairs: int) -> list[Measured]:
    """Tokens per second of SmolLM2 through the pool over those of vLLM's own offline call."""
    command = [str(PYTHON), "-m", "tests.benchmarks.generation", "--json"]
    command += ["--requests", str(requests), "--pairs", str(pairs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(done.stdout.splitlines()[-1])
    ratios = [ours / theirs for ours, theirs in zip(found["pool"], found["offline"], strict=True)]
    line = Measured(
        "v generation",
        f"SmolLM2 through the pool, {requests} requests, seconds per token",
        "vLLM's own offline call on the same engine",
        1 / statistics.median(found["pool"]),
        1 / statistics.median(found["offline"]),
        found["ratio"],
        "× its tokens per second",
        Target(TARGET),
        {"ratios": ratios},
    )
    return [line]
