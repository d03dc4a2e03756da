"""The operators a channel can name, and the text sources that each combines (SPEC sections 3 to 5).

A new operator is an equation in `expansion` or `anchoring` and an entry here; a new method is one YAML file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.anchoring import Scored, mask, product, product_of_both
from desa_ray.core.expansion import Vectors, contextual, residual, single

__all__ = ["DENSE_OPERATORS", "SPARSE_OPERATORS", "DenseOperator", "Scored", "SparseOperator"]

Diagnostics = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class DenseOperator:
    """A dense operator.

    Attributes:
        function: takes source -> float32 unit vectors, [Q, D] for "query" and [Q, n, D] for all others; returns fresh
            float32 [Q, D] query vectors and diagnostics, name -> float64 [Q].
        texts: the names in `desa_ray.core.texts.DENSE_TEXTS` that it needs.
    """

    function: Callable[[Mapping[str, Vectors]], tuple[Vectors, Diagnostics]]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class SparseOperator:
    """A sparse operator.

    Attributes:
        function: takes source -> hit list of one query, and returns the channel's hit list.
        texts: the names in `desa_ray.core.texts.SPARSE_TEXTS` that it needs.
    """

    function: Callable[[Mapping[str, Scored]], Scored]
    texts: tuple[str, ...]


def _residual(vectors: Mapping[str, Vectors]) -> tuple[Vectors, Diagnostics]:
    expanded_QD, angle_deg_Q = residual(vectors["query"], vectors["query_reference"])
    return expanded_QD, {"angle_deg": angle_deg_Q}


DENSE_OPERATORS: dict[str, DenseOperator] = {
    "original": DenseOperator(lambda vectors: (vectors["query"].copy(), {}), ("query",)),
    "residual": DenseOperator(_residual, ("query", "query_reference")),
    "contextual": DenseOperator(lambda vectors: (contextual(vectors["query_reference"]), {}), ("query_reference",)),
    "hyde": DenseOperator(lambda vectors: (contextual(vectors["reference"]), {}), ("reference",)),
    "query2doc": DenseOperator(lambda vectors: (single(vectors["query_reference"]), {}), ("query_reference",)),
    "mugi": DenseOperator(lambda vectors: (contextual(vectors["query_reference"]), {}), ("query_reference",)),
}

SPARSE_OPERATORS: dict[str, SparseOperator] = {
    "original": SparseOperator(lambda hits: hits["query"], ("query",)),
    "product": SparseOperator(lambda hits: product(hits["query"], hits["expanded"]), ("query", "expanded")),
    "rewrite": SparseOperator(lambda hits: hits["expanded"], ("expanded",)),
    "mask": SparseOperator(lambda hits: mask(hits["query"], hits["expanded"]), ("query", "expanded")),
    "references_only": SparseOperator(lambda hits: hits["references"], ("references",)),
    "references_product": SparseOperator(
        lambda hits: product_of_both(hits["query"], hits["references"]), ("query", "references")
    ),
    "query2doc": SparseOperator(lambda hits: hits["query2doc"], ("query2doc",)),
    "mugi": SparseOperator(lambda hits: hits["mugi"], ("mugi",)),
}
