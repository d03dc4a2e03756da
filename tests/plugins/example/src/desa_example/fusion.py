"""A fusion rule: reciprocal ranks, in exact rationals and as plain as they can be written."""

from fractions import Fraction

import numpy as np

from desa_ray.core.fusion.depth import replay
from desa_ray.core.fusion.registry import plain_fusion


def order(channels, weights, kappa, m=None):
    """The first m documents by the sum of w / (kappa + rank), ties by number."""
    scores = {}
    for channel, weight in zip(channels, weights, strict=True):
        for rank, document in enumerate(channel.tolist(), 1):
            scores[document] = scores.get(document, 0) + weight / (Fraction(kappa) + rank)
    best = sorted(scores, key=lambda document: (-scores[document], document))
    return np.array(best[:m], np.int32)


MY_RRF = plain_fusion(order, replay)
