"""Measures computed here from their definitions, since no library gives the right value for every
id and grade.

gdeval (ERR, nDCG with exponential gain) loses query ids with hyphens, ir_measures' Accuracy fails
without a relevant document and its Compat without positive scores; trec_eval rounds recall levels
and mixes gain mappings. Every function takes a ranking (document ids, best first), the query's
grades (0 and above; a document that is not a key has no judgment) and the measure's parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import log2

Grades = Mapping[str, int]
Ranking = Sequence[str]

ERR_SCALE = (
    4  # the highest grade of gdeval's ERR: the chance to stop at a grade g is (2^g - 1) / 2^4
)
MOST_EXPONENTIAL = (
    30  # beyond it one document outweighs all others a thousand million times: no scale of grades
)


def err(ranking: Ranking, grades: Grades, *, cutoff: int | None = None) -> float:
    """Expected reciprocal rank (Chapelle et al. 2009) with gdeval's scale: 1/16 for
    grade 1 on top.
    """
    value, goes_on = 0.0, 1.0
    for rank, document in enumerate(ranking[:cutoff], 1):
        stops = (2 ** grades.get(document, 0) - 1) / 2**ERR_SCALE
        value += goes_on * stops / rank
        goes_on *= 1 - stops
    return value


def ndcg(
    ranking: Ranking,
    grades: Grades,
    *,
    cutoff: int | None = None,
    dcg: str = "log2",
    gains: Mapping[int, int] | None = None,
    judged_only: bool = False,
) -> float:
    """DCG with gain 2^grade - 1 (`dcg="exp-log2"`) or the gains of a mapping, over the best DCG
    that is possible.

    A grade that the mapping lacks is its own gain, as ir_measures has it; what is not judged has
    none.
    """
    ranking = [document for document in ranking if document in grades] if judged_only else ranking
    mapping = gains or {}
    gain = {
        d: 2**grade - 1 if dcg == "exp-log2" else mapping.get(grade, grade)
        for d, grade in grades.items()
    }
    best = _dcg(sorted(gain.values(), reverse=True)[:cutoff])
    return _dcg([gain.get(document, 0) for document in ranking[:cutoff]]) / best if best else 0.0


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, 1) if gain)


def reciprocal_rank(
    ranking: Ranking,
    grades: Grades,
    *,
    cutoff: int | None = None,
    rel: int = 1,
    judged_only: bool = False,
) -> float:
    ranking = [document for document in ranking if document in grades] if judged_only else ranking
    found = (
        rank for rank, document in enumerate(ranking[:cutoff], 1) if grades.get(document, 0) >= rel
    )
    first = next(found, None)
    return 1 / first if first else 0.0


def judged(ranking: Ranking, grades: Grades, *, cutoff: int | None = None) -> float:
    """The share of judged documents among the first `cutoff` that there are."""
    head = ranking[:cutoff]
    return sum(document in grades for document in head) / len(head) if len(head) else 0.0


def accuracy(ranking: Ranking, grades: Grades, *, cutoff: int | None = None, rel: int = 1) -> float:
    """The share of pairs (relevant, other) of the first `cutoff` documents with the relevant one
    first.

    Without a relevant document it is 0; with nothing else no document precedes a relevant one:
    1.
    """
    above, relevant, in_order = 0, 0, 0
    for document in reversed(ranking[:cutoff]):
        # From the end: how many others stand below each relevant one
        if grades.get(document, 0) >= rel:
            relevant += 1
            in_order += above
        else:
            above += 1
    if not relevant:
        return 0.0
    return in_order / (relevant * above) if above else 1.0


def compatibility(
    ranking: Ranking, grades: Grades, *, p: float = 0.95, normalize: bool = True
) -> float:
    """Rank-biased overlap with the ideal ranking nearest to this one (Clarke et al. 2021)."""
    ranking = list(ranking)
    place = {document: rank for rank, document in enumerate(ranking)}
    ideal = [document for document, grade in grades.items() if grade > 0]
    ideal.sort(key=lambda document: (-grades[document], place.get(document, len(place)), document))
    value = _overlap(ranking, ideal, p)
    best = _overlap(ideal, ideal, p, depth=max(len(ranking), len(ideal))) if normalize else 0.0
    return value / best if best else value


def _overlap(ranking: Ranking, ideal: Ranking, p: float, depth: int = 0) -> float:
    seen: set[str] = set()
    common, score, norm, weight = 0, 0.0, 0.0, 1.0
    for place in range(max(depth, len(ranking), len(ideal))):
        for document in {*ranking[place : place + 1], *ideal[place : place + 1]}:
            both = ranking[place : place + 1] == ideal[place : place + 1]
            common += both or document in seen
            seen.add(document)
        score += weight * common / (place + 1)
        norm += weight
        weight *= p
    return score / norm if norm else 0.0


def interpolated_precision(
    ranking: Ranking, grades: Grades, *, recall: float, rel: int = 1, judged_only: bool = False
) -> float:
    """The highest precision at any rank whose recall is at least `recall`, compared exactly."""
    ranking = [document for document in ranking if document in grades] if judged_only else ranking
    needed = Fraction(str(recall)) * sum(grade >= rel for grade in grades.values())
    found, best = 0, 0.0
    for rank, document in enumerate(ranking, 1):
        if grades.get(document, 0) >= rel:
            found += 1
            if found >= needed:
                best = max(best, found / rank)
    return best


def queries(ranking: Ranking, grades: Grades) -> float:
    return 1.0


def relevant_documents(ranking: Ranking, grades: Grades, *, rel: int = 1) -> float:
    return float(sum(grade >= rel for grade in grades.values()))


def retrieved(ranking: Ranking, grades: Grades, *, rel: int | None = None) -> float:
    """How many documents there are, or with `rel` how many of at least that grade."""
    if rel is None:
        return float(len(ranking))
    return float(sum(grades.get(document, 0) >= rel for document in ranking))


PLAIN: Mapping[str, Callable[..., float]] = {
    "ERR": err,
    "nDCG": ndcg,
    "RR": reciprocal_rank,
    "Judged": judged,
    "Accuracy": accuracy,
    "Compat": compatibility,
    "IPrec": interpolated_precision,
    "NumQ": queries,
    "NumRel": relevant_documents,
    "NumRet": retrieved,
}
