"""The replay as a careful author writes it in Python: every read changes one document, so one
sorted list of the K best and one heap for each set of lists that a document was seen in are kept up
to date, and a condition that failed is asked first the next time.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush

KAPPA = 60


class HeapReplay:
    """Two or more lists of document numbers, equal weights, floats as usual."""

    def __init__(self, lists: Sequence[Sequence[int]], k: int):
        self.lists, self.k = lists, k
        self.read = [0] * len(lists)
        self.low: dict[int, float] = {}
        self.seen: dict[int, int] = {}  # bits of the lists that it was seen in
        self.best: list[tuple[float, int]] = []  # (-low, document), the K best
        self.heaps: list[list[tuple[float, int]]] = [[] for _ in range(1 << len(lists))]
        self.failed = 0

    def run(self) -> tuple[list[int], list[int]]:
        """Depths and the top."""
        while not self._certain():
            unread = self._unread()
            turn = max(range(len(unread)), key=unread.__getitem__)
            document = self.lists[turn][self.read[turn]]
            self.read[turn] += 1
            self._gain(document, turn, 1 / (KAPPA + self.read[turn]))
        return self.read, [document for _, document in self.best]

    def _unread(self) -> list[float]:
        return [
            1 / (KAPPA + n + 1) if n < len(own) else 0.0
            for n, own in zip(self.read, self.lists, strict=True)
        ]

    def _gain(self, document: int, turn: int, share: float) -> None:
        """One read: the document's lower bound rises, and it may enter or climb among the best."""
        before = self.low.get(document, 0.0)
        place = bisect_left(self.best, (-before, document))
        if place < len(self.best) and self.best[place][1] == document:
            del self.best[place]
        self.low[document] = before + share
        self.seen[document] = self.seen.get(document, 0) | 1 << turn
        entry = (-self.low[document], document)
        if len(self.best) == self.k:
            if entry > self.best[-1]:
                heappush(self.heaps[self.seen[document]], entry)
                return
            left = self.best.pop()
            heappush(self.heaps[self.seen[left[1]]], left)
        insort(self.best, entry)

    def _certain(self) -> bool:
        unread = self._unread()
        total = sum(unread)
        if total == 0.0:
            return True
        if len(self.best) < self.k or -self.best[-1][0] <= total:
            return False
        if not self._ordered(self.failed, unread):
            return False
        for bits, heap in enumerate(self.heaps):
            if not self._behind(bits, heap, unread):
                return False
        for place in range(self.k - 1):
            if not self._ordered(place, unread):
                self.failed = place
                return False
        return True

    def _missing(self, bits: int, unread: list[float]) -> float:
        return sum(u for c, u in enumerate(unread) if not bits >> c & 1)

    def _behind(self, bits: int, heap: list[tuple[float, int]], unread: list[float]) -> bool:
        """Whether the best of a heap is behind the last of the top; entries that are out of date
        are thrown away.
        """
        last = self.best[-1]
        while heap:
            low, document = heap[0]
            place = bisect_left(self.best, heap[0])
            among = place < len(self.best) and self.best[place][1] == document
            if self.seen[document] != bits or -low != self.low[document] or among:
                heappop(heap)
                continue
            return last < (low - self._missing(bits, unread), document)
        return True

    def _ordered(self, place: int, unread: list[float]) -> bool:
        if place + 1 >= len(self.best):
            return True
        low, document = self.best[place + 1]
        return self.best[place] < (low - self._missing(self.seen[document], unread), document)
