"""The operators that a channel can name, and the text sources that each of them combines (method.md
sections 3 to 5).

A new operator is an equation in `dense`, `sparse` or a file of its own and an entry here; a new
method is one YAML file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.controls import geometric, masked_sum, rank_sum
from desa_ray.core.dense import Vectors, anchored, contextual, residual, single
from desa_ray.core.relaxation import relax_count, relax_share
from desa_ray.core.sparse import SparseHits, intersection_product, mask, product

__all__ = [
    "DENSE_OPERATORS",
    "SPARSE_OPERATORS",
    "DenseOperator",
    "Option",
    "SparseHits",
    "SparseOperator",
]

Diagnostics = dict[str, NDArray[np.float64]]
Hits = Mapping[str, SparseHits]
DenseFunction = Callable[[Mapping[str, Vectors]], tuple[Vectors, Diagnostics]]
SparseFunction = Callable[..., SparseHits]


@dataclass(frozen=True)
class Option:
    """A number that an operator takes: from `least` to `most`, `whole` or not; without a default it
    must be given.
    """

    least: Fraction
    most: Fraction | None = None
    whole: bool = False
    default: Fraction | None = None

    def problem(self, value: Fraction) -> str | None:
        """Why the option cannot be this value; None if it can."""
        if self.whole and value.denominator != 1:
            return "not a whole number"
        if value < self.least:
            return f"below {self.least}"
        return f"above {self.most}" if self.most is not None and value > self.most else None


@dataclass(frozen=True)
class DenseOperator:
    """A dense operator.

    Attributes:
        function: takes source -> float32 unit vectors, [Q, D] for "query" and [Q, n, D] for all
            others; returns fresh float32 [Q, D] query vectors and diagnostics, name -> float64 [Q].
        texts: the names in `desa_ray.core.query_text.DENSE_TEXTS` that it needs.
        options: numbers that `function` takes by name.
        one_text: the operator takes exactly one text per query.
        calibrated: `function` also takes `alpha`, found with a few queries of each draw
            (`desa_ray.core.calibration`).
    """

    function: Callable[..., tuple[Vectors, Diagnostics]]
    texts: tuple[str, ...]
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    one_text: bool = False
    calibrated: bool = False


@dataclass(frozen=True)
class SparseOperator:
    """A sparse operator.

    Attributes:
        function: takes source -> hit list of one query, and returns the channel's hit list.
        texts: the names it needs, in `core.query_text.SPARSE_TEXTS`,
            `core.reweighting.SPARSE_TERMS` or `core.feedback.FEEDBACK`.
        options: numbers that `function` takes by name, or that what makes its texts does.
        one_text: as for a dense operator.
        local: what a document scores depends on its own hits alone, so that lists can be taken
            range by range.
    """

    function: Callable[..., SparseHits]
    texts: tuple[str, ...]
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    one_text: bool = False
    local: bool = True


def _residual(
    vectors: Mapping[str, Vectors], gamma: Fraction = Fraction(1)
) -> tuple[Vectors, Diagnostics]:
    expanded_QD, angle_deg_Q = residual(vectors["query"], vectors["query_reference"], float(gamma))
    return expanded_QD, {"angle_deg": angle_deg_Q}


def _anchor(vectors: Mapping[str, Vectors], alpha: Fraction | float) -> tuple[Vectors, Diagnostics]:
    # References alone, encoded as queries are: the source of that name.
    return anchored(vectors["query"], vectors["rewrite"], float(alpha)), {}


def _original(vectors: Mapping[str, Vectors]) -> tuple[Vectors, Diagnostics]:
    return vectors["query"].copy(), {}


def _of_texts(equation: Callable[[Vectors], Vectors], texts: str) -> DenseFunction:
    """The equation of the vectors of one kind of texts."""
    return lambda vectors: (equation(vectors[texts]), {})


DENSE_OPERATORS: dict[str, DenseOperator] = {
    "original": DenseOperator(_original, ("query",)),
    "residual": DenseOperator(_residual, ("query", "query_reference")),
    "contextual": DenseOperator(_of_texts(contextual, "query_reference"), ("query_reference",)),
    "hyde": DenseOperator(_of_texts(contextual, "reference"), ("reference",)),
    "query2doc": DenseOperator(
        _of_texts(single, "query_reference"), ("query_reference",), one_text=True
    ),
    "mugi": DenseOperator(_of_texts(contextual, "query_reference"), ("query_reference",)),
    "rewrite": DenseOperator(_of_texts(single, "rewrite"), ("rewrite",), one_text=True),
    "residual_weight": DenseOperator(
        _residual, ("query", "query_reference"), {"gamma": Option(Fraction(0))}
    ),
    "anchor": DenseOperator(
        _anchor, ("query", "rewrite"), {"alpha": Option(Fraction(0), Fraction(1))}
    ),
    "anchor_calibrated": DenseOperator(_anchor, ("query", "rewrite"), calibrated=True),
}
SHARE = {"share": Option(Fraction(0), Fraction(1))}


def _source(name: str) -> SparseFunction:
    """One of the lists as it is; options are those of its terms."""

    def found(hits: Hits, **_: Fraction) -> SparseHits:
        return hits[name]

    return found


def _of_lists(
    equation: Callable[[SparseHits, SparseHits], SparseHits], other: str
) -> SparseFunction:
    """The equation of the query's list and another one; options are those of the other's terms."""

    def combined(hits: Hits, **_: Fraction) -> SparseHits:
        return equation(hits["query"], hits[other])

    return combined


def _with_number(
    equation: Callable[[SparseHits, SparseHits, Fraction], SparseHits], option: str
) -> Callable[..., SparseHits]:
    """The equation of the query's list, the expanded query's and an option."""

    def combined(hits: Hits, **options: Fraction) -> SparseHits:
        return equation(hits["query"], hits["expanded"], options[option])

    return combined


BOTH = ("query", "expanded")
COUNT = Option(Fraction(1), whole=True, default=Fraction(10))
# Without weight the query's terms would be no part of the expansion, and neither its support.
RM3 = {
    "fb_docs": COUNT,
    "fb_terms": COUNT,
    "weight": Option(Fraction(1, 1000), Fraction(1), default=Fraction(1, 2)),
}
ROCCHIO = {
    "fb_docs": COUNT,
    "fb_terms": COUNT,
    "alpha": Option(Fraction(1, 1000), default=Fraction(1)),
    "beta": Option(Fraction(0), default=Fraction(3, 4)),
}
SPARSE_OPERATORS: dict[str, SparseOperator] = {
    "original": SparseOperator(_source("query"), ("query",)),
    "product": SparseOperator(_of_lists(product, "expanded"), BOTH),
    "rewrite": SparseOperator(_source("expanded"), ("expanded",)),
    "mask": SparseOperator(_of_lists(mask, "expanded"), BOTH),
    "references_only": SparseOperator(_source("references"), ("references",)),
    "references_product": SparseOperator(
        _of_lists(intersection_product, "references"), ("query", "references")
    ),
    "query2doc": SparseOperator(_source("query2doc"), ("query2doc",)),
    "mugi": SparseOperator(
        _source("mugi"),
        ("mugi",),
        {"min_repeats": Option(Fraction(0), whole=True, default=Fraction(0))},
    ),
    "relax_count": SparseOperator(
        _with_number(relax_count, "count"),
        BOTH,
        {"count": Option(Fraction(0), whole=True)},
        local=False,
    ),
    "relax_share": SparseOperator(_with_number(relax_share, "share"), BOTH, SHARE, local=False),
    "word2passage": SparseOperator(_source("word2passage"), ("word2passage",)),
    "masked_sum": SparseOperator(_with_number(masked_sum, "share"), BOTH, SHARE),
    "geometric": SparseOperator(_with_number(geometric, "share"), BOTH, SHARE),
    "rank_sum": SparseOperator(
        _with_number(rank_sum, "kappa"),
        BOTH,
        {"kappa": Option(Fraction(0), default=Fraction(60))},
        local=False,
    ),
    "rm3": SparseOperator(_source("rm3"), ("rm3",), RM3),
    "rm3_product": SparseOperator(_of_lists(product, "rm3"), ("query", "rm3"), RM3),
    "rocchio": SparseOperator(_source("rocchio"), ("rocchio",), ROCCHIO),
    "rocchio_product": SparseOperator(_of_lists(product, "rocchio"), ("query", "rocchio"), ROCCHIO),
}
