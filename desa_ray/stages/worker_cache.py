"""What a scoring or fusing worker keeps between shards, so that every input is read and verified
once per worker.
"""

from functools import cached_property
from typing import Any

from desa_ray.engines.gemm import Gemm, gemm_named
from desa_ray.stages.kernels import compile_kernels

KEPT, MAPPED = 16, 256  # entries; files mapped into memory cost little


class WorkerCache:
    """The last inputs of a worker by name.

    Args:
        scorer: who multiplies vectors (`encoder.scorer`).
    """

    def __init__(self, scorer: str = "cpu") -> None:
        compile_kernels()
        self.kept: dict[str, Any] = {}
        self.mapped: dict[str, Any] = {}
        self.scorer = scorer

    @cached_property
    def gemm(self) -> Gemm:
        """Who multiplies vectors for exact scores; DesaError where it is not here."""
        return gemm_named(self.scorer)

    def get(self, name: str, read: Any) -> Any:
        return _got(self.kept, KEPT, name, read)

    def get_mapped(self, name: str, read: Any) -> Any:
        """As `get`, for files mapped into memory: of those many can be kept."""
        return _got(self.mapped, MAPPED, name, read)


def _got(kept: dict[str, Any], most: int, name: str, read: Any) -> Any:
    if name not in kept:
        if len(kept) >= most:
            kept.clear()
        kept[name] = read()
    return kept[name]
