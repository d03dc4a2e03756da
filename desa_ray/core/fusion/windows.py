"""How deep ranked lists must be cut so that the fused top K is right (method.md section 6.11).

People who run hybrid search choose one number L, the window that every list is cut at before
fusion. Three depths answer how large it must be. `window` is a closed form for all collections:
from there on every document of the top K is in some list's first L. `certified_window` is what one
query's own lists need: the smallest L from which the first L items prove the ordered top K,
whatever follows them. And a cut can be right by chance although nothing proves it: `cut_tops`.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import floor

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion.cutoffs import cut, renumbered
from desa_ray.core.fusion.depth import replay_prefixes
from desa_ray.core.fusion.exact import NEAR
from desa_ray.core.fusion.reference import unread_bound
from desa_ray.core.fusion.rrf import exact_score, fuse_order, fuse_prefixes, rank_matrix

Lists = Sequence[NDArray[np.int32]]


def window(weights: Sequence[Fraction], kappa: Fraction, k: int) -> int:
    """The smallest L at which no document outside every list's first L can be in the top k.

    The k first documents of the list with the largest weight w* have at least w*/(kappa + k) each;
    a document that every list shows behind L has at most the sum of w/(kappa + L + 1). So
    L = floor(sum(w) (kappa + k) / w* - kappa): kappa + 2k for two lists of equal weight. It needs a
    list of weight w* with k documents. The order of the top k needs the documents' places in the
    other lists as well, which a window does not give.

    Args:
        weights: one exact rational > 0 per list.
        kappa: an exact rational > -1.
        k: documents wanted, 1 or more.
    """
    return max(k, floor(sum(weights) * (kappa + k) / max(weights) - kappa))


def certified_window(
    lists: Lists,
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
    *,
    ends: bool = False,
) -> tuple[int, NDArray[np.int32]] | None:
    """The smallest L at which the lists' first L items prove the ordered top k; and that top k.

    Args:
        lists: int32 arrays of distinct document numbers, best first.
        weights, kappa: as for a fusion.
        k: documents to prove, 1 or more.
        ends: whether the lists are whole; else anything may follow their last items.

    Returns:
        None where all that is given proves nothing.
    """
    sizes = [ranked.size for ranked in lists]
    lengths = sizes if ends else [size + 1 for size in sizes]
    if len(set(weights)) == 1 and (ends or len(set(sizes)) == 1):
        # Reading in turns passes through every state (L, ..., L).
        found = replay_prefixes(lists, lengths, weights, kappa, k)
        return None if found is None else (max(found.depths), found.topk)
    numbers, small = renumbered(lists)
    proves = partial(_proved, small, lengths, weights, kappa, k)
    top = proves(max(sizes))
    if top is None:
        return None
    low, high = 0, max(sizes)  # proved at `high`, and once proved always
    while low < high:
        middle = (low + high) // 2
        if proves(middle) is None:
            low = middle + 1
        else:
            high = middle
    return high, numbers[top]


def cut_tops(
    lists: Lists, weights: Sequence[Fraction], kappa: Fraction, k: int, windows: Sequence[int]
) -> list[NDArray[np.int32]]:
    """The top k of the lists cut at each window, whatever it is worth."""
    return fuse_prefixes(lists, weights, kappa, k, windows)


def _proved(
    lists: Lists,
    lengths: Sequence[int],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
    window: int,
) -> NDArray[np.int32] | None:
    """The top k that the state (window, ..., window) certifies by S7-S10; None where it does
    not.
    """
    read = cut(lists, window)
    bounds = [
        unread_bound(weight, kappa, items.size) if items.size < length else Fraction(0)
        for weight, items, length in zip(weights, read, lengths, strict=True)
    ]
    closed = not any(bounds)
    top = fuse_order(read, weights, kappa, k)
    if top.size < k or not top.size:
        return top if closed else None
    state = _State(read, weights, kappa, bounds)
    last = int(top[-1])
    if not closed and state.low(last) <= sum(bounds):
        return None
    if not all(state.precedes(int(a), int(b)) for a, b in pairwise(top)):
        return None
    rivals = state.rivals(last, top)
    return top if all(state.precedes(last, rival) for rival in rivals) else None


class _State:
    """Bounds of all documents that were read: floats find the few that exact sums must decide."""

    def __init__(
        self,
        read: Lists,
        weights: Sequence[Fraction],
        kappa: Fraction,
        bounds: Sequence[Fraction],
    ):
        self.weights, self.kappa, self.bounds = weights, kappa, bounds
        self.ranks_NC = rank_matrix(read)
        weights_C, bounds_C = np.array(weights, float), np.array(bounds, float)
        there = self.ranks_NC > 0
        shares = np.where(there, weights_C / (float(kappa) + np.maximum(self.ranks_NC, 1)), 0.0)
        self.low_N = shares.sum(axis=1)
        self.high_N = self.low_N + np.where(there, 0.0, bounds_C).sum(axis=1)

    def low(self, document: int) -> Fraction:
        return exact_score(self.ranks_NC[document].tolist(), self.weights, self.kappa)

    def high(self, document: int) -> Fraction:
        ranks = self.ranks_NC[document].tolist()
        missing = [b for rank, b in zip(ranks, self.bounds, strict=True) if not rank]
        return self.low(document) + sum(missing, Fraction(0))

    def precedes(self, first: int, second: int) -> bool:
        """S8."""
        near = NEAR * self.high_N[second]
        if abs(self.low_N[first] - self.high_N[second]) > near:
            return bool(self.low_N[first] > self.high_N[second])
        low, high = self.low(first), self.high(second)
        return low > high or (low == high and first < second)

    def rivals(self, last: int, top: NDArray[np.int32]) -> list[int]:
        """Documents outside `top` that may reach the last one of it, most dangerous first."""
        reach = self.high_N >= self.low_N[last] * (1 - NEAR)
        reach &= self.low_N > 0
        reach[top] = False
        found = np.flatnonzero(reach)
        return found[np.argsort(-self.high_N[found], kind="stable")].tolist()
