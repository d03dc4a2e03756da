"""Certified retrieval online: lists of engines are read until their fused top k is proved
(method.md section 6.17).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, cast, runtime_checkable

import numpy as np

from desa_ray.core.fusion.depth import replay_prefixes
from desa_ray.core.fusion.reference import unread_bound
from desa_ray.core.fusion_constants import checked_kappa, checked_weights
from desa_ray.core.identifiers import ordered
from desa_ray.errors import DesaError

PAGE = 100
MOST = 10**9
SNAPSHOT = "read pages of one snapshot: a point in time, a scroll, a transaction"
Ranks = dict[str, int]  # id -> rank from 1


@runtime_checkable
class Channel(Protocol):
    """One ranked list of an engine, best first, of one query.

    Attributes:
        name: of the list, for errors and results.
        approximate: whether the engine may leave out documents (an approximate index); certificates
            are then about the list that it returns.
    """

    name: str
    approximate: bool

    def next(self, n: int) -> Sequence[str]:
        """The next n ids; fewer only at the end of the list."""
        ...


@runtime_checkable
class CountingChannel(Channel, Protocol):
    """A channel that can also look up the ranks of documents. One that cannot may say why in an
    attribute `no_ranks`.
    """

    def ranks(self, ids: Sequence[str]) -> Mapping[str, int]:
        """Ranks, from 1, of those ids that the whole list contains."""
        ...


@runtime_checkable
class ScoringChannel(Channel, Protocol):
    """A channel that also tells scores of documents."""

    def scores(self, ids: Sequence[str]) -> Mapping[str, float]:
        """Scores, larger ones first, of those of the ids that the whole list holds."""
        ...


@dataclass(frozen=True)
class Certified:
    """What reading has proved.

    Attributes:
        documents: the ordered top k; with a budget, the part of its beginning that is proved.
        complete: whether that is all of the top k.
        read: by channel, how many items were read.
        ended: by channel, whether it was read to its end.
        looked_up: by channel, how many ranks were looked up.
        intervals: by id, for the other documents among the k best by what was read: the best and
            the worst possible rank; the worst is None if any later rank is possible.
        relative: channels with approximate indexes: the certificate is about the lists that they
            return.
        no_ranks: by channel that tells no ranks, why; nothing is looked up if there is one.
    """

    documents: tuple[str, ...]
    complete: bool
    read: dict[str, int]
    ended: dict[str, bool]
    looked_up: dict[str, int]
    intervals: dict[str, tuple[int, int | None]]
    relative: tuple[str, ...]
    no_ranks: dict[str, str]

    def __str__(self) -> str:
        reads = ", ".join(f"{n} of {name}" for name, n in self.read.items())
        what = "the ordered top" if self.complete else "the certified first"
        text = f"{what} {len(self.documents)}, after reading {reads}"
        if self.relative:
            text += f"; relative to the lists that {' and '.join(self.relative)} return"
        return text


def certified_search(
    channels: Sequence[Channel],
    k: int = 20,
    kappa: int | str | float | Fraction = 60,
    *,
    weights: Sequence[int | str | float | Fraction] | None = None,
    budget: int | None = None,
    page: int = PAGE,
) -> Certified:
    """The exact ordered top k of reciprocal rank fusion, reading no list further than a page beyond
    what its proof needs.

    Pages are read from the list whose next item could contribute most (S6). If every channel can
    look up ranks, each document read is looked up in the others (the threshold algorithm), which
    reads less.

    Args:
        channels: at least one, each unread: ranks are counted from where reading begins.
        k: documents, 1 or more.
        kappa, weights: as for `desa_ray.fuse`; weights above 0.
        budget: the most items to read from all lists together.
        page: items requested at once.

    Raises:
        DesaError: arguments out of range; a channel that returns an id twice, more ids than
            requested, something that is not an id, or an impossible rank.
    """
    constant, exact = _checked(channels, k, kappa, weights, budget, page)
    readers = [_Reader(channel) for channel in channels]
    looks_up = len(channels) > 1 and all(isinstance(own, CountingChannel) for own in channels)
    state = _Lookups(readers, exact, constant) if looks_up else _Sorted(readers, exact, constant)
    while True:
        found = state.proved(k)
        if found is not None:
            return _result(readers, found, True, {})
        spent = sum(len(reader.ids) for reader in readers)
        left = page if budget is None else min(page, budget - spent)
        if left <= 0:
            documents, intervals = state.partial(k)
            return _result(readers, documents, False, intervals)
        bounds = [
            (reader.bound(weight, constant), -c)
            for c, (weight, reader) in enumerate(zip(exact, readers, strict=True))
            if not reader.ended
        ]
        readers[-max(bounds)[1]].read(left)


def _checked(
    channels: Sequence[Channel],
    k: int,
    kappa: int | str | float | Fraction,
    weights: Sequence[int | str | float | Fraction] | None,
    budget: int | None,
    page: int,
) -> tuple[Fraction, list[Fraction]]:
    for name, value in (("k", k), ("page", page), ("budget", budget)):
        if value is not None and (not _is_whole(value) or not 1 <= value <= MOST):
            what = f"{name} is {repr(value)[:80]}"
            raise DesaError(what, where=name, hint=f"use a whole number from 1 to {MOST}")
    constant = checked_kappa(kappa)
    if not channels:
        raise DesaError("there are no channels", where="channels", hint="give one or more")
    given = [1] * len(channels) if weights is None else weights
    exact = checked_weights(given, len(channels), where="weights")
    for channel in channels:
        for name in ("at", "seen"):
            already = getattr(channel, name, 0)
            if _is_whole(already) and already > 0:
                what, hint = f"has been read already, {already} items", "make the channel again"
                raise DesaError(what, where=channel.name, hint=hint)
    names = [channel.name for channel in channels]
    if len(set(names)) < len(names):
        raise DesaError("two channels have the same name", where="channels", hint="rename one")
    return constant, exact


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class _Reader:
    """A channel, and what was read of it."""

    def __init__(self, channel: Channel):
        self.channel = channel
        self.ids: list[str] = []
        self.known: set[str] = set()
        self.ended = False
        self.looked_up = 0
        self.told: dict[str, int | None] = {}  # ranks that were looked up; None: not in the list

    def read(self, n: int) -> None:
        name = self.channel.name
        found = ordered(self.channel.next(n), name)
        if len(found) > n:
            what = f"{len(found)} documents, but {n} were requested"
            hint = "return as many as requested, or fewer at the end"
            raise DesaError(what, where=name, hint=hint)
        for rank, document in enumerate(found, len(self.ids) + 1):
            if document in self.known:
                raise DesaError(f"document {document!r} is listed twice", where=name, hint=SNAPSHOT)
            if self.told.get(document, rank) != rank:
                what = f"document {document!r} is at rank {rank}, but its rank was told as"
                told = f"{what} {self.told[document] or 'none'}"
                raise DesaError(told, where=name, hint=f"count from 1; {SNAPSHOT}")
            self.known.add(document)
        self.ids += found
        self.ended = len(found) < n

    def bound(self, weight: Fraction, kappa: Fraction) -> Fraction:
        """u_c: the most that an unread document gets of the channel; 0 where it has ended."""
        return Fraction(0) if self.ended else unread_bound(weight, kappa, len(self.ids))

    def places(self) -> Ranks:
        """Ranks of what was read."""
        return {document: rank for rank, document in enumerate(self.ids, 1)}

    def ranks(self, ids: Sequence[str]) -> Ranks:
        assert isinstance(self.channel, CountingChannel)
        own = self.places()
        missing = [document for document in ids if document not in own]
        self.looked_up += len(missing)
        given = self.channel.ranks(missing) if missing and not self.ended else {}
        for document in missing:
            rank = given.get(document)
            if rank is not None:
                own[document] = self._checked(document, rank)
            self.told[document] = own.get(document)
        return own

    def _checked(self, document: str, rank: object) -> int:
        """A rank that a channel tells: after all that was read, and nobody else's."""
        if not _is_whole(rank) or cast(int, rank) <= len(self.ids):
            what = f"document {document!r} has rank {repr(rank)[:80]}, after {len(self.ids)} others"
            raise DesaError(
                what, where=self.channel.name, hint="tell ranks as whole numbers from 1"
            )
        return int(cast(int, rank))


class _Sorted:
    """Proof by sorted access: S5 to S10 on what was read."""

    def __init__(self, readers: Sequence[_Reader], weights: Sequence[Fraction], kappa: Fraction):
        self.readers, self.weights, self.kappa = readers, weights, kappa

    def proved(self, k: int) -> list[str] | None:
        ids = sorted(set().union(*(reader.known for reader in self.readers)))
        number = {document: n for n, document in enumerate(ids)}
        lists = [np.array([*map(number.__getitem__, own.ids)], np.int32) for own in self.readers]
        lengths = [len(own.ids) + (not own.ended) for own in self.readers]
        found = replay_prefixes(lists, lengths, self.weights, self.kappa, k)
        return None if found is None else [ids[n] for n in found.topk.tolist()]

    def partial(self, k: int) -> tuple[list[str], dict[str, tuple[int, int | None]]]:
        """The longest beginning that is proved, and where the next documents can be."""
        for count in range(k - 1, 0, -1):
            found = self.proved(count)
            if found is not None:
                return found, self.intervals(k, found)
        return [], self.intervals(k, [])

    def intervals(self, k: int, sure: Sequence[str]) -> dict[str, tuple[int, int | None]]:
        places = [own.places() for own in self.readers]
        open_ = [
            own.bound(weight, self.kappa)
            for own, weight in zip(self.readers, self.weights, strict=True)
        ]
        low: dict[str, Fraction] = {}
        high: dict[str, Fraction] = {}
        for document in set().union(*places):
            low[document] = high[document] = Fraction(0)
            for own, weight, bound in zip(places, self.weights, open_, strict=True):
                rank = own.get(document)
                share = weight / (self.kappa + rank) if rank else Fraction(0)
                low[document] += share
                high[document] += share if rank else bound
        leading = sorted(low, key=lambda d: (-low[d], d))[:k]
        found: dict[str, tuple[int, int | None]] = {}
        for one in leading:
            if one in sure:
                continue
            before = sum((-low[d], d) < (-high[one], one) for d in low if d != one)
            maybe = sum((-high[d], d) < (-low[one], one) for d in low if d != one)
            closed = low[one] > sum(open_) or all(own.ended for own in self.readers)
            found[one] = before + 1, maybe + 1 if closed else None
        return found


class _Lookups:
    """Proof by look-ups: every document read has its score, so only unread ones are in doubt."""

    def __init__(self, readers: Sequence[_Reader], weights: Sequence[Fraction], kappa: Fraction):
        self.readers, self.weights, self.kappa = readers, weights, kappa
        self.scores: dict[str, Fraction] = {}

    def _score(self) -> Fraction:
        """Scores everything that was read; the most that an unread document can have."""
        read = set().union(*(reader.known for reader in self.readers))
        fresh = sorted(read - set(self.scores))
        if fresh:
            ranks = [reader.ranks(fresh) for reader in self.readers]
            for document in fresh:
                shares = zip(self.weights, ranks, strict=True)
                own = (w / (self.kappa + r[document]) for w, r in shares if document in r)
                self.scores[document] = sum(own, Fraction(0))
        bounds = (
            own.bound(weight, self.kappa)
            for own, weight in zip(self.readers, self.weights, strict=True)
        )
        return sum(bounds, Fraction(0))

    def _sure(self) -> list[str]:
        """Documents whose places are proved, in order."""
        unread = self._score()
        ordered = sorted(self.scores, key=lambda d: (-self.scores[d], d))
        ended = all(own.ended for own in self.readers)
        return [d for d in ordered if ended or self.scores[d] > unread]

    def proved(self, k: int) -> list[str] | None:
        sure = self._sure()
        whole = len(sure) >= k or all(own.ended for own in self.readers)
        return sure[:k] if whole else None

    def partial(self, k: int) -> tuple[list[str], dict[str, tuple[int, int | None]]]:
        sure = self._sure()
        ordered = sorted(self.scores, key=lambda d: (-self.scores[d], d))[:k]
        rest = ordered[len(sure) :]
        return sure, {d: (place, None) for place, d in enumerate(rest, len(sure) + 1)}


def _result(
    readers: Sequence[_Reader],
    documents: Sequence[str],
    complete: bool,
    intervals: dict[str, tuple[int, int | None]],
) -> Certified:
    return Certified(
        tuple(documents),
        complete,
        {own.channel.name: len(own.ids) for own in readers},
        {own.channel.name: own.ended for own in readers},
        {own.channel.name: own.looked_up for own in readers},
        intervals,
        tuple(own.channel.name for own in readers if own.channel.approximate),
        {
            own.channel.name: getattr(own.channel, "no_ranks", "it has no ranks(ids)")
            for own in readers
            if not isinstance(own.channel, CountingChannel)
        },
    )
