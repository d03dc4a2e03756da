"""How deep lists must be read to prove a rule's ordered top k (method.md section 6.13).

Sorted access: every list is read from its head, one item at a time, and nothing else is known
(Fagin's NRA, with the order proved too). Random access: the contributions of all lists to a
document are looked up as soon as it is first read (Fagin's TA). A document that was not read in
list c is absent from it, or its contribution is between `least[c]` and the bound of the next place.
Both ends count: if scores can be below 0, or a mean leaves out absent lists, a document can score
higher absent than present.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from desa_ray.core.rules.continuations import Known, OpenList, Pairs
from desa_ray.core.rules.fuse import Scored, contributions_of, ordered
from desa_ray.core.rules.registry import Rule, ScoredList
from desa_ray.errors import DesaError

MOST_LISTS = 8


@dataclass(frozen=True)
class Certificate:
    """What must be read of each list to be sure of the ordered top k.

    Attributes:
        top: the k documents with their scores.
        sorted_depths: items of each list by sorted access alone.
        random_depths: items of each list if every document read is looked up in all lists.
    """

    top: list[Scored]
    sorted_depths: tuple[int, ...]
    random_depths: tuple[int, ...]


@dataclass(frozen=True)
class Lane:
    """One list as a reader meets it: contributions in order, and what bounds the unread ones."""

    documents: Sequence[int]
    values: Sequence[Fraction]
    first: Fraction | None  # nothing unread gets more before the first read; None: unknown
    least: Fraction  # nothing gets less
    ranks: bool  # the next item's contribution is known beforehand

    def bound(self, read: int) -> Fraction | None:
        """The largest contribution of an unread item; None where anything is possible."""
        if self.ranks:
            return self.values[read]
        return self.values[read - 1] if read else self.first


def refusal(rule: Rule, frozen: bool = False) -> str | None:
    """Why a rule has no certificate; None if it has one.

    Args:
        frozen: whether statistics of the whole lists are known beforehand, from a full pass or
            another source.
    """
    if len(rule.weights) > MOST_LISTS:
        return (
            f"a proof looks at every combination of lists, of which there are too many for more"
            f" than {MOST_LISTS}"
        )
    chosen = rule.normaliser
    if chosen is None:
        return None
    if chosen.whole and not frozen:
        return (
            f"{rule.name} normalises every list by {chosen.whole}, which only the whole list"
            " determines"
        )
    if not chosen.whole and any(bounds.least is None for bounds in rule.bounds):
        return "the least possible score is unknown, so an unread document may lose any amount"
    return None


def certify(
    rule: Rule, lists: Sequence[ScoredList], k: int, *, frozen: bool = False
) -> Certificate:
    """The ordered top k and how deep the lists must be read to prove it, by either access.

    Lists are read in the order of S6: next comes the list with the largest bound of an unread
    contribution, the first of equals; one without a bound comes before all others.

    Args:
        lists: whole lists; their lengths are known beforehand, as in S5.
        k: documents to prove, 1 or more.
        frozen: as for `refusal`. The bounds are then sound, but may not be minimal.

    Raises:
        DesaError: the rule has no certificate, for the reason that `refusal` gives.
    """
    lanes, known = _lanes(rule, lists, frozen)
    top = ordered({document: rule.combined(own) for document, own in known.items()})[:k]
    states = list(reading(lanes))
    by_sorted = _first(states, lambda state: _proved(rule, lanes, state, k))
    by_random = _first(states, lambda state: _looked_up(rule, lanes, known, state, k))
    return Certificate(top, by_sorted, by_random)


def random_depths(
    rule: Rule, lists: Sequence[ScoredList], k: int, *, frozen: bool = False
) -> tuple[int, ...]:
    """`certify(...).random_depths` alone, which costs less; arguments and errors as there."""
    lanes, known = _lanes(rule, lists, frozen)
    return _first(list(reading(lanes)), lambda state: _looked_up(rule, lanes, known, state, k))


def _lanes(rule: Rule, lists: Sequence[ScoredList], frozen: bool) -> tuple[list[Lane], Known]:
    """What readers meet, and what every list gives every document; refuses as `certify` says."""
    reason = refusal(rule, frozen)
    if reason is not None:
        raise DesaError(
            reason, where=rule.name, hint="declare what is missing, or read whole lists"
        )
    values, known = contributions_of(rule, lists)
    lanes = lanes_of(rule, lists, values)
    if rule.mean in ("geometric", "harmonic") and any(
        lane.values and not lane.least for lane in lanes
    ):
        what = f"the {rule.mean} mean leaves out values of 0, so it is discontinuous there"
        raise DesaError(what, where=rule.name, hint="normalise by min_max")
    return lanes, known


def lanes_of(
    rule: Rule, lists: Sequence[ScoredList], values: Sequence[Sequence[Fraction]]
) -> list[Lane]:
    """What a reader knows of every list beforehand."""
    lanes: list[Lane] = []
    for own, given, scale, bounds in zip(lists, values, rule.scale, rule.bounds, strict=True):
        first, least = None, given[-1] if given else Fraction(0)
        chosen = rule.normaliser
        if chosen is not None and chosen.whole:
            first = given[0] if given else least
        elif chosen is not None:
            assert bounds.least is not None
            scaled = bool(chosen.needs)
            least = Fraction(0) if scaled else bounds.least * scale
            first = scale if scaled else None
            if not scaled and bounds.most is not None:
                first = bounds.most * scale
        lanes.append(Lane(own.documents, given, first, least, chosen is None))
    return lanes


def reading(lanes: Sequence[Lane]) -> Iterator[tuple[int, ...]]:
    """The states of S6, from nothing read to everything."""
    read = [0] * len(lanes)
    yield tuple(read)
    for _ in range(sum(len(lane.values) for lane in lanes)):
        read[_next(lanes, read)] += 1
        yield tuple(read)


def _next(lanes: Sequence[Lane], read: Sequence[int]) -> int:
    best, chosen = None, -1
    for place, (lane, count) in enumerate(zip(lanes, read, strict=True)):
        if count < len(lane.values):
            bound = lane.bound(count)
            if bound is None:
                return place
            if best is None or bound > best:
                best, chosen = bound, place
    return chosen


def _first(
    states: Sequence[tuple[int, ...]], holds: Callable[[tuple[int, ...]], bool]
) -> tuple[int, ...]:
    """The first state that holds; all later ones do, as each has fewer continuations."""
    low, high = 0, len(states) - 1
    while low < high:
        middle = (low + high) // 2
        if holds(states[middle]):
            high = middle
        else:
            low = middle + 1
    return states[low]


def _proved(rule: Rule, lanes: Sequence[Lane], state: Sequence[int], k: int) -> bool:
    """Whether every continuation of what was read has the same ordered top k."""
    opened = _opened(lanes, state)
    if opened is None:
        return False
    seen: Known = {}
    for place, (lane, count) in enumerate(zip(lanes, state, strict=True)):
        for n in range(count):
            seen.setdefault(lane.documents[n], [None] * len(lanes))[place] = lane.values[n]
    if not opened:
        return True
    if len(seen) < k:
        return False
    base = ordered({document: rule.combined(own) for document, own in seen.items()})
    candidates = [document for document, _ in base[:k]]
    last = candidates[-1]
    precedes = Pairs(rule, seen, opened, len(lanes))
    if not precedes(last, None):
        return False
    if not all(precedes(one, two) for one, two in pairwise(candidates)):
        return False
    return all(precedes(last, document) for document, _ in base[k:])


def _opened(lanes: Sequence[Lane], state: Sequence[int]) -> list[OpenList] | None:
    """The lists with unread items; None where one of them has no bound."""
    found: list[OpenList] = []
    for place, (lane, count) in enumerate(zip(lanes, state, strict=True)):
        left = len(lane.values) - count
        if left:
            bound = lane.bound(count)
            if bound is None:
                return None
            found.append(OpenList(place, bound, lane.least, left))
    return found


def _looked_up(
    rule: Rule, lanes: Sequence[Lane], known: Known, state: Sequence[int], k: int
) -> bool:
    """Whether no unread document can reach the top k of those read, whose scores are known."""
    opened = _opened(lanes, state)
    if opened is None:
        return False
    if not opened:
        return True
    read = {d for lane, n in zip(lanes, state, strict=True) for d in lane.documents[:n]}
    if len(read) < k:
        return False
    # What was looked up takes places too; where it takes all, no unread document is there.
    free: list[OpenList] = []
    for own in opened:
        held = sum(known[document][own.place] is not None for document in read)
        if held < len(lanes[own.place].values):
            free.append(own)
    if not free:
        return True
    scores = sorted((rule.combined(known[document]) for document in read), reverse=True)
    unread = Pairs(rule, {}, free, len(lanes))
    return scores[k - 1] > unread.extreme(None, True)
