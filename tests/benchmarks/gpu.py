"""Exact dense ranking on a GPU against the CPU: the same ranking hashes, and how many times as
fast.

    python -m tests.benchmarks.gpu [--documents N] [--queries Q] [--repeats R]

Prints a line of JSON for each device found (torch with CUDA, faiss-gpu) and exits 1 where a hash
differs, 2 without a GPU. Times are wall time, as a GPU's work is nobody's CPU time: scores of all
documents from vectors that are prepared on their device, and the same with complete ranks made from
them on the CPU.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from desa_ray.core.ranking import complete_order
from desa_ray.engines.gemm import CpuGemm, Gemm, TorchGemm, faiss_gpu

from .made_up import centres, unit_vectors

BLOCK = 8192  # documents scored at once, as a vector shard is


def devices() -> list[Gemm]:
    """Every GPU backend that works here."""
    found: list[Gemm] = []
    if importlib.util.find_spec("torch") is not None:
        import torch  # pyright: ignore[reportMissingImports]

        if torch.cuda.is_available():
            found.append(TorchGemm())
    return [*found, *([own] if (own := faiss_gpu()) else [])]


def measured(
    gemm: Gemm, vectors: np.ndarray, queries: np.ndarray, repeats: int
) -> tuple[str, float, float]:
    """SHA-256 over all rankings; median seconds of the scores; and of scores with ranks."""
    asked = gemm.prepared(queries)
    blocks = [
        gemm.prepared(vectors[start : start + BLOCK]) for start in range(0, len(vectors), BLOCK)
    ]
    scores = np.empty((len(queries), len(vectors)), np.float32)

    def score() -> None:
        for number, block in enumerate(blocks):
            part = gemm.scores(asked, block)
            scores[:, number * BLOCK : number * BLOCK + part.shape[1]] = part

    score()  # the first call sets the device up
    alone = _median_s(score, repeats)
    order = complete_order(scores)
    both = _median_s(lambda: (score(), complete_order(scores)), repeats)
    return hashlib.sha256(np.ascontiguousarray(order, "<i4").tobytes()).hexdigest(), alone, both


def _median_s(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def compared(gemms: list[Gemm], documents: int, queries: int, repeats: int) -> list[dict]:
    """One document per device: its hash, whether that is the CPU's, both times and their ratios."""
    rng = np.random.default_rng(1)
    middle = centres(rng)
    vectors, asked = unit_vectors(rng, documents, middle), unit_vectors(rng, queries, middle)
    expected, cpu_scores_s, cpu_both_s = measured(CpuGemm(), vectors, asked, repeats)
    lines = []
    for gemm in gemms:
        found, scores_s, both_s = measured(gemm, vectors, asked, repeats)
        lines.append(
            {
                "device": gemm.name,
                "documents": documents,
                "queries": queries,
                "ranking_sha256": found,
                "same_as_cpu": found == expected,
                "scores_s": scores_s,
                "scores_cpu_s": cpu_scores_s,
                "scores_ratio": cpu_scores_s / scores_s,
                "ranks_s": both_s,
                "ranks_cpu_s": cpu_both_s,
                "ranks_ratio": cpu_both_s / both_s,
                "cpu_threads": os.cpu_count(),
            }
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=382_000)
    parser.add_argument("--queries", type=int, default=49)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    gemms = devices()
    if not gemms:
        print("no GPU that torch or FAISS can use", file=sys.stderr)
        return 2
    lines = compared(gemms, options.documents, options.queries, options.repeats)
    for line in lines:
        print(json.dumps(line))
    return int(not all(line["same_as_cpu"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
