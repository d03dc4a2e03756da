"""What certified retrieval reads: one ranked list of an engine, as protocols for channels."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable


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
