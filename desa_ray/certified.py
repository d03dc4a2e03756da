"""Certified retrieval online: lists of engines are read until their fused top k is proved
(method.md section 6.17).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from desa_ray.certified_channels import Channel, CountingChannel, ScoringChannel
from desa_ray.certified_proofs import ListReader, LookupProof, SortedProof, is_whole
from desa_ray.core.fusion_constants import checked_kappa, checked_weights
from desa_ray.errors import DesaError

__all__ = ["Certified", "Channel", "CountingChannel", "ScoringChannel", "certified_search"]
PAGE = 100
MOST = 10**9


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
    readers = [ListReader(channel) for channel in channels]
    looks_up = len(channels) > 1 and all(isinstance(own, CountingChannel) for own in channels)
    state = (
        LookupProof(readers, exact, constant) if looks_up else SortedProof(readers, exact, constant)
    )
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
        if value is not None and (not is_whole(value) or not 1 <= value <= MOST):
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
            if is_whole(already) and already > 0:
                what, hint = f"has been read already, {already} items", "make the channel again"
                raise DesaError(what, where=channel.name, hint=hint)
    names = [channel.name for channel in channels]
    if len(set(names)) < len(names):
        raise DesaError("two channels have the same name", where="channels", hint="rename one")
    return constant, exact


def _result(
    readers: Sequence[ListReader],
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
