"""Sorted runs of keys, one for each part of a collection, merged into one ranking a piece at a time
(method.md section 6.8).

A run holds the keys (`desa_ray.core.topk`) of all documents of a part, best first. A document's
rank among all is the sum of its ranks in the runs, so the merged order is that of one sort, and a
piece of it needs only that piece of every run.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.ranking import complete_order, score_bits
from desa_ray.core.topk import Keys

PIECE = 1 << 20  # keys, about, that are merged at a time


def run_of(scores: NDArray[np.float32], first: int) -> Keys:
    """uint64 [n]: the keys of documents first .. first + n - 1, best first.

    Raises:
        DesaError: a score is NaN.
    """
    (order,) = complete_order(scores[None])
    high = score_bits(scores)[order].astype(np.uint64)
    return high << np.uint64(32) | (order.astype(np.int64) + first).astype(np.uint64)


def merged(runs: Sequence[Keys], piece: int | None = None) -> Iterator[Keys]:
    """The keys of all runs in order, in pieces of at most about twice `piece` keys.

    Args:
        runs: uint64, ascending, at least one; no key is in two of them.
        piece: `PIECE` where left out.
    """
    stride = max(1, (piece or PIECE) // len(runs))
    # Between neighbours of these edges are as many samples as runs. A run has at most `stride` keys
    # for each sample of its own there, and fewer than `stride` after the last.
    samples = np.sort(np.concatenate([run[stride - 1 :: stride] for run in runs]))
    edges = samples[len(runs) - 1 :: len(runs)]
    places = [np.searchsorted(run, edges, side="right").tolist() for run in runs]
    before = [0] * len(runs)
    for number in range(len(edges) + 1):
        after = [
            own[number] if number < len(edges) else len(run)
            for own, run in zip(places, runs, strict=True)
        ]
        pieces = [run[a:b] for run, a, b in zip(runs, before, after, strict=True)]
        before = after
        found = np.concatenate(pieces)
        if found.size:
            found.sort()
            yield found
