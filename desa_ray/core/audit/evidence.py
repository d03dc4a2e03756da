"""A fused answer and the lists that it was made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from desa_ray.core.identifiers import numbered
from desa_ray.core.rules.registry import ScoredList
from desa_ray.errors import DesaError


@dataclass(frozen=True)
class Evidence:
    """An answer and its legs, as document numbers.

    Attributes:
        ids: documents by number; numbers follow the ids' UTF-8 bytes.
        names: of the legs.
        answer: documents, first to last, each once.
        scores: of the answer, or none.
        legs: documents and scores, best first; a leg of distances has them negated.
    """

    ids: list[str]
    names: tuple[str, ...]
    answer: tuple[int, ...]
    scores: tuple[float, ...]
    legs: tuple[ScoredList, ...]

    @property
    def scored(self) -> bool:
        """Whether every leg has scores, none of which rises."""
        return all(
            len(leg.scores) == len(leg.documents) and _falls(leg.scores) for leg in self.legs
        )

    def ranks(self) -> list[dict[int, int]]:
        """By leg, the rank of each document from 1."""
        found: list[dict[int, int]] = []
        for leg in self.legs:
            found.append({d: rank for rank, d in enumerate(leg.documents, 1)})
        return found

    def ledger(self, document: int, contributions: Sequence[dict[int, float]] = ()) -> str:
        """One line about a document: where each leg has it and what that gives."""
        parts: list[str] = []
        for place, (name, own) in enumerate(zip(self.names, self.ranks(), strict=True)):
            rank = own.get(document)
            text = f"{name}: rank {rank}" if rank is not None else f"{name}: absent"
            leg = self.legs[place]
            if rank is not None and leg.scores:
                text += f", score {float(leg.scores[rank - 1]):g}"
            if contributions:
                text += f", gives {contributions[place].get(document, 0.0):.6g}"
            parts.append(text)
        return f"{self.ids[document]} ({'; '.join(parts)})"


def evidence_of(
    answer: tuple[Sequence[str], Sequence[float]],
    legs: Sequence[tuple[str, Sequence[str], Sequence[float]]],
    query: str = "",
) -> Evidence:
    """Evidence from ids and scores; scores of legs have larger values for better documents.

    Raises:
        DesaError: a leg that lists a document twice, by its name and the document; no leg.
    """
    if not legs:
        raise DesaError("there are no legs", where="--legs", hint="give the lists that were fused")
    for name, ids, _ in legs:
        if len(set(ids)) < len(ids):
            twice = next(d for n, d in enumerate(ids) if d in ids[:n])
            where = f"{name}, query {query}" if query else name
            what = f"document {twice!r} is listed twice: its contributions would add up"
            raise DesaError(what, where=where, hint="keep only its best rank")
    once = list(dict.fromkeys(answer[0]))
    ids, arrays = numbered([once, *(own for _, own, _ in legs)])
    made: list[ScoredList] = []
    for (_, _, scores), numbers in zip(legs, arrays[1:], strict=True):
        made.append(ScoredList(numbers.tolist(), [Fraction(score) for score in scores]))
    first = {document: n for n, document in reversed(list(enumerate(answer[0])))}
    scores = tuple(answer[1][first[document]] for document in once) if answer[1] else ()
    names = tuple(name for name, _, _ in legs)
    return Evidence(ids, names, tuple(arrays[0].tolist()), scores, tuple(made))


def _falls(scores: Sequence[Fraction]) -> bool:
    return all(before >= after for before, after in pairwise(scores))
