"""What every dense vector must be, in one place: right shape, float32, finite, length one
(method.md section 3); and the versions of the engines that compute them.
"""

from collections.abc import Sequence

import numpy as np

from desa_ray.errors import DesaError, listed

NORM_TOLERANCE = 1e-3
# Raise one when that engine computes other bits from equal files
VERSIONS = {
    "onnx": 1,
    "static": 1,
    "sentence_transformers": 1,
}


def check_unit_rows(
    vectors_ND: np.ndarray, rows: int, dimension: int, *, names: Sequence[str] | None = None
) -> None:
    """Accept float32 [rows, dimension] of finite unit vectors and nothing else.

    Args:
        vectors_ND: what an engine produced or a file held.
        names: identifiers for the message, one per row; row numbers where absent.

    Raises:
        DesaError: names the shape, or every row (up to ten) that is not finite or whose norm is off
            by more than 1e-3.
    """
    if vectors_ND.shape != (rows, dimension) or vectors_ND.dtype != np.float32:
        raise DesaError(
            f"vectors are {vectors_ND.dtype} {list(vectors_ND.shape)}, expected float32 [{rows},"
            f" {dimension}]",
            where="dense vectors",
            hint="check that model and tokenizer belong together",
        )
    # float64: a huge float32 must not overflow, NaN and infinity stay what they are and fail the
    # comparison.
    squares_N = np.einsum("nd,nd->n", vectors_ND, vectors_ND, dtype=np.float64)
    bad = np.flatnonzero(~(np.abs(np.sqrt(squares_N) - 1) <= NORM_TOLERANCE)).tolist()
    if bad:
        raise DesaError(
            f"{len(bad)} vector(s) not finite or not of length one: "
            f"{listed(repr(names[row]) if names is not None else row for row in bad)}",
            where="dense vectors",
            hint="check the encoder's weights; rows count from 0",
        )
