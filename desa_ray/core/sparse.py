"""Sparse equations: one scored hit list from the hit lists of a query and its expansions (method.md
section 4).

Support is the hit list itself, never `score > 0`: a hit whose score rounds to zero stays.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SparseHits:
    """A hit list.

    Attributes:
        docs: int32 [S], document numbers, ascending.
        scores: float32 or float64 [S], the score of each.
    """

    docs: NDArray[np.int32]
    scores: NDArray[np.float32] | NDArray[np.float64]

    def __post_init__(self) -> None:
        assert self.docs.dtype == np.int32
        assert self.docs.shape == self.scores.shape
        assert bool(np.all(self.docs[1:] > self.docs[:-1])), "document numbers must ascend"


def product(original: SparseHits, expanded: SparseHits) -> SparseHits:
    """The score product (anchoring): s_o s_r on supp(s_o), in float64, where a product of two
    float32 is exact.

    The expanded query contains the original one, so every hit of `original` is a hit of `expanded`.
    """
    places = _places(original, expanded)
    return SparseHits(original.docs, original.scores.astype(np.float64) * expanded.scores[places])


def mask(original: SparseHits, expanded: SparseHits) -> SparseHits:
    """Binary mask: s_r on supp(s_o)."""
    return SparseHits(original.docs, expanded.scores[_places(original, expanded)])


def intersection_product(original: SparseHits, references: SparseHits) -> SparseHits:
    """s_o s_refs on supp(s_o) and supp(s_refs), in float64."""
    docs, first, second = np.intersect1d(
        original.docs, references.docs, assume_unique=True, return_indices=True
    )
    return SparseHits(docs, original.scores[first].astype(np.float64) * references.scores[second])


def _places(original: SparseHits, expanded: SparseHits) -> NDArray[np.intp]:
    """Positions of the hits of `original` among those of `expanded`."""
    places = np.searchsorted(expanded.docs, original.docs)
    found = places < expanded.docs.size
    found[found] = expanded.docs[places[found]] == original.docs[found]
    assert bool(found.all()), (
        f"hits of the query that its expansion lacks: documents {original.docs[~found][:10]}"
    )
    return places
