"""Every measure that is accepted, against definitions in plain Python, for odd ids and every kind
of grade.
"""

import math
import random
from fractions import Fraction

import polars as pl
import pytest

from desa_ray.core.evaluation import evaluate, grade_limits, parse_measures
from desa_ray.errors import DesaError

ODD_IDS = [
    "need-02",
    "PLAIN-2",
    "a-b-c-",
    "-",
    "007",
    "7",
    "1",
    "two words",
    " q",
    "é",
    "e\u0301",
    "😀-1",
    "\u2028",
    "a,b",
    "%",
    '"',
    "x" * 32_766,
    "q\u00a0",
    "NaN",
    "None",
    "-1",
    "1e3",
]


def above(grades, ranking, rel):
    return [grades.get(document, 0) >= rel for document in ranking]


def precision(ranking, grades, k, rel=1):
    return sum(above(grades, ranking[:k], rel)) / k


def relevant(grades, rel):
    return sum(grade >= rel for grade in grades.values())


def recall(ranking, grades, k, rel=1):
    return (
        sum(above(grades, ranking[:k], rel)) / relevant(grades, rel)
        if relevant(grades, rel)
        else 0.0
    )


def average_precision(ranking, grades, k=None, rel=1):
    hits = above(grades, ranking[:k], rel)
    total = sum(sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit)
    return total / relevant(grades, rel) if relevant(grades, rel) else 0.0


def reciprocal(ranking, grades, k=None, rel=1):
    return next((1 / (i + 1) for i, hit in enumerate(above(grades, ranking[:k], rel)) if hit), 0.0)


def ndcg(ranking, grades, k=None, gain=lambda grade: grade):
    gains = [gain(grades[d]) if d in grades else 0 for d in ranking][:k]
    ideal = sorted((gain(grade) for grade in grades.values()), reverse=True)[:k]
    dcg, best = (sum(g / math.log2(i + 2) for i, g in enumerate(own)) for own in (gains, ideal))
    return dcg / best if best else 0.0


def expected_rr(ranking, grades, k=None):
    """The sum over ranks of the chance to come so far and stop there, over the rank."""
    total = Fraction(0)
    stops = [Fraction(2 ** grades.get(d, 0) - 1, 16) for d in ranking[:k]]
    for i, stop in enumerate(stops):
        total += stop * math.prod((1 - before for before in stops[:i]), start=Fraction(1)) / (i + 1)
    return float(total)


def bpref(ranking, grades, rel=1):
    judged = [d for d in ranking if d in grades]
    n_rel = relevant(grades, rel)
    n_non = len(grades) - n_rel
    total = 0.0
    for i, document in enumerate(judged):
        if grades[document] >= rel:
            wrong = min(sum(grades[d] < rel for d in judged[:i]), n_rel)
            total += 1 - (wrong / min(n_rel, n_non) if wrong else 0)
    return total / n_rel if n_rel else 0.0


def accuracy(ranking, grades, k=None, rel=1):
    hits = above(grades, ranking[:k], rel)
    pairs = [
        i < j for i, hit in enumerate(hits) if hit for j, other in enumerate(hits) if not other
    ]
    return sum(pairs) / len(pairs) if pairs else float(any(hits))


def compatibility(ranking, grades, p=0.95, normalize=True):
    place = {d: i for i, d in enumerate(ranking)}
    ideal = sorted(
        (d for d in grades if grades[d] > 0), key=lambda d: (-grades[d], place.get(d, 10**9))
    )
    depth = max(len(ranking), len(ideal))

    def overlap(a, b):
        terms = [(p**i, len(set(a[: i + 1]) & set(b[: i + 1])) / (i + 1)) for i in range(depth)]
        return sum(w * x for w, x in terms) / sum(w for w, _ in terms)

    return overlap(ranking, ideal) / (overlap(ideal, ideal) if normalize else 1)


def interpolated(ranking, grades, level, rel=1):
    hits = above(grades, ranking, rel)
    n = relevant(grades, rel)
    points = [
        (sum(hits[: i + 1]), sum(hits[: i + 1]) / (i + 1))
        for i in range(len(hits))
        if any(hits[: i + 1])
    ]
    return max((p for found, p in points if Fraction(found) >= Fraction(level) * n), default=0.0)


def f1(ranking, grades):
    p, r = precision(ranking, grades, len(ranking)), recall(ranking, grades, None)
    return 2 * p * r / (p + r) if p + r else 0.0


def judged_only(measure):
    return lambda ranking, grades: measure([d for d in ranking if d in grades], grades)


ORACLES = {
    "nDCG@10": lambda r, g: ndcg(r, g, 10),
    "nDCG": ndcg,
    "nDCG(judged_only=True)@3": judged_only(lambda r, g: ndcg(r, g, 3)),
    "nDCG(dcg='exp-log2')@10": lambda r, g: ndcg(r, g, 10, lambda grade: 2**grade - 1),
    "nDCG(dcg='exp-log2')": lambda r, g: ndcg(r, g, None, lambda grade: 2**grade - 1),
    "nDCG(dcg='exp-log2',judged_only=True)@4": judged_only(
        lambda r, g: ndcg(r, g, 4, lambda grade: 2**grade - 1)
    ),
    "nDCG(gains={0:1,1:7,5:2})@10": lambda r, g: ndcg(
        r, g, 10, lambda grade: {0: 1, 1: 7, 5: 2}.get(grade, grade)
    ),
    "ERR@10": lambda r, g: expected_rr(r, g, 10),
    "ERR": expected_rr,
    "R@20": lambda r, g: recall(r, g, 20),
    "R(rel=2)@5": lambda r, g: recall(r, g, 5, 2),
    "R(judged_only=True)@2": judged_only(lambda r, g: recall(r, g, 2)),
    "P@5": lambda r, g: precision(r, g, 5),
    "P(rel=2)@7": lambda r, g: precision(r, g, 7, 2),
    "P(judged_only=True)@3": judged_only(lambda r, g: precision(r, g, 3)),
    "Success@2": lambda r, g: float(any(above(g, r[:2], 1))),
    "Success(rel=3)@9": lambda r, g: float(any(above(g, r[:9], 3))),
    "AP": average_precision,
    "AP@4": lambda r, g: average_precision(r, g, 4),
    "AP(rel=2)": lambda r, g: average_precision(r, g, None, 2),
    "AP(judged_only=True)": judged_only(average_precision),
    "RR": reciprocal,
    "RR@2": lambda r, g: reciprocal(r, g, 2),
    "RR(rel=2)@8": lambda r, g: reciprocal(r, g, 8, 2),
    "RR(judged_only=True)": judged_only(reciprocal),
    "RR(judged_only=True)@1": judged_only(lambda r, g: reciprocal(r, g, 1)),
    "Rprec": lambda r, g: precision(r, g, relevant(g, 1)),
    "Rprec(rel=2)": lambda r, g: precision(r, g, relevant(g, 2), 2) if relevant(g, 2) else 0.0,
    "Rprec(judged_only=True)": judged_only(lambda r, g: precision(r, g, relevant(g, 1))),
    "Bpref": bpref,
    "Bpref(rel=2)": lambda r, g: bpref(r, g, 2),
    "SetP": lambda r, g: precision(r, g, len(r)),
    "SetRelP": lambda r, g: sum(above(g, r, 1)) / min(len(r), relevant(g, 1)),
    "SetR": lambda r, g: recall(r, g, None),
    "SetF": f1,
    "SetAP": lambda r, g: precision(r, g, len(r)) * recall(r, g, None),
    "Judged@6": lambda r, g: sum(d in g for d in r[:6]) / len(r[:6]),
    "Judged": lambda r, g: sum(d in g for d in r) / len(r),
    "Accuracy@6": lambda r, g: accuracy(r, g, 6),
    "Accuracy": accuracy,
    "Accuracy(rel=2)@12": lambda r, g: accuracy(r, g, 12, 2),
    "Compat": compatibility,
    "Compat(p=0.5)": lambda r, g: compatibility(r, g, 0.5),
    "Compat(normalize=False)": lambda r, g: compatibility(r, g, 0.95, False),
    "IPrec@0.0": lambda r, g: interpolated(r, g, "0"),
    "IPrec@0.3": lambda r, g: interpolated(r, g, "0.3"),
    "IPrec(rel=2)@0.35": lambda r, g: interpolated(r, g, "0.35", 2),
    "IPrec(judged_only=True)@1.0": judged_only(lambda r, g: interpolated(r, g, "1")),
    "NumQ": lambda r, g: 1.0,
    "NumRel": lambda r, g: float(relevant(g, 1)),
    "NumRel(rel=3)": lambda r, g: float(relevant(g, 3)),
    "NumRet": lambda r, g: float(len(r)),
    "NumRelRet": lambda r, g: float(sum(above(g, r, 1))),
}


def case(seed: int, grades: list[int], length: int) -> tuple[pl.DataFrame, dict, dict]:
    """Judgments and rankings of every odd query id over odd document ids, some of them
    not judged.
    """
    draw = random.Random(seed)
    documents = [*ODD_IDS, *(f"{d}-{n}" for d in ODD_IDS[:6] for n in range(3))]
    rows, rankings, known = [], {}, {}
    for query in ODD_IDS:
        judged = draw.sample(documents, 12)
        own = {document: draw.choice(grades) for document in judged}
        own[judged[0]] = max(grades)  # a positive one, or nothing is evaluated
        rows += [(query, document, grade) for document, grade in own.items()]
        rankings[query] = draw.sample(documents, length)
        known[query] = {document: max(grade, 0) for document, grade in own.items()}
    schema = {"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32}
    return pl.DataFrame(rows, schema, orient="row"), rankings, known


@pytest.mark.parametrize(
    ("grades", "length"),
    [
        ([1], 20),
        ([0, 1], 3),
        ([-2, -1, 0, 1], 25),
        ([0, 1, 2, 3, 4], 1),
        ([0, 2, 5], 30),
        ([0, 1, 31], 14),
    ],
)
def test_every_accepted_measure_is_right_or_refused_for_odd_ids(grades, length):
    """Every accepted measure is right or refused for odd ids and every grade."""
    qrels, rankings, known = case(sum(grades) + length, grades, length)
    limits = grade_limits(ORACLES)
    takes = {
        name: oracle for name, oracle in ORACLES.items() if limits.get(name, 10_000) >= max(grades)
    }
    found = {
        (query, name): value for query, name, value in evaluate(qrels, rankings, takes).iter_rows()
    }
    assert len(found) == len(takes) * len(ODD_IDS)
    for (query, name), value in found.items():
        expected = takes[name](rankings[query], known[query])
        assert value == pytest.approx(expected, abs=1e-9), (name, query[:20], known[query])
    for name in ORACLES.keys() - takes.keys():
        with pytest.raises(
            DesaError, match=rf"up to {limits[name]}, .*grade {max(grades)}"
        ) as refused:
            evaluate(qrels, rankings, [name])
        assert name in str(refused.value)
        assert refused.value.hint


def test_one_measure_is_not_changed_by_another_beside_it():
    """ir_measures gives plain nDCG the gains of the measure that happens to come first in a set."""
    qrels, rankings, _ = case(3, [0, 1, 2], 20)
    alone = {name: evaluate(qrels, rankings, [name])["value"].to_list() for name in ORACLES}
    together = evaluate(qrels, rankings, ORACLES)
    for name, values in alone.items():
        assert together.filter(pl.col("measure") == name)["value"].to_list() == values, name


def test_an_empty_ranking_scores_zero_and_still():
    """An empty ranking scores zero and still has its judgments."""
    qrels = pl.DataFrame(
        [("q-1", "d", 1), ("q-1", "e", 2)],
        {"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32},
        orient="row",
    )
    found = dict(evaluate(qrels, {"q-1": []}, ORACLES).select("measure", "value").iter_rows())
    counted = {name: value for name, value in found.items() if value}
    assert counted == {"NumQ": 1.0, "NumRel": 2.0}


def test_known_values_of_err():
    """Chapelle et al.: grade 1 first is (2 - 1) / 16; grade 4 first, then grade 4: 15/16 + 1/16 *
    15/16 / 2.
    """
    qrels = pl.DataFrame(
        [("need-01", "a", 1), ("PLAIN-2", "b", 4), ("PLAIN-2", "c", 4)],
        {"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32},
        orient="row",
    )
    names = ["ERR@10", "nDCG(dcg='exp-log2')@10", "nDCG@10"]
    found = evaluate(qrels, {"need-01": ["a", "x"], "PLAIN-2": ["b", "c"]}, names)[
        "value"
    ].to_list()
    assert found == pytest.approx([15 / 16 + 15 / 512, 1, 1, 1 / 16, 1, 1])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("infAP", "not computed here"),
        ("RBP(rel=1)", "not computed here"),
        ("NERR8(max_rel=1)@5", "not computed here"),
        ("SetF(beta=2.0)", "only beta=1.0"),
        ("P(rel=0)@5", "rel is below 1"),
        ("P(rel=-1)@5", "-1|values must be"),
        ("P@True", "True and False"),
        ("IPrec@1.5", "between 0 and 1"),
        ("IPrec@1e999", "too large|between"),
        ("Compat(p=1.0)", "between 0 and 1"),
        ("nDCG(gains={1:0.5})@10", "whole numbers"),
        ("nDCG(gains={'a':1})@10", "whole numbers"),
        ("nDCG(gains={-1:1})@10", "whole numbers|values must be"),
        ("nDCG(dcg='exp-log2',gains={1:3})@10", "gains mapping and exponential"),
        ("nDCG(gains={**{}})@10", "measure"),
        ("P(**{})@5", "measure"),
        ("P@5\x00", "measure"),
        ("(" * 400 + "P@5", "measure"),
        ("P" * 501, "longer than 500"),
    ],
)
def test_what_has_no_right_value_is_refused_by_name(name, why):
    with pytest.raises(DesaError, match=why) as refused:
        parse_measures([name])
    assert "\n" not in str(refused.value)
    assert refused.value.hint
