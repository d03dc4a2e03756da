"""AnchorQE's calibrated alpha, from the best scores of a few queries and of their references.

As the paper's authors released it (method.md section 3.4): of the first eight queries of a draw
whose references are valid, the best scores of the query's vector v_o and of the references' mean
r against all documents, once the best one and once the mean of the best ten.
"""

import numpy as np
from numpy.typing import NDArray

CALIBRATION_QUERIES = 8
BEST = 10


def plain_mean(texts_QnD: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 [Q, D]: the mean of each query's vectors, added up in their order in float64, not
    renormalised.
    """
    total_QD = np.zeros((texts_QnD.shape[0], texts_QnD.shape[2]))
    for i in range(texts_QnD.shape[1]):
        total_QD += texts_QnD[:, i]
    return (total_QD / texts_QnD.shape[1]).astype(np.float32)


def top_and_ten(scores: NDArray[np.float32]) -> tuple[float, float]:
    """max(0, best score) and max(0, mean of the ten best), of scores in descending order; 0 where
    there is no document.
    """
    if not scores.size:
        return 0.0, 0.0
    best = scores[:BEST].astype(np.float64)
    return max(0.0, float(best[0])), max(0.0, float(best.mean()))


def calibrated_alpha(pairs: NDArray[np.float64]) -> float:
    """Alpha = top_r / (top_o + top_r) * ten_r / (ten_o + ten_r), the means over the calibration
    queries; 0 if a denominator is 0.

    Args:
        pairs: float64 [queries, 4]: top_o, ten_o, top_r, ten_r of each.
    """
    if not len(pairs):
        return 0.0
    top_o, ten_o, top_r, ten_r = pairs.mean(axis=0).tolist()
    if top_o + top_r == 0 or ten_o + ten_r == 0:
        return 0.0
    return top_r / (top_o + top_r) * (ten_r / (ten_o + ten_r))
