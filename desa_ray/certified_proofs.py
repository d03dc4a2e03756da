"""Proofs of a top k from lists read in part: by what was read alone, or with ranks looked up in the
other lists (method.md section 6.17).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import cast

import numpy as np

from desa_ray.certified_channels import Channel, CountingChannel
from desa_ray.core.fusion.depth import replay_prefixes
from desa_ray.core.fusion.reference import unread_bound
from desa_ray.core.identifiers import ordered
from desa_ray.errors import DesaError

SNAPSHOT = "read pages of one snapshot: a point in time, a scroll, a transaction"
Ranks = dict[str, int]  # id -> rank from 1


def is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class ListReader:
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
        if not is_whole(rank) or cast(int, rank) <= len(self.ids):
            what = f"document {document!r} has rank {repr(rank)[:80]}, after {len(self.ids)} others"
            raise DesaError(
                what, where=self.channel.name, hint="tell ranks as whole numbers from 1"
            )
        return int(cast(int, rank))


class SortedProof:
    """Proof by sorted access: S5 to S10 on what was read."""

    def __init__(self, readers: Sequence[ListReader], weights: Sequence[Fraction], kappa: Fraction):
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


class LookupProof:
    """Proof by look-ups: every document read has its score, so only unread ones are in doubt."""

    def __init__(self, readers: Sequence[ListReader], weights: Sequence[Fraction], kappa: Fraction):
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
