"""Whether one document precedes another in every continuation of what was read of some lists
(method.md section 6.13).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from desa_ray.core.rules.registry import Rule

Known = dict[int, list[Fraction | None]]


@dataclass(frozen=True)
class OpenList:
    """A list that is not read to its end."""

    place: int
    high: Fraction
    least: Fraction
    left: int


class Pairs:
    """Whether one document precedes another in every continuation.

    Two documents are independent in a list, unless just one place of it is unread: then at most one
    of them can be there.
    """

    def __init__(self, rule: Rule, seen: Known, opened: Sequence[OpenList], lists: int):
        self.rule, self.seen, self.opened, self.lists = rule, seen, opened, lists
        self._extremes: dict[tuple[int | None, bool], Fraction] = {}

    def __call__(self, one: int, two: int | None) -> bool:
        first = self.seen[one]
        second = self.seen[two] if two is not None else [None] * self.lists
        missing = [own for own in self.opened if first[own.place] is None]
        shared = [own for own in missing if own.left == 1 and second[own.place] is None]
        if not shared:
            return self._sure(self.extreme(one, False), self.extreme(two, True), one, two)
        # In each such list: neither has the place, the first one, or the second.
        for places in product((None, False, True), repeat=len(shared)):
            given = dict(zip((own.place for own in shared), places, strict=True))
            high = self._bound(second, two is None, given, True)
            if high is None:
                continue
            low = self._bound(first, False, given, False)
            assert low is not None
            if not self._sure(low, high, one, two):
                return False
        return True

    def _sure(self, low: Fraction, high: Fraction, one: int, two: int | None) -> bool:
        return low > high or (low == high and two is not None and one < two)

    def extreme(self, document: int | None, high: bool) -> Fraction:
        """The largest or the smallest score of a document; None is one that was read nowhere."""
        key = document, high
        if key not in self._extremes:
            own = self.seen[document] if document is not None else [None] * self.lists
            found = self._bound(own, document is None, {}, high)
            assert found is not None
            self._extremes[key] = found
        return self._extremes[key]

    def _bound(
        self,
        own: Sequence[Fraction | None],
        new: bool,
        given: dict[int, bool | None],
        high: bool,
    ) -> Fraction | None:
        """The largest or the smallest score; None where a new document is in no list at all.

        Args:
            own: what the lists read so far give the document.
            new: whether it is a document that was read nowhere, which some list must hold.
            given: by list, who has its one unread place: None, the first (False) or the second
                (True) of a pair; `high` says which of the two this is.
        """
        missing = [c for c in self.opened if own[c.place] is None]
        choices: list[tuple[Fraction | None, ...]] = []
        for c in missing:
            there = c.high if high else c.least
            holder = given.get(c.place, "free")
            if holder == "free":
                choices.append((None, there))
            else:
                choices.append((there,) if holder is high else (None,))
        found = None
        for chosen in product(*choices):
            if new and all(x is None for x in chosen):
                continue
            filled = list(own)
            for c, x in zip(missing, chosen, strict=True):
                filled[c.place] = x
            score = self.rule.combined(filled)
            if found is None or (score > found if high else score < found):
                found = score
        return found
