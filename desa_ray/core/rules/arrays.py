"""Rules on arrays: floats order what they can tell apart, exact fractions the rest (method.md
sections 6.12 and 6.13).

Results equal those of `fuse` and `certify`, which compute with fractions throughout. Of a list only
its head may be held; then a state beyond it is never reached.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion.depth import Replay
from desa_ray.core.rules.certify import refusal
from desa_ray.core.rules.continuations import OpenList, Pairs
from desa_ray.core.rules.fuse import ordered
from desa_ray.core.rules.held_lists import EPS, Documents, Floats, HeldList
from desa_ray.core.rules.registry import Rule
from desa_ray.errors import DesaError

FIRST_HEAD = 1024  # items of each list that a certificate is looked for in first


class ArrayFusion:
    """The lists of one query, ready to be fused and certified."""

    def __init__(self, rule: Rule, lists: Sequence[HeldList]):
        self.rule, self.lists = rule, lists
        held = [np.empty(0, np.int32), *(own.documents for own in lists)]
        self.union: Documents = np.unique(np.concatenate(held))
        shape = len(lists), self.union.size
        self.place_CN = np.full(shape, np.iinfo(np.int64).max, np.int64)
        self.value_CN = np.zeros(shape)
        for c, own in enumerate(lists):
            at = np.searchsorted(self.union, own.documents)
            self.place_CN[c, at] = np.arange(own.documents.size)
            self.value_CN[c, at] = own.values
        factors = rule.factors
        if factors is None:  # an arithmetic mean
            assert rule.mean == "arithmetic", rule.mean
            shares = np.array([float(w / sum(rule.weights)) for w in rule.weights])
            self.value_CN *= shares[:, None]
            factors = (Fraction(1),) * (len(lists) + 1)
        self.factors = np.array([float(factor) for factor in factors])
        self.zero = np.array([not factor for factor in factors])
        errors = sum(own.error for own in lists)
        sizes = sum(float(np.abs(own.values).max(initial=0.0)) for own in lists)
        sizes += sum(abs(float(own.first or 0)) + abs(float(own.least)) for own in lists)
        self.tolerance = 4 * (errors + EPS * sizes) * max(1.0, float(self.factors.max()))

    def order(self, count: int | None = None) -> Documents:
        """The first `count` documents (None: all), best first."""
        seen_CN = self.place_CN < np.iinfo(np.int64).max
        found = self._ordered(seen_CN, np.arange(self.union.size), count)
        return self.union[found[:count]]

    def _ordered(
        self, seen_CN: NDArray[np.bool_], among: NDArray[np.intp], count: int | None
    ) -> NDArray[np.intp]:
        """Documents of the union, by index: their order where nothing else is known."""
        seen = seen_CN[:, among]
        held = seen.sum(0)
        scores = np.where(seen, self.value_CN[:, among], 0.0).sum(0) * self.factors[held]
        zero = self.zero[held]
        order = np.argsort(-scores, kind="stable")
        ranked = scores[order]
        close = ranked[:-1] - ranked[1:] <= self.tolerance
        starts = np.flatnonzero(np.concatenate([[True], ~close])).tolist()
        for begin, end in pairwise([*starts, order.size]):
            if end - begin < 2 or (count is not None and begin >= count):
                continue
            own = order[begin:end]
            if not zero[own].all():
                exact = {n: self._exact(int(among[n]), seen_CN[:, among[n]]) for n in own.tolist()}
                order[begin:end] = sorted(exact, key=lambda n: (-exact[n], n))
        return among[order]

    def _known(self, document: int, seen_C: NDArray[np.bool_]) -> list[Fraction | None]:
        """What the lists give a document where they have shown it."""
        places = self.place_CN[:, document].tolist()
        found: list[Fraction | None] = []
        for own, place, seen in zip(self.lists, places, seen_C.tolist(), strict=True):
            found.append(own.exact(place) if seen else None)
        return found

    def _exact(self, document: int, seen_C: NDArray[np.bool_]) -> Fraction:
        return self.rule.combined(self._known(document, seen_C))

    @cached_property
    def reads_C(self) -> NDArray[np.int64]:
        """The lists in the order in which their held items are read, up to the first read that
        would go beyond what is held: int64 [reads].
        """
        priorities: list[Floats] = []
        for own in self.lists:
            values = own.values
            if not own.ranks and values.size:
                first = np.inf if own.first is None else float(own.first)
                values = np.concatenate([[first], values[:-1]])
            if own.ranks and own.documents.size < own.length:
                values = np.append(values, float(own.exact(own.documents.size)))
            elif own.documents.size < own.length:
                values = np.append(values, own.values[-1:])
            priorities.append(values)
        sizes = [own.size for own in priorities]
        lists = np.repeat(np.arange(len(sizes)), sizes)
        items = np.concatenate([np.arange(size) for size in sizes])
        high = np.concatenate(priorities)
        order = np.lexsort((lists, -high))
        equal = len(set(self.rule.weights)) == 1 and all(own.ranks for own in self.lists)
        if not equal and order.size:
            self._settle_reads(order, lists, items, high)
        beyond = [own.documents.size for own in self.lists]
        missing = np.flatnonzero(items[order] >= np.array(beyond)[lists[order]])
        return lists[order][: missing[0] if missing.size else None].astype(np.int64)

    def _settle_reads(
        self,
        order: NDArray[np.intp],
        lists: NDArray[np.intp],
        items: NDArray[np.intp],
        high: Floats,
    ) -> None:
        """Puts reads whose bounds floats cannot tell apart into their exact order, in place."""
        with np.errstate(invalid="ignore"):
            close = ~(high[order[:-1]] - high[order[1:]] > self.tolerance)
        starts = np.flatnonzero(np.concatenate([[True], ~close])).tolist()
        for begin, end in pairwise([*starts, order.size]):
            own = order[begin:end]
            if end - begin < 2 or np.unique(lists[own]).size < 2:
                continue
            keys: dict[int, tuple[bool, Fraction, int, int]] = {}
            for n in own.tolist():
                c, item = int(lists[n]), int(items[n])
                bound = self.lists[c].bound(item)
                keys[n] = (bound is not None, -(bound or Fraction(0)), c, item)
            order[begin:end] = sorted(keys, key=keys.__getitem__)

    def certified(self, k: int) -> Replay | None:
        """Where reading the lists stops (`certify`'s sorted depths), and the top k; None where what
        is held does not prove it.

        Raises:
            DesaError: the rule has no certificate.
        """
        reason = refusal(self.rule)
        if reason is not None:
            raise DesaError(reason, where=self.rule.name)
        reads = self.reads_C
        counts_TC = np.zeros((reads.size + 1, len(self.lists)), np.int64)
        np.cumsum(np.eye(len(self.lists), dtype=np.int64)[reads], axis=0, out=counts_TC[1:])
        low, high = 0, reads.size
        if self._proved(counts_TC[high], k) is None:
            return None
        while low < high:
            middle = (low + high) // 2
            if self._proved(counts_TC[middle], k) is None:
                low = middle + 1
            else:
                high = middle
        top = self._proved(counts_TC[low], k)
        assert top is not None
        depths = tuple(counts_TC[low].tolist())
        ended = tuple(d == own.length for d, own in zip(depths, self.lists, strict=True))
        return Replay(depths, ended, low, self.union[top])

    def _proved(self, counts_C: NDArray[np.int64], k: int) -> NDArray[np.intp] | None:
        """The top k by index where every continuation of what was read has it, in this order."""
        opened: list[OpenList] = []
        for c, (own, count) in enumerate(zip(self.lists, counts_C.tolist(), strict=True)):
            if count < own.length:
                bound = own.bound(count)
                if bound is None:
                    return None
                opened.append(OpenList(c, bound, own.least, own.length - count))
        seen_CN = self.place_CN < counts_C[:, None]
        read = np.flatnonzero(seen_CN.any(0))
        if not opened:
            return self._ordered(seen_CN, read, k)[:k]
        if read.size < k:
            return None
        order = self._ordered(seen_CN, read, k)
        top, others = order[:k], order[k:]
        low_N, high_N, unread = self._bounds(seen_CN, opened)
        last = low_N[top[-1]]
        margin = self.tolerance
        shared = any(own.left == 1 for own in opened)
        pairs = Pairs(self.rule, _Seen(self, seen_CN), opened, len(self.lists))
        for one, two in pairwise(top.tolist()):
            if not self._precedes(pairs, (one, two), float(low_N[one] - high_N[two]), shared):
                return None
        if not self._precedes(pairs, (int(top[-1]), None), float(last - unread), shared):
            return None
        gaps = last - high_N[others]
        doubtful = others[gaps <= margin]
        if not shared and bool((gaps < -margin).any()):
            return None
        for other in doubtful.tolist():
            if not pairs(int(top[-1]), other):
                return None
        return top

    def _precedes(
        self, pairs: Pairs, two: tuple[int, int | None], gap: float, shared: bool
    ) -> bool:
        if gap > self.tolerance:
            return True
        return (shared or gap >= -self.tolerance) and pairs(*two)

    def _bounds(
        self, seen_CN: NDArray[np.bool_], opened: Sequence[OpenList]
    ) -> tuple[Floats, Floats, float]:
        """LB and UB of every document, and UB of one that was read nowhere."""
        known = np.where(seen_CN, self.value_CN, 0.0).sum(0)
        held = seen_CN.sum(0)
        low = known * self.factors[held]
        high = low.copy()
        unread = -np.inf
        for chosen in product((False, True), repeat=len(opened)):
            if not any(chosen):
                continue
            gains, losses, more = np.zeros(known.size), np.zeros(known.size), np.zeros_like(held)
            most = 0.0
            for own, taken in zip(opened, chosen, strict=True):
                if taken:
                    free = ~seen_CN[own.place]
                    gains += np.where(free, float(own.high), 0.0)
                    losses += np.where(free, float(own.least), 0.0)
                    more += free
                    most += float(own.high)
            factor = self.factors[held + more]
            high = np.maximum(high, (known + gains) * factor)
            low = np.minimum(low, (known + losses) * factor)
            unread = max(unread, most * float(self.factors[sum(chosen)]))
        return low, high, unread


class _Seen(dict[int, list[Fraction | None]]):
    """What was read of documents, by index, computed for those that are asked for."""

    def __init__(self, fusion: ArrayFusion, seen_CN: NDArray[np.bool_]):
        super().__init__()
        self.fusion, self.seen_CN = fusion, seen_CN

    def __missing__(self, document: int) -> list[Fraction | None]:
        known = self.fusion._known(document, self.seen_CN[:, document])  # pyright: ignore
        self[document] = known
        return known


def fused_order(rule: Rule, lists: Sequence[HeldList], count: int | None = None) -> Documents:
    """The first `count` documents (None: all) by any rule, best first."""
    if rule.mean in ("", "arithmetic"):
        return ArrayFusion(rule, lists).order(count)
    # Geometric and harmonic means jump where a list lacks a document: fractions throughout.
    whole: dict[int, list[Fraction | None]] = {}
    for place, own in enumerate(lists):
        for item, document in enumerate(own.documents.tolist()):
            whole.setdefault(document, [None] * len(lists))[place] = own.exact(item)
    scores = {document: rule.combined(values) for document, values in whole.items()}
    found = [document for document, _ in ordered(scores)[:count]]
    return np.array(found, np.int32)


def sorted_replay(rule: Rule, lists: Sequence[HeldList], k: int) -> Replay | None:
    """`ArrayFusion.certified`, on short heads of the lists first: most stop early."""
    longest = max((own.documents.size for own in lists), default=0)
    size = min(FIRST_HEAD, longest)
    while True:
        found = ArrayFusion(rule, [own.head(size) for own in lists]).certified(k)
        if found is not None or size >= longest:
            return found
        size = min(4 * size, longest)
