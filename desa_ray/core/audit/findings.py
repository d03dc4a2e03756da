"""What an answer shows beyond its rule: known faults, and notes for the reader.

Numbers of cases are those of the table in docs/audit.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from desa_ray.core.audit.evidence import Evidence
from desa_ray.core.audit.explain import Explanation
from desa_ray.core.audit.impossible import Impossible

CONSTANTS = (60, 59, 61, 1, 2)


@dataclass(frozen=True)
class AuditFinding:
    """One finding.

    Attributes:
        case: its number in docs/audit.md.
        what: a sentence.
        wrong: whether it is a fault; else it is a note.
    """

    case: int
    what: str
    wrong: bool


def of_lists(evidence: Evidence, query: str | None = None) -> list[AuditFinding]:
    """What the legs and the answer show without any rule."""
    found: list[AuditFinding] = []
    legs = [set(leg.documents) for leg in evidence.legs]
    if len(legs) > 1 and all(legs) and len(set[int]().union(*legs)) == sum(map(len, legs)):
        found.append(AuditFinding(6, _no_overlap(evidence), True))
    for name, leg in zip(evidence.names, evidence.legs, strict=True):
        falls = zip(leg.scores, leg.scores[1:], strict=False)
        steps = [(before < after) - (before > after) for before, after in falls]
        if any(step > 0 for step in steps):
            what = f"{name}: scores increase with the rank; the order is trusted, not the scores"
            found.append(AuditFinding(4, f"{what} (are they distances? --ascending)", False))
        elif ties := sum(step == 0 for step in steps):
            what = f"{name}: {ties} scores equal the one before them; the ranks are trusted"
            found.append(AuditFinding(10, what, False))
    found += _physical_ties(evidence)
    found += _self(evidence, query)
    return found


def _no_overlap(evidence: Evidence) -> str:
    plain: dict[str, str] = {}
    for document in evidence.legs[0].documents:
        plain[_plain(evidence.ids[document])] = evidence.ids[document]
    for document in (d for leg in evidence.legs[1:] for d in leg.documents):
        own = evidence.ids[document]
        other = plain.get(_plain(own))
        if other is not None:
            return f"no document is in two legs; {other!r} and {own!r} look like one document"
    return "no document is in two legs: do they use the same document ids?"


def _plain(name: str) -> str:
    return name.strip().lower().rsplit("/", 1)[-1].lstrip("0") or "0"


def _physical_ties(evidence: Evidence) -> list[AuditFinding]:
    for n, (one, two) in enumerate(zip(evidence.answer, evidence.answer[1:], strict=False)):
        if evidence.scores and evidence.scores[n] == evidence.scores[n + 1] and one > two:
            ids = f"{evidence.ids[one]!r} and {evidence.ids[two]!r}"
            what = f"rank {n + 1}: {ids} tie and are not ordered by id: ties follow something else"
            return [AuditFinding(8, what, False)]
    return []


def _self(evidence: Evidence, query: str | None) -> list[AuditFinding]:
    if query is None or query not in evidence.ids:
        return []
    own = evidence.ids.index(query)
    firsts = {leg.documents[0] for leg in evidence.legs if leg.documents}
    lost = sorted(firsts - set(evidence.answer) - {own})
    if own in evidence.answer and lost:
        what = (
            f"the query's own document {query!r} is in the answer and {evidence.ids[lost[0]]!r},"
            " first of a leg, is not: the query's document was dropped by position, not by id"
        )
        return [AuditFinding(5, what, True)]
    return []


def of_rule(evidence: Evidence, explanation: Explanation) -> list[AuditFinding]:
    """What the rule that explains an answer implies."""
    found: list[AuditFinding] = []
    formula = explanation.formula
    if explanation.odd:
        reverse = explanation.odd.endswith("distances?")
        found.append(AuditFinding(4 if reverse else 12, explanation.odd, True))
    if "kappa 59 " in formula:
        what = "k = 60 was added to zero-based ranks: with ranks from 1, kappa is 59"
        found.append(AuditFinding(11, what, False))
    if any(name in formula for name in ("min_max", "z_score", "dbsf", "l2")):
        what = "scores were normalised over whole lists: they change with the lengths of the lists"
        found.append(AuditFinding(13, what, False))
        short = [
            name
            for name, leg in zip(evidence.names, evidence.legs, strict=True)
            if leg.scores and leg.scores[0] == leg.scores[-1]
        ]
        if short:
            what = f"{', '.join(short)}: a single hit, or equal scores, is normalised by convention"
            found.append(AuditFinding(13, what, False))
    return found


def of_impossible(evidence: Evidence, impossible: Impossible) -> AuditFinding:
    """An impossible rank, as a fault by its name."""
    what = f"rank {impossible.rank} is impossible: {impossible.invariant}"
    if impossible.before not in evidence.answer:
        what += f"; {evidence.ids[impossible.before]!r} is missing"
    return AuditFinding(1, what, True)


def shard_ranks(evidence: Evidence) -> list[AuditFinding]:
    """Two documents of one leg alone whose scores claim one rank: ranks were counted per shard."""
    ranks = evidence.ranks()
    for kappa in CONSTANTS:
        claimed: dict[tuple[int, int], int] = {}
        double = None
        for document, score in zip(evidence.answer, evidence.scores, strict=False):
            held = [n for n, own in enumerate(ranks) if document in own]
            if len(held) != 1 or score <= 0:
                continue
            rank = 1 / score - kappa
            if abs(rank - round(rank)) > 1e-3 or round(rank) < 1:
                break
            other = claimed.setdefault((held[0], round(rank)), document)
            if other != document:
                double = double or (held[0], round(rank), other, document)
        else:
            if double is not None:
                leg, rank, one, two = double
                what = (
                    f"{evidence.ids[one]!r} and {evidence.ids[two]!r} both count as rank {rank} of"
                    f" {evidence.names[leg]} (kappa {kappa}): ranks were counted per shard"
                )
                return [AuditFinding(1, what, True)]
    return []


def repeats(answer: Sequence[str]) -> list[AuditFinding]:
    """Documents that an answer, or its pages one after another, has twice."""
    seen: set[str] = set()
    for rank, document in enumerate(answer, 1):
        if document in seen:
            return [AuditFinding(3, f"rank {rank} repeats {document!r}", True)]
        seen.add(document)
    return []


def prefix(answer: Sequence[str], longer: Sequence[str]) -> list[AuditFinding]:
    """An answer that is not the head of the same query's answer at a larger limit."""
    for rank, (own, other) in enumerate(zip(answer, longer, strict=False), 1):
        if own != other:
            what = f"rank {rank} is {own!r}, but {other!r} with a larger limit"
            return [AuditFinding(2, what, True)]
    if len(longer) < len(answer):
        return [AuditFinding(2, "the answer with the larger limit is shorter", True)]
    return []


def pages(whole: Sequence[str], parts: Sequence[Sequence[str]]) -> list[AuditFinding]:
    """Pages that repeat documents, or are not the whole one after another."""
    joined = [document for part in parts for document in part]
    found = repeats(joined)
    for rank, (own, other) in enumerate(zip(joined, whole, strict=False), 1):
        if own != other:
            what = f"rank {rank} of the pages is {own!r}, of the whole answer {other!r}"
            return [*found, AuditFinding(3, what, True)]
    return found


def again(answer: Sequence[str], other: Sequence[str]) -> list[AuditFinding]:
    """An answer that another order of the corpus changed."""
    for rank, (own, theirs) in enumerate(zip(answer, other, strict=False), 1):
        if own != theirs:
            both = f"{own!r} in one answer, {theirs!r} in the other"
            what = f"rank {rank} is {both}: ties follow physical order"
            return [AuditFinding(8, what, True)]
    return []


def judged(evidence: Evidence, known: set[str]) -> list[AuditFinding]:
    """How much of the answer is judged; an answer without unjudged documents was filtered."""
    top = [evidence.ids[d] for d in evidence.answer[:10]]
    share = sum(document in known for document in top) / max(len(top), 1)
    found = [AuditFinding(9, f"judged@{len(top)}: {share:.0%}", False)]
    ids = {evidence.ids[d] for leg in evidence.legs for d in leg.documents}
    if all(evidence.ids[d] in known for d in evidence.answer) and ids - known:
        lost = sorted(ids - known)[0]
        what = f"every document of the answer is judged, but {lost!r} of the legs is not"
        found.append(AuditFinding(9, f"{what}: unjudged documents were filtered out", True))
    return found
