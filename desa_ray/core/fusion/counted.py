"""The exact top K and its exact certification depths from the head of each list and the ranks of
few documents (method.md section 6.14).

Pass 1 keeps the head of every list. If a list has K documents or more, let w* be the largest weight
among those that do. Its first K documents have at least w*/(kappa + K) each, and a document that no
list shows before rank r has at most sum(w)/(kappa + r). So every member of the top K stands within
rank

    m = floor(sum(w) (kappa + K) / w* - kappa)

of some list: kappa + 2K for two lists of equal weight, whatever the collection. Pass 2 counts, for
each of these documents and each list, how many documents precede it there. From their ranks follow
the exact top K and, as every other document's upper bound is too low as soon as m items of every
list are read, the step at which the replay (S1 to S12) stops, however deep that is.
`desa_ray.core.counting` counts; `desa_ray.core.fusion.reference` has the same in rationals.

Legend: C channels, W documents within rank m of some channel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion import reference
from desa_ray.core.fusion.counted_kernels import first_certain
from desa_ray.core.fusion.cutoffs import cut
from desa_ray.core.fusion.depth import Replay, replay_prefixes
from desa_ray.core.fusion.exact import P, Q, constants_of
from desa_ray.core.fusion.reference import closed_window
from desa_ray.core.fusion.rrf import exact_score
from desa_ray.core.fusion.rrf_kernels import settle

Lists = Sequence[NDArray[np.int32]]
KEY_BYTES = 8  # of a score and a document's number
COUNT_BYTES = 12  # of a score that is asked for and the count that comes back


@dataclass(frozen=True)
class Head:
    """What must be held of the lists of one query.

    Attributes:
        window: m: the top K stands within this rank of some list.
        reads: P_c: items of every channel read at the first step of S6's order at which m items,
            or all, of every channel are read.
    """

    window: int
    reads: tuple[int, ...]


def head_of(lengths: Sequence[int], weights: Sequence[Fraction], kappa: Fraction, k: int) -> Head:
    """The head that the top k >= 1 needs of lists of these lengths; whole lists where none of them
    has k documents.
    """
    full = [weight for weight, length in zip(weights, lengths, strict=True) if length >= k]
    if not full:
        return Head(max(lengths), tuple(lengths))
    m = closed_window(sum(weights, Fraction(0)) / max(full), kappa, k)
    return Head(m, state_within(m, lengths, weights, kappa))


def state_within(
    m: int, lengths: Sequence[int], weights: Sequence[Fraction], kappa: Fraction
) -> tuple[int, ...]:
    """Items read of every channel at the first step at which m items, or all, of each are read."""
    state = [0] * len(lengths)
    for c, length in enumerate(lengths):
        item = min(m, length)
        if item == 0:
            continue
        # what is read by then: items of a bound above this one's, the first channel of equals first
        for other, limit in enumerate(lengths):
            reach = weights[other] * (kappa + item) / weights[c] - kappa
            read = floor(reach) if other <= c else ceil(reach) - 1
            state[other] = max(state[other], min(max(read, 0), limit))
    return tuple(state)


def members(channels: Lists, m: int) -> NDArray[np.int32]:
    """int32 [W], ascending: the documents within rank m of some channel."""
    return np.unique(np.concatenate([np.empty(0, np.int32), *cut(channels, m)]))


def counted_order(
    documents: NDArray[np.int32],
    ranks_WC: NDArray[np.int32],
    weights: Sequence[Fraction],
    kappa: Fraction,
    m: int,
) -> NDArray[np.int32]:
    """The first m of some documents in the exact fused order, as places in `documents`.

    Args:
        documents: int32 [W], ascending.
        ranks_WC: int32 [W, C], their ranks in the whole channels, 0 where one lacks them.
    """
    longest = int(ranks_WC.max(initial=1))
    scale = constants_of(weights, kappa).scale(longest)
    if scale is None:
        scores = [exact_score(ranks, weights, kappa) for ranks in ranks_WC.tolist()]
        places = sorted(range(documents.size), key=lambda place: (-scores[place], place))
        return np.array(places[:m], np.int32)
    denominators = np.where(ranks_WC > 0, scale[P] + scale[Q] * ranks_WC.astype(float), np.inf)
    scores_W = (scale[: len(weights)] / denominators).sum(axis=1)
    order = np.argsort(-scores_W, kind="stable").astype(np.int32)
    settle(order, scores_W, np.full(len(weights), longest, np.int32), ranks_WC, scale)
    return order[:m]


def counted_replay(
    heads: Lists,
    lengths: Sequence[int],
    documents: NDArray[np.int32],
    ranks_WC: NDArray[np.int32],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
) -> Replay:
    """What `desa_ray.core.fusion.depth.replay` finds on the whole channels.

    Args:
        heads: the first `head_of(...).reads` documents of every channel, or more.
        lengths: how long the channels are.
        documents: int32 [W], ascending: `members` of its window, or more documents.
        ranks_WC: int32 [W, C], their ranks in the whole channels, 0 where one lacks them.

    Raises:
        DesaError: a weight, kappa or k out of range, a document twice in a head.
    """
    early = replay_prefixes(heads, lengths, weights, kappa, k)
    if early is not None:
        return early
    start = head_of(lengths, weights, kappa, k).reads
    assert all(head.size >= read for head, read in zip(heads, start, strict=True)), "short heads"
    top = counted_order(documents, ranks_WC, weights, kappa, k)
    scale = constants_of(weights, kappa).scale(max(lengths))
    if scale is None:
        ranks = [dict(zip(head.tolist(), range(1, head.size + 1), strict=True)) for head in heads]
        for own, column in zip(ranks, ranks_WC.T.tolist(), strict=True):
            own.update(
                (document, rank)
                for document, rank in zip(documents.tolist(), column, strict=True)
                if rank
            )
        stop = reference.stop_state(ranks, lengths, weights, kappa, documents[top].tolist())
    else:
        state = np.array(start, np.int32)
        first_certain(top, ranks_WC, np.array(lengths, np.int32), scale, state)
        stop = state.tolist()
    exhausted = tuple(read == length for read, length in zip(stop, lengths, strict=True))
    return Replay(tuple(stop), exhausted, sum(stop), documents[top])


def traffic_bytes(reads: Sequence[int], documents: int, ranges: int = 1) -> int:
    """Bytes that one query moves between those who score ranges of the collection and the one who
    fuses: P_c keys of each channel and range, and W scores and counts of each.
    """
    return ranges * (KEY_BYTES * sum(reads) + COUNT_BYTES * documents * len(reads))
