"""Score fusion: sums of weighted min-max scores instead of reciprocal ranks (method.md
section 5.2).

What the paper's authors released for their audit of QuDAR's weights. Of each list the best 1,000
scores count, min-max normalised; a document that a list lacks gets 0 from it. There is no kappa and
no certification depth. Weights and normalised scores are float64 numbers or rationals, so their
exact sum is known: floats decide what differs by more than a relative 1e-12, rationals the rest.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion.exact import NEAR
from desa_ray.core.fusion.weights import min_max

Best = tuple[NDArray[np.int32], NDArray[np.float64]]


def fuse_scores(
    lists: Sequence[Best], weights: Sequence[Fraction], exact: bool = True
) -> NDArray[np.int32]:
    """All documents of the lists by the sum of weight times normalised score, ties by number.

    Args:
        lists: per channel, distinct documents and their normalised scores >= 0.
        weights: one > 0 per channel.
        exact: compare exact sums; else float64 products, added in the order of the channels.
    """
    union = np.unique(np.concatenate([docs for docs, _ in lists]))
    parts_CN = np.zeros((len(lists), union.size))
    for c, (docs, scores) in enumerate(lists):
        parts_CN[c, np.searchsorted(union, docs)] = scores
    sums_N = np.zeros(union.size)
    for weight, part_N in zip(weights, parts_CN, strict=True):
        sums_N += float(weight) * part_N
    order = np.argsort(-sums_N, kind="stable")
    if exact and order.size:
        close = sums_N[order[1:]] >= sums_N[order[:-1]] * (1 - NEAR)
        starts = np.flatnonzero(np.concatenate([[True], ~close]))
        for begin, end in pairwise([*starts.tolist(), order.size]):
            if end - begin > 1:
                sums = {n: _sum(weights, parts_CN[:, n]) for n in order[begin:end].tolist()}
                order[begin:end] = sorted(sums, key=lambda n: (-sums[n], n))
    return union[order].astype(np.int32)


def _sum(weights: Sequence[Fraction], parts_C: NDArray[np.float64]) -> Fraction:
    products = (w * Fraction(part) for w, part in zip(weights, parts_C.tolist(), strict=True))
    return sum(products, Fraction(0))


def fuse_cut(
    lists: Sequence[Best], weights: Sequence[Fraction], cutoff: int, exact: bool = True
) -> NDArray[np.int32]:
    """`fuse_scores` of the first `cutoff` documents of each list; their normalised scores stay."""
    return fuse_scores([(docs[:cutoff], s[:cutoff]) for docs, s in lists], weights, exact)


def normalised(docs: NDArray[np.int32], scores: NDArray[np.float64], length: int) -> Best:
    """The first `length` documents of a list with their min-max scores."""
    return docs[:length], min_max(scores[:length])
