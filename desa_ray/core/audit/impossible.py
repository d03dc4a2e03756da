"""The first impossible rank of an answer: by bounds for a declared rule, else by dominance."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from desa_ray.core.audit.evidence import Evidence
from desa_ray.core.rules.certify import MOST_LISTS
from desa_ray.core.rules.fuse import contributions_of
from desa_ray.core.rules.registry import Rule
from desa_ray.errors import DesaError


@dataclass(frozen=True)
class Impossible:
    """A rank of the answer, the document there, the one that must precede it, and why."""

    rank: int
    there: int
    before: int
    invariant: str
    ledgers: tuple[str, str]


def by_rule(evidence: Evidence, rule: Rule, *, cut: bool) -> Impossible | None:
    """The first rank that no completion of the legs allows under a rule.

    Args:
        cut: whether anything may follow the legs' last documents; rules of scores then take what
            follows as between the declared least and the last score.
    """
    if cut and len(evidence.legs) > MOST_LISTS:
        what = f"{len(evidence.legs)} legs that go on have too many combinations to look at"
        hint = f"give {MOST_LISTS} at most, or whole legs without --legs-go-on"
        raise DesaError(what, where="--legs-go-on", hint=hint)
    values, known = contributions_of(rule, evidence.legs)
    ends = [_end(rule, place, own) if cut else None for place, own in enumerate(values)]
    low: dict[int, Fraction] = {}
    high: dict[int, Fraction] = {}
    for document in {*known, *evidence.answer}:
        absent: list[Fraction | None] = [None] * len(values)
        own = known.get(document, absent)
        choices: list[tuple[Fraction | None, ...]] = []
        for value, end in zip(own, ends, strict=True):
            choices.append((value,) if value is not None or end is None else (None, *end))
        scores = [rule.combined(chosen) for chosen in product(*choices)]
        low[document], high[document] = min(scores), max(scores)
    shares: list[dict[int, float]] = []
    for leg, given in zip(evidence.legs, values, strict=True):
        shares.append({d: float(x) for d, x in zip(leg.documents, given, strict=True)})
    best = sorted(known, key=lambda document: -low[document])
    passed: set[int] = set()
    for rank, document in enumerate(evidence.answer, 1):
        passed.add(document)
        first = next((d for d in best if d not in passed), None)
        if first is not None and _above(low[first], high[document]):
            ledgers = evidence.ledger(document, shares), evidence.ledger(first, shares)
            why = (
                "a document with a score of at least {:.8g} is ranked below one with at most {:.8g}"
            )
            told = why.format(float(low[first]), float(high[document]))
            return Impossible(rank, document, first, told, ledgers)
    return None


def by_dominance(evidence: Evidence) -> Impossible | None:
    """The first rank that no rule allows in which a better place never hurts: a document stands
    before another one that the same lists hold, each of them higher, with a better score where
    there are scores.
    """
    ranks = evidence.ranks()
    held: dict[int, tuple[int, ...]] = {}
    for document in {d for leg in evidence.legs for d in leg.documents}:
        held[document] = tuple(n for n, own in enumerate(ranks) if document in own)
    passed: set[int] = set()
    for rank, document in enumerate(evidence.answer, 1):
        passed.add(document)
        own = held.get(document, ())
        rivals = [d for d, lists in held.items() if lists == own and d not in passed]
        for rival in sorted(rivals):
            if own and all(_better(evidence, ranks, c, rival, document) for c in own):
                ledgers = evidence.ledger(document), evidence.ledger(rival)
                why = "the same lists contain both documents, and each ranks the second one higher"
                return Impossible(rank, document, rival, why, ledgers)
    return None


def _better(evidence: Evidence, ranks: Sequence[dict[int, int]], c: int, a: int, b: int) -> bool:
    first, second, leg = ranks[c][a], ranks[c][b], evidence.legs[c]
    if first >= second:
        return False
    return not leg.scores or leg.scores[first - 1] > leg.scores[second - 1]


def _end(rule: Rule, place: int, given: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """What an unlisted document may get from a list that goes on."""
    share = rule.kind.share
    if share is not None:
        return (share(rule.weights[place], rule.kappa, len(given) + 1),)
    least = rule.bounds[place].least
    ends = [given[-1]] if given else []
    return (*ends, rule.scale[place] * least) if least is not None else tuple(ends)


def _above(low: Fraction, high: Fraction) -> bool:
    """Beyond what float32 sums blur."""
    return low - high > Fraction(1, 500_000) * max(abs(low), abs(high))
