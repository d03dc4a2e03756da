"""Document vectors as FAISS flat inner-product indexes, one file per shard.

FAISS loads damaged files without a word, so the store compares the file's hash before it is read
here; this module checks what a hash cannot tell: that the index is of the kind, size and width that
its reader expects.
"""

from pathlib import Path

import faiss
import numpy as np

from desa_ray.engines.vectors import check_unit_rows
from desa_ray.errors import CorruptArtifact


def write_shard(vectors_ND: np.ndarray, path: Path) -> None:
    """Write float32 [n, D] unit rows to `path`; equal vectors give equal bytes.

    Raises:
        DesaError: wrong type or shape, a row is not finite or not of length one. Nothing is written
            then.
    """
    check_unit_rows(vectors_ND, len(vectors_ND), vectors_ND.shape[-1])
    index = faiss.IndexFlatIP(vectors_ND.shape[1])
    index.add(np.ascontiguousarray(vectors_ND))  # pyright: ignore[reportCallIssue]  (faiss adds this signature at import)
    faiss.write_index(index, str(path))


def read_shard(path: Path, expect_rows: int, expect_dim: int | None = None) -> np.ndarray:
    """The rows of a shard, float32 [expect_rows, D], read-only, in FAISS's own memory (no copy).

    Args:
        expect_dim: D where the caller knows it; else any.

    Raises:
        CorruptArtifact: not a flat inner-product index, or not of the expected size.
    """
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        raise CorruptArtifact(
            f"FAISS cannot read it: {error}", where=str(path), hint="recompute it"
        ) from None
    if not isinstance(index, faiss.IndexFlat) or index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise CorruptArtifact(
            f"a {type(index).__name__}, not a flat inner-product index",
            where=str(path),
            hint="recompute it",
        )
    if index.ntotal != expect_rows or expect_dim not in (None, index.d):
        raise CorruptArtifact(
            f"{index.ntotal} vectors of {index.d} dimensions, expected {expect_rows} of"
            f" {expect_dim or index.d}",
            where=str(path),
            hint="recompute it",
        )
    return np.asarray(_Rows(index)).reshape(expect_rows, index.d)


class _Rows:
    """The memory of a flat index as an array; numpy keeps this object, and it the index, as long as
    the array lives.
    """

    def __init__(self, index: faiss.IndexFlat):
        self._index = index
        memory = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
        self.__array_interface__ = memory.__array_interface__ | {"data": (memory.ctypes.data, True)}
