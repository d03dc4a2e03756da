"""How deep ranked lists must be cut so that the fused top K is right (method.md section 6.11).

People who run hybrid search choose one number L, the window that every list is cut at before
fusion. Three depths answer how large it must be. `window` is a closed form for all collections:
from there on every document of the top K is in some list's first L. `certified_window` is what one
query's own lists need: the smallest L from which the first L items prove the ordered top K,
whatever follows them. And a cut can be right by chance although nothing proves it: `cut_tops`.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion.cutoffs import renumbered
from desa_ray.core.fusion.depth import replay_prefixes
from desa_ray.core.fusion.exact import NEAR
from desa_ray.core.fusion.reference import closed_window, unread_bound
from desa_ray.core.fusion.rrf import (
    exact_score,
    fuse_order,
    fuse_prefixes,
    fuse_with_prefixes,
    rank_matrix,
)

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
    return max(k, closed_window(sum(weights, Fraction(0)) / max(weights), kappa, k))


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
    top = fuse_order(small, weights, kappa, k)
    if top.size < k or not top.size:
        closed = all(size == length for size, length in zip(sizes, lengths, strict=True))
        return (max(sizes), numbers[top]) if closed else None
    states = _States(small, lengths, weights, kappa)
    # Certified pairs are an up-set (6.15): the depths of S6's order hold the window between them.
    found = replay_prefixes(small, lengths, weights, kappa, k)
    low, high = (0, max(sizes)) if found is None else (min(found.depths), max(found.depths))
    if found is None and not states.certify(top, high):
        return None
    while low < high:
        middle = (low + high) // 2
        if states.certify(top, middle):
            high = middle
        else:
            low = middle + 1
    return high, numbers[top]


def cut_tops(
    lists: Lists, weights: Sequence[Fraction], kappa: Fraction, k: int, windows: Sequence[int]
) -> list[NDArray[np.int32]]:
    """The top k of the lists cut at each window, whatever it is worth."""
    largest = max((int(ranked.max(initial=0)) for ranked in lists), default=0)
    if windows and largest < 4 * sum(ranked.size for ranked in lists):
        return fuse_with_prefixes(lists, weights, kappa, 0, k, windows)[1]
    return fuse_prefixes(lists, weights, kappa, k, windows)


class _States:
    """The states (L, ..., L): floats find the few bounds that exact sums must decide."""

    def __init__(
        self, lists: Lists, lengths: Sequence[int], weights: Sequence[Fraction], kappa: Fraction
    ):
        self.lists, self.lengths, self.weights, self.kappa = lists, lengths, weights, kappa
        self.ranks_NC = rank_matrix(lists)
        self.there_NC = self.ranks_NC > 0
        self.weights_C = np.array(weights, float)
        shares_NC = self.weights_C / (float(kappa) + np.maximum(self.ranks_NC, 1))
        self.shares_NC = np.where(self.there_NC, shares_NC, 0.0)

    def certify(self, top: NDArray[np.int32], length: int) -> bool:
        """Whether the lists' first `length` items prove a top k, by S8-S10.

        A state that proves any top proves that of everything given, as that is one of its
        continuations.
        """
        self.length, last = length, int(top[-1])
        self.read = [min(length, items.size) for items in self.lists]
        opened = [read < whole for read, whole in zip(self.read, self.lengths, strict=True)]
        bounds_C = np.where(opened, self.weights_C / (float(self.kappa) + np.add(self.read, 1)), 0)
        own_C = np.where(self.ranks_NC[last] <= length, self.shares_NC[last], 0.0)
        own, unread = float(own_C.sum()), float(bounds_C.sum())
        if own < unread * (1 - NEAR):
            return False
        read_NC = self.ranks_NC <= length  # where a list lacks a document, its share is 0
        self.low_N = np.where(read_NC, self.shares_NC, 0.0).sum(axis=1)
        missing_NC = np.where(read_NC & self.there_NC, 0.0, bounds_C)
        self.high_N = self.low_N + missing_NC.sum(axis=1)
        if own <= unread * (1 + NEAR) and any(opened) and self.low(last) <= sum(self.bounds()):
            return False
        low_K, high_K = self.low_N[top[:-1]], self.high_N[top[1:]]
        if (low_K < high_K * (1 - NEAR)).any():
            return False
        close = np.flatnonzero(low_K <= high_K * (1 + NEAR)).tolist()
        if not all(self.precedes(int(top[n]), int(top[n + 1])) for n in close):
            return False
        rivals = self.rivals(last, top)
        if rivals and self.low_N[last] < self.high_N[rivals[0]] * (1 - NEAR):
            return False
        return all(self.precedes(last, rival) for rival in rivals)

    def bounds(self) -> list[Fraction]:
        """What an unread item of every list may contribute, exactly."""
        return [
            unread_bound(weight, self.kappa, read) if read < whole else Fraction(0)
            for weight, read, whole in zip(self.weights, self.read, self.lengths, strict=True)
        ]

    def low(self, document: int) -> Fraction:
        """LB, exactly."""
        ranks = [r if r <= self.length else 0 for r in self.ranks_NC[document].tolist()]
        return exact_score(ranks, self.weights, self.kappa)

    def high(self, document: int) -> Fraction:
        """UB, exactly."""
        ranks = self.ranks_NC[document].tolist()
        missing = [
            bound
            for rank, bound in zip(ranks, self.bounds(), strict=True)
            if not 0 < rank <= self.length
        ]
        return self.low(document) + sum(missing, Fraction(0))

    def precedes(self, first: int, second: int) -> bool:
        """S8."""
        near = NEAR * self.high_N[second]
        if abs(self.low_N[first] - self.high_N[second]) > near:
            return bool(self.low_N[first] > self.high_N[second])
        low, high = self.low(first), self.high(second)
        return low > high or (low == high and first < second)

    def rivals(self, last: int, top: NDArray[np.int32]) -> list[int]:
        """Documents read, outside `top`, that may reach its last one, most dangerous first."""
        reach = self.high_N >= self.low_N[last] * (1 - NEAR)
        reach &= self.low_N > 0
        reach[top] = False
        found = np.flatnonzero(reach)
        return found[np.argsort(-self.high_N[found], kind="stable")].tolist()
