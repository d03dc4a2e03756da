"""Multiplies vectors on the CPU, or on a GPU if there is one, with the same exact scores.

int26 scores are sums of products of whole numbers below 2^53 (`desa_ray.core.ranking`). torch
computes them in float64, exactly, like BLAS does. FAISS multiplies in float32 alone; so its numbers
are split into four digits of 7 bits, whose sums of products stay below 2^24 and are exact in
float32 (even where the hardware rounds factors to 10 bits), and the seven groups of digits of equal
weight are put together in float64. No digit is lost on either way.
"""

import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.ranking import BITS, exact_scores, float32_scores, quantise
from desa_ray.errors import DesaError

DIGITS, DIGIT_BITS = 4, 7
MOST_DIMENSIONS = 1024  # 4 * 1024 products of two digits of at most 64 stay below 2^24

Integers = NDArray[np.float64]
Product = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]


class Gemm(Protocol):
    """Scores of unit vectors; exact ones from all but `Float32Gemm`."""

    @property
    def name(self) -> str: ...

    def prepared(self, vectors_ND: NDArray[np.float32]) -> Any:
        """Vectors of norm <= 1.001, ready to be multiplied, where they will be."""
        ...

    def scores(self, queries: Any, documents: Any) -> NDArray[np.float32]:
        """float32 [Q, N] of prepared vectors; the same bits from every implementation."""
        ...


class CpuGemm:
    """numpy's BLAS."""

    name = "numpy"

    def prepared(self, vectors_ND: NDArray[np.float32]) -> Integers:
        return quantise(vectors_ND)

    def scores(self, queries: Integers, documents: Integers) -> NDArray[np.float32]:
        return exact_scores(queries, documents)


class Float32Gemm:
    """Plain float32 BLAS (`encoder.scoring=float32`): faster, and its last bits depend on batch and
    machine.
    """

    name = "float32"

    def prepared(self, vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
        return vectors_ND

    def scores(
        self, queries: NDArray[np.float32], documents: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        return float32_scores(queries, documents)


class TorchGemm:
    """torch, on a CUDA device or any other that it knows."""

    def __init__(self, device: str = "cuda"):
        import torch  # pyright: ignore[reportMissingImports]

        self.name, self.device, self.torch = f"torch {device}", device, torch

    def prepared(self, vectors_ND: NDArray[np.float32]) -> Any:
        return self.torch.from_numpy(quantise(vectors_ND)).to(self.device)

    def scores(self, queries: Any, documents: Any) -> NDArray[np.float32]:
        found = (queries @ documents.T) * 2.0 ** (-2 * BITS) + 0.0
        return found.to(self.torch.float32).cpu().numpy()


class DigitsGemm:
    """Any float32 matrix product, such as FAISS's on a GPU."""

    def __init__(self, name: str, product: Product):
        self.name, self.product = name, product

    def prepared(self, vectors_ND: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Four float32 [N, D] of whole numbers -64..64: vector = sum of digit[i] 2^(7i)."""
        if vectors_ND.shape[-1] > MOST_DIMENSIONS:
            what = f"{vectors_ND.shape[-1]} dimensions are too many for exact float32 products"
            raise DesaError(what, hint="use torch on the GPU, or the CPU")
        rest = quantise(vectors_ND)
        digits = []
        for _ in range(DIGITS - 1):
            higher = np.rint(rest * 2.0**-DIGIT_BITS)
            digits.append((rest - higher * 2.0**DIGIT_BITS).astype(np.float32))
            rest = higher
        return [*digits, rest.astype(np.float32)]

    def scores(
        self, queries: list[NDArray[np.float32]], documents: list[NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        total = np.zeros((len(queries[0]), len(documents[0])))
        for weight in range(2 * DIGITS - 1):
            pairs = [(i, weight - i) for i in range(DIGITS) if 0 <= weight - i < DIGITS]
            left = np.concatenate([queries[i] for i, _ in pairs], axis=1)
            right = np.concatenate([documents[j] for _, j in pairs], axis=1)
            total += self.product(left, right).astype(np.float64) * 2.0 ** (DIGIT_BITS * weight)
        return (total * 2.0 ** (-2 * BITS) + 0.0).astype(np.float32)


def faiss_gpu() -> DigitsGemm | None:
    """FAISS's product on the first GPU; None where this FAISS has none."""
    import faiss

    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() < 1:
        return None
    resources: Any = faiss.StandardGpuResources()  # pyright: ignore[reportAttributeAccessIssue]

    def product(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
        distance: Any = faiss.pairwise_distance_gpu  # pyright: ignore[reportAttributeAccessIssue]
        return distance(resources, left, right, metric=faiss.METRIC_INNER_PRODUCT)

    return DigitsGemm("faiss-gpu", product)


def torch_gpu() -> TorchGemm | None:
    """Torch on the first GPU; None where there is no torch or no GPU that it can use."""
    if importlib.util.find_spec("torch") is not None:
        import torch  # pyright: ignore[reportMissingImports]

        if torch.cuda.is_available():
            return TorchGemm()
    return None


def best_gemm() -> Gemm:
    """Torch with CUDA where both are there, else FAISS on a GPU, else the CPU."""
    return torch_gpu() or faiss_gpu() or CpuGemm()


def gemm_named(scorer: str) -> Gemm:
    """Who multiplies by `encoder.scorer`: auto, torch, faiss_gpu or cpu.

    Raises:
        DesaError: it is not here.
    """
    ways: dict[str, Callable[[], Gemm | None]] = {
        "auto": best_gemm,
        "torch": torch_gpu,
        "faiss_gpu": faiss_gpu,
        "cpu": CpuGemm,
    }
    found = ways[scorer]()
    if found is None:
        what = f"{scorer} finds no GPU that it can use"
        hint = "set cluster.scorer_gpus, install the gpu extra, or use auto or cpu"
        raise DesaError(what, where="encoder.scorer", hint=hint)
    return found
