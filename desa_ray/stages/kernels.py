"""Every numba kernel of a run, compiled once per machine.

numba keeps compiled code next to the sources (or in the user's cache folder). Workers that start
together would all find nothing and all compile; so each one first calls every kernel on a few
numbers under a lock that the machine shares: the first compiles, the others load. The calls use the
argument types of real runs, which a test holds them to: a run after this compiles nothing more.
"""

from fractions import Fraction
from functools import cache

import numpy as np

from desa_ray.core.adjusted import adjusted
from desa_ray.core.counting import Counting
from desa_ray.core.dense import anchored, contextual, residual
from desa_ray.core.fusion import release
from desa_ray.core.fusion.access import least_depths
from desa_ray.core.fusion.counted_kernels import first_certain
from desa_ray.core.fusion.depth import replay, replay_prefixes
from desa_ray.core.fusion.exact import constants_of
from desa_ray.core.fusion.rrf import fuse_order, fuse_with_prefixes
from desa_ray.core.ranking import complete_order
from desa_ray.core.sparse import SparseHits
from desa_ray.core.topk import TopK
from desa_ray.engines.bm25 import BM25
from desa_ray.engines.postings import Postings
from desa_ray.locks import KERNELS, held
from desa_ray.places import private_folder


@cache
def compile_kernels() -> None:
    """Compiles or loads all kernels, one process of the user's on this machine at a time; the
    second time nothing.

    Raises:
        DesaError: another process compiled for too long, or there is no private place for the lock.
    """
    with held(KERNELS, private_folder() / "kernels.lock"):
        texts = np.ones((1, 2, 3), np.float32)
        residual(np.ones((1, 3), np.float32), texts)
        contextual(texts)
        anchored(np.ones((1, 3), np.float32), texts, 0.5)
        scores = np.array([[0.5, 0.25]], np.float32)
        (order,) = complete_order(scores)
        TopK(1, 1, 2).add(scores, 0)
        weights, kappa = [Fraction(1), Fraction(1)], Fraction(60)
        fuse_order([order, order], weights, kappa)
        # A short head takes another way
        fuse_order([np.arange(20, dtype=np.int32)] * 2, weights, kappa, 1)
        fuse_with_prefixes([order, order], weights, kappa, 1, 1)
        replay([order, order], weights, kappa, 1)
        replay_prefixes([order[:1], order], [2, 2], weights, kappa, 2)
        scale = constants_of(weights, kappa).scale(2)
        assert scale is not None
        state = np.zeros((2, 2), np.int32)
        first_certain(order[:1], np.ones((2, 2), np.int32), state[0], scale, state[1])
        least_depths([order, order], weights, kappa, 1)
        counting = Counting(order, scores[0])
        counting.add(order, scores[0])
        release.replay([order, order], weights, kappa, 1)
        docs, found = _one_document().scores([])
        _one_document().scores_of([], np.zeros(1, np.int32))
        adjusted(SparseHits(docs, found))


def _one_document() -> BM25:
    """A scorer of one document that holds one word."""
    return BM25(
        Postings(
            terms=np.frombuffer(b"a", np.uint8),
            term_offsets=np.array([0, 1]),
            indptr=np.array([0, 1]),
            docs=np.zeros(1, np.int32),
            freqs=np.ones(1, np.int32),
            norms=np.ones(1, np.uint8),
            doc_count=1,
            sum_total_term_freq=1,
        )
    )
