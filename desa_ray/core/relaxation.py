"""Selective support relaxation: score-product anchoring that admits a few expansion-only documents.

Product anchoring gives generated text no say in what is retrieved: a document that matches only the
expansion is left out. The paper names relaxing this, selectively, as future work; these two
operators are our proposal. An admitted document has no original score, so it is treated as if it
matched the query as weakly as the weakest match does:

    s(d) = s_o(d) s_r(d) on supp(s_o),      s(d) = min s_o * s_r(d) for an admitted d

(min s_o is 1 where the query matches nothing). Thus it never precedes a document of the
original support that the expansion likes as much, the original support keeps its own order, and
with nothing admitted this is product anchoring, bit for bit.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.sparse import SparseHits, product


def relax_count(original: SparseHits, expanded: SparseHits, count: Fraction) -> SparseHits:
    """Admits the `count` (a whole number >= 0) expansion-only documents of the highest s_r, ties by
    number.
    """
    outside = _outside(original, expanded)
    best = np.argsort(-expanded.scores[outside], kind="stable")[: int(count)]
    return _admitting(original, expanded, np.sort(outside[best]))


def relax_share(original: SparseHits, expanded: SparseHits, share: Fraction) -> SparseHits:
    """Admits the expansion-only documents with s_r above `share` (0..1) times the highest s_r; 1
    admits none.
    """
    outside = _outside(original, expanded)
    scores = expanded.scores.astype(np.float64)
    return _admitting(
        original, expanded, outside[scores[outside] > float(share) * scores.max(initial=0.0)]
    )


def _outside(original: SparseHits, expanded: SparseHits) -> NDArray[np.intp]:
    """Places, in the expanded hit list, of documents that the original one lacks."""
    return np.flatnonzero(~np.isin(expanded.docs, original.docs, assume_unique=True))


def _admitting(original: SparseHits, expanded: SparseHits, places: NDArray[np.intp]) -> SparseHits:
    anchored = product(original, expanded)
    floor = np.float64(original.scores.min()) if original.docs.size else np.float64(1)
    docs = np.concatenate([anchored.docs, expanded.docs[places]])
    scores = np.concatenate([anchored.scores, floor * expanded.scores[places]]).astype(np.float64)
    order = np.argsort(docs, kind="stable")
    return SparseHits(docs[order], scores[order])
