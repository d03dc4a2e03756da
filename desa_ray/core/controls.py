"""Sparse operator controls: other combinations of both scores on the original query's support
(method.md section 4.2).

All keep supp(s_o), like the product and the binary mask, and differ only in how the scores s_o of
the query and s_r of the expanded query are put together there.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion.rrf import fuse_order
from desa_ray.core.ranking import sparse_order
from desa_ray.core.sparse import SparseHits, mask

LOG_UNIT = 2.0**40  # logarithms are multiples of 1/LOG_UNIT: C libraries differ in their last bit


def masked_sum(original: SparseHits, expanded: SparseHits, share: Fraction) -> SparseHits:
    """Share s_o + (1 - share) s_r on supp(s_o), in float64."""
    other = mask(original, expanded).scores.astype(np.float64)
    own = original.scores.astype(np.float64)
    return SparseHits(original.docs, float(share) * own + float(1 - share) * other)


def geometric(original: SparseHits, expanded: SparseHits, share: Fraction) -> SparseHits:
    """Share ln s_o + (1 - share) ln s_r on supp(s_o), in float64; a share of 1/2 orders as the
    product does, up to rounding.

    A factor that rounded to 0 puts the document last, as the product does; a factor whose share is
    0 does not count.
    """
    total = np.zeros(original.docs.size)
    for part, scores in ((share, original.scores), (1 - share, mask(original, expanded).scores)):
        if part:
            total += float(part) * _log(scores.astype(np.float64))
    return SparseHits(original.docs, total)


def rank_sum(original: SparseHits, expanded: SparseHits, kappa: Fraction) -> SparseHits:
    """1 / (kappa + rank by s_o) + 1 / (kappa + rank by s_r), both ranks within supp(s_o), ties by
    number.

    Such sums tie in exact arithmetic and not in floats, so they are compared exactly; the scores
    are the places in that order, counted from its end.
    """
    size = original.docs.size
    places = np.arange(size, dtype=np.int32)
    orders = [sparse_order(places, s) for s in (original.scores, mask(original, expanded).scores)]
    scores = np.zeros(size)
    if size:
        order = fuse_order(orders, [Fraction(1), Fraction(1)], kappa)
        scores[order] = np.arange(size, 0, -1, dtype=np.float64)
    return SparseHits(original.docs, scores)


def _log(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.rint(np.log(scores) * LOG_UNIT) / LOG_UNIT
