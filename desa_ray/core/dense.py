"""Dense equations: one query vector from the vectors of a query and its references (method.md
section 3).

Everything is computed from float32 vectors in float64, by one loop per row in a fixed order (no
BLAS, no reassociation), and cast to float32 once, so that all machines agree. Legend: Q queries, n
references, D dimensions.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from desa_ray.errors import DesaError

Vectors = NDArray[np.float32]


def residual(
    query_QD: Vectors, texts_QnD: Vectors, gamma: float = 1.0
) -> tuple[Vectors, NDArray[np.float64]]:
    """Orthogonal residual expansion: v = mean of the texts, z = v - (q.v) q, e = norm(q + gamma z)
    (paper section 3.2.1, where gamma is 1).

    Args:
        query_QD: float32 [Q, D], unit vectors of the queries.
        texts_QnD: float32 [Q, n, D], unit vectors of the query-reference texts, n >= 1.
        gamma: weight of the residual, >= 0.

    Returns:
        e, float32 [Q, D]; and the angle between e and q, atan2(gamma |z|, |q|), float64 [Q] in
        degrees; for gamma <= 1 at most 45 up to the rounding of the unit vectors.
    """
    expanded_QD, angle_Q = np.empty(query_QD.shape, np.float32), np.empty(len(query_QD))
    query_QD, texts_QnD = np.array(query_QD, order="C"), _own(texts_QnD)
    _residual(query_QD, texts_QnD, float(gamma), expanded_QD, angle_Q)
    return expanded_QD, angle_Q


def anchored(query_QD: Vectors, texts_QnD: Vectors, alpha: float) -> Vectors:
    """AnchorQE: e = norm((1 - alpha) q + alpha r), r = mean of the references' vectors, not
    renormalised (method.md section 3.4).

    Args:
        query_QD: float32 [Q, D], unit vectors of the queries.
        texts_QnD: float32 [Q, n, D], unit vectors of the references alone, n >= 1.
        alpha: 0..1.

    Raises:
        DesaError: both parts of a query cancel out, so that there is no direction.
    """
    expanded_QD = np.empty(query_QD.shape, np.float32)
    query_QD, texts_QnD = np.array(query_QD, order="C"), _own(texts_QnD)
    cancelled = _anchored(query_QD, texts_QnD, float(alpha), expanded_QD)
    if cancelled >= 0:
        what = "the query's vector and the mean of its references cancel out"
        raise DesaError(what, where=f"query row {cancelled}")
    return expanded_QD


def contextual(texts_QnD: Vectors) -> Vectors:
    """The mean direction: e = norm(mean of the texts); float32 [Q, n, D] to float32 [Q, D].

    Raises:
        DesaError: the texts of a query cancel out, so that there is no direction.
    """
    mean_QD = np.empty((texts_QnD.shape[0], texts_QnD.shape[2]), np.float32)
    cancelled = _contextual(_own(texts_QnD), mean_QD)
    if cancelled >= 0:
        raise DesaError("the mean of the vectors is zero", where=f"query row {cancelled}")
    return mean_QD


def single(texts_QnD: Vectors) -> Vectors:
    """The vector of the only text; float32 [Q, 1, D] to float32 [Q, D]."""
    if texts_QnD.shape[1] != 1:
        raise DesaError(
            f"{texts_QnD.shape[1]} texts per query, expected 1",
            hint="use the prompt query2doc",
        )
    return texts_QnD[:, 0].copy()


def _own(texts_QnD: Vectors) -> Vectors:
    """A contiguous, writable copy, so that one compilation serves slices and memory maps too."""
    if texts_QnD.ndim != 3 or texts_QnD.shape[1] == 0:
        raise DesaError(
            f"vectors of shape {texts_QnD.shape}, expected [queries, references >= 1, dimensions]"
        )
    return np.array(texts_QnD, order="C")


@njit(cache=True, nogil=True)
def _residual(
    query_QD: Vectors,
    texts_QnD: Vectors,
    gamma: float,
    expanded_QD: Vectors,
    angle_Q: NDArray[np.float64],
) -> None:
    _, n, dimensions = texts_QnD.shape
    z = np.empty(dimensions)
    for row in range(query_QD.shape[0]):
        along = 0.0
        for d in range(dimensions):
            total = 0.0
            for i in range(n):
                total += np.float64(texts_QnD[row, i, d])
            z[d] = total / n
            along += np.float64(query_QD[row, d]) * z[d]
        z_square, q_square, e_square = 0.0, 0.0, 0.0
        for d in range(dimensions):
            q = np.float64(query_QD[row, d])
            z[d] = gamma * (z[d] - along * q)  # gamma = 1 changes no bit
            z_square += z[d] * z[d]
            q_square += q * q
            e_square += (q + z[d]) * (q + z[d])
        for d in range(dimensions):
            expanded_QD[row, d] = (np.float64(query_QD[row, d]) + z[d]) / math.sqrt(e_square)
        angle_Q[row] = math.atan2(math.sqrt(z_square), math.sqrt(q_square)) * (180 / math.pi)


@njit(cache=True, nogil=True, error_model="numpy")
def _contextual(texts_QnD: Vectors, mean_QD: Vectors) -> int:
    """Fills mean_QD; returns a row whose vectors cancel out, or -1."""
    rows, n, dimensions = texts_QnD.shape
    mean = np.empty(dimensions)
    cancelled = -1
    for row in range(rows):
        square = 0.0
        for d in range(dimensions):
            total = 0.0
            for i in range(n):
                total += np.float64(texts_QnD[row, i, d])
            mean[d] = total / n
            square += mean[d] * mean[d]
        if square == 0.0:
            cancelled = row
        for d in range(dimensions):
            mean_QD[row, d] = mean[d] / math.sqrt(square)
    return cancelled


@njit(cache=True, nogil=True, error_model="numpy")
def _anchored(query_QD: Vectors, texts_QnD: Vectors, alpha: float, expanded_QD: Vectors) -> int:
    """Fills expanded_QD; returns a row whose parts cancel out, or -1."""
    rows, n, dimensions = texts_QnD.shape
    mixed = np.empty(dimensions)
    cancelled = -1
    for row in range(rows):
        square = 0.0
        for d in range(dimensions):
            total = 0.0
            for i in range(n):
                total += np.float64(texts_QnD[row, i, d])
            mixed[d] = (1.0 - alpha) * np.float64(query_QD[row, d]) + alpha * (total / n)
            square += mixed[d] * mixed[d]
        if square == 0.0:
            cancelled = row
        for d in range(dimensions):
            expanded_QD[row, d] = mixed[d] / math.sqrt(square)
    return cancelled
