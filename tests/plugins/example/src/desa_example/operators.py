"""A dense operator and a sparse one, from their equations (docs/method.md, sections 3 and 4)."""

import numpy as np

from desa_example.numbers import GAMMA
from desa_ray.core.dense import residual
from desa_ray.core.operators import DenseOperator, SparseHits, SparseOperator


def my_residual(vectors):
    """The query and the part of its texts' mean that is orthogonal to it."""
    expanded_QD, angle_deg_Q = residual(vectors["query"], vectors["query_reference"], GAMMA)
    return expanded_QD, {"angle_deg": angle_deg_Q}


def my_root(hits):
    """The root of the product of both scores: ranks as the product does."""
    query, expanded = hits["query"], hits["expanded"]
    places = np.searchsorted(expanded.docs, query.docs)
    product = query.scores.astype(np.float64) * expanded.scores[places].astype(np.float64)
    return SparseHits(query.docs, np.sqrt(product))


MY_RESIDUAL = DenseOperator(my_residual, ("query", "query_reference"))
MY_ROOT = SparseOperator(my_root, ("query", "expanded"))
