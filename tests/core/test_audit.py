"""Audits of fused answers: rules are recognised, faults named, legal answers left in peace."""

import random
from fractions import Fraction

import numpy as np
import pytest

from desa_ray.core.audit import findings
from desa_ray.core.audit.evidence import evidence_of
from desa_ray.core.audit.explain import explain
from desa_ray.core.audit.impossible import by_dominance, by_rule
from desa_ray.core.rules.fuse import fuse, shown_score
from desa_ray.core.rules.registry import ScoredList, rule_of
from desa_ray.errors import DesaError

ONE = Fraction(1)
A = [(f"d{n:02}", 30.0 - n * n / 10) for n in range(1, 16)]
PLACES = (3, 20, 1, 21, 8, 22, 5, 23, 24, 2, 25, 26)
B = [(f"d{n:02}", 1.0 - place * place / 160) for place, n in enumerate(PLACES)]


def evidence(answer, legs=(A, B), scores=()):
    """Evidence of ids and of legs named a, b, ... of (id, score) pairs."""
    named = []
    for name, leg in zip("abcd", legs, strict=False):
        named.append((name, [d for d, _ in leg], [s for _, s in leg]))
    return evidence_of((answer, scores), named)


def fused(rule, legs=(A, B), limit=None):
    """A legal answer: ids and float32 scores."""
    ids = sorted({d for leg in legs for d, _ in leg})
    lists = []
    for leg in legs:
        lists.append(ScoredList([ids.index(d) for d, _ in leg], [Fraction(s) for _, s in leg]))
    ranked = fuse(rule, lists, limit)
    scores = [float(np.float32(shown_score(rule, score))) for _, score in ranked]
    return [ids[n] for n, _ in ranked], scores


def rrf(kappa=60, weights=(ONE, ONE)):
    return rule_of("rrf", weights, kappa=Fraction(kappa))


LEGAL = {
    "rrf": lambda r: rrf(r.choice((60, 59, 61, 1, 2, 20)), _weights(r)),
    "isr": lambda r: rule_of("isr", (ONE, ONE)),
    "combsum": lambda r: rule_of("combsum", _weights(r), normaliser=r.choice(("none", "min_max"))),
    "dbsf": lambda r: rule_of("dbsf", (ONE, ONE)),
    "zscore": lambda r: rule_of("zscore", _weights(r)),
    "combmnz": lambda r: rule_of("combmnz", _weights(r)),
    "opensearch": lambda r: rule_of(
        "opensearch", (ONE, ONE), mean=r.choice(("arithmetic", "geometric", "harmonic"))
    ),
}


def _weights(random_):
    return random_.choice([(ONE, ONE), (ONE / 2, ONE / 2), (3 * ONE / 10, 7 * ONE / 10)])


def check_legal(count, seed):
    """Legal answers: several rules, limits, ties in any order, with and without scores."""
    random_ = random.Random(seed)
    recognised = 0
    for _ in range(count):
        name = random_.choice(sorted(LEGAL))
        legs = []
        for _ in range(2):
            own = random_.sample(range(40), random_.randint(3, 25))
            scores = sorted((random_.randint(1, 400) / 8 for _ in own), reverse=True)
            legs.append([(f"d{n:02}", s) for n, s in zip(own, scores, strict=True)])
        ids, scores = fused(LEGAL[name](random_), legs)
        places = sorted(range(len(ids)), key=lambda n: (-scores[n], random_.random()))
        limit = random_.choice((5, 10, 20, 50))
        ids, scores = [ids[n] for n in places][:limit], [scores[n] for n in places][:limit]
        if random_.random() < 0.3:
            scores = []
        own = evidence(ids, legs, scores)
        told = explain(own)
        wrong = [f for f in findings.of_lists(own) if f.wrong]
        if told is None:
            assert by_dominance(own) is None, (name, legs, ids)
            wrong += findings.shard_ranks(own)
        else:
            wrong += [f for f in findings.of_rule(own, told) if f.wrong]
            recognised += 1
        assert not [f for f in wrong if f.case != 6], (name, legs, ids, scores, told, wrong)
    return recognised / count


def test_legal_answers_raise_no_alarm():
    assert check_legal(40, 1) > 0.8


@pytest.mark.slow
def test_a_thousand_legal_answers_raise_no_alarm():
    assert check_legal(1000, 2) > 0.8


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (rrf(), "kappa 60 with ranks from 1 (k = 61 if ranks count from 0); weights 1, 1"),
        (rrf(59, (ONE / 4, 3 * ONE / 4)), "kappa 59 with ranks from 1"),
        (rule_of("log_isr", (ONE, ONE)), "log_isr"),
        (rule_of("dbsf", (ONE, ONE)), "sum of dbsf scores"),
        (rule_of("convex", (ONE / 4, 3 * ONE / 4), normaliser="min_max"), "sum of min_max scores"),
        (rule_of("combmnz", (ONE, ONE), normaliser="min_max"), "times the number of lists"),
        (rule_of("opensearch", (ONE, ONE), mean="harmonic"), "harmonic mean of OpenSearch's min"),
        (rule_of("opensearch", (ONE, ONE), mean="geometric"), "geometric mean of OpenSearch's"),
    ],
)
def test_rules_are_recognised_from_scores(rule, wanted):
    ids, scores = fused(rule, limit=12)
    found = explain(evidence(ids, scores=scores))
    assert found is not None
    assert wanted in str(found)
    if "3/4" in str(rule.weights):
        assert found.weights == pytest.approx((0.25, 0.75), rel=1e-3)


def test_rounding_is_told():
    ids, scores = fused(rrf())
    found = explain(evidence(ids, scores=[round(s, 4) for s in scores]))
    assert found is not None
    assert found.rounding == "scores rounded to 4 digits after the decimal point"
    assert "kappa 60 " in found.formula


def test_case_1_documents_of_one_list_vanish():
    """d01 ... of list a alone are dropped: the bound names the first, and what stands instead."""
    ids, scores = fused(rrf())
    kept = [n for n, d in enumerate(ids) if d not in ("d04", "d20")]
    own = evidence([ids[n] for n in kept], scores=[scores[n] for n in kept])
    assert explain(own) is None
    found = by_dominance(own)
    assert found is not None
    assert own.ids[found.before] in ("d04", "d20")
    assert "is missing" in findings.of_impossible(own, found).what
    exact = by_rule(own, rrf(), cut=False)
    assert exact is not None
    assert own.ids[exact.before] == "d20"
    assert "b: rank 2" in exact.ledgers[1]
    assert f"gives {1 / 62:.6g}" in exact.ledgers[1]


def test_case_1_ranks_are_counted_per_shard():
    """Two documents of list a alone claim rank 1."""
    scores = {"x": 1 / 61, "y": 1 / 61, "z": 1 / 62, "w": 1 / 62}
    legs = ([("x", 9.0), ("y", 8.0), ("z", 7.0)], [("w", 3.0), ("v", 2.0)])
    own = evidence(list(scores), legs, list(scores.values()))
    assert explain(own) is None
    (found,) = findings.shard_ranks(own)
    assert (found.case, found.wrong) == (1, True)
    assert "'x' and 'y' both count as rank 1 of a" in found.what


def test_cases_2_and_3_limits_and_pages():
    assert findings.prefix(["a", "b"], ["a", "b", "c"]) == []
    assert findings.prefix(["a", "b"], ["a", "c", "b"])[0].case == 2
    assert findings.pages(["a", "b", "c"], [["a"], ["b", "c"]]) == []
    assert [f.case for f in findings.pages(["a", "b", "c"], [["a", "b"], ["b"]])] == [3, 3]
    assert findings.repeats(["a", "b", "a"])[0].what == "rank 3 repeats 'a'"


def test_case_4_distances_are_read_as_scores():
    legs = (A, [(d, -s) for d, s in reversed(B)])  # the engine fused b from its end
    ids, scores = fused(rrf(), (A, list(reversed(B))))
    turned = [(d, -s) for d, s in B]
    own = evidence(ids, (A, B), scores)
    found = explain(own)
    assert found is not None
    assert [f.case for f in findings.of_rule(own, found)] == [4]
    rising = evidence(ids, (A, turned), scores)
    assert 4 in [f.case for f in findings.of_lists(rising)]
    assert legs[1][0][0] == "d26"


def test_case_5_the_self_document_is_dropped_by_position():
    own = evidence([d for d, _ in A[1:]] + ["d20"], (A, B))
    assert [f.case for f in findings.of_lists(own, "d02")] == [5]
    assert findings.of_lists(own, "other") == []


def test_case_6_ids_never_meet():
    legs = ([("1", 2.0), ("2", 1.0)], [("01", 2.0), ("03", 1.0)])
    (found,) = findings.of_lists(evidence(["1", "01"], legs))
    assert (found.case, found.wrong) == (6, True)
    assert "'1' and '01' look like one document" in found.what


def test_case_7_a_document_twice_in_a_leg_is_refused():
    with pytest.raises(DesaError, match=r"a, query q7: document 'x' is listed twice"):
        evidence_of((["x"], []), [("a", ["x", "y", "x"], [])], "q7")


def test_case_8_ties_follow_physical_order():
    legs = ([("x", 2.0), ("y", 1.0)], [("y", 2.0), ("x", 1.0)])
    own = evidence(["y", "x"], legs, [1 / 61 + 1 / 62] * 2)
    assert [f.case for f in findings.of_lists(own)] == [8]
    assert findings.again(["y", "x"], ["x", "y"])[0].case == 8


def test_case_9_unjudged_documents_are_filtered():
    ids, _ = fused(rrf())
    own = evidence([d for d in ids if d not in ("d04", "d22")])
    told = findings.judged(own, {*ids} - {"d04", "d22"})
    assert [(f.case, f.wrong) for f in told] == [(9, False), (9, True)]
    assert told[0].what == "judged@10: 100%"
    assert [f.wrong for f in findings.judged(evidence(ids), {"d01"})] == [False]


def test_case_10_rounded_scores_tie():
    legs = ([("x", 2.0), ("y", 2.0), ("z", 1.0)], B)
    (found, *_) = findings.of_lists(evidence(["x", "y"], (legs[0], [*B, ("x", 0.1)])))
    assert (found.case, found.wrong) == (10, False)


def test_case_11_kappa_of_zero_based_ranks_is_named():
    ids, scores = fused(rrf(59))
    own = evidence(ids, scores=scores)
    found = explain(own)
    assert found is not None
    assert [f.case for f in findings.of_rule(own, found)] == [11]


def test_case_12_ranks_are_renumbered_or_made_up():
    """After a filter, and with the rank behind the last for absent documents."""
    gone = ("d01", "d03", "d20")
    legs = [[(d, s) for d, s in leg if d not in gone] for leg in (A, B)]
    ids, scores = fused(rrf(), legs)
    own = evidence(ids, scores=scores)
    found = explain(own, cut=False)
    assert found is not None
    assert "renumbered" in findings.of_rule(own, found)[0].what
    ranks = [{d: n for n, (d, _) in enumerate(leg, 1)} for leg in (A, B)]
    total = {}
    for document in sorted({*ranks[0], *ranks[1]}):
        both = zip(ranks, (A, B), strict=True)
        total[document] = sum(1 / (60 + own.get(document, len(leg) + 1)) for own, leg in both)
    ids = sorted(total, key=lambda d: -total[d])
    own = evidence(ids, scores=[total[d] for d in ids])
    found = explain(own)
    assert found is not None
    told = findings.of_rule(own, found)[0]
    assert (told.case, told.wrong) == (12, True)
    assert "the rank after its last" in told.what


def test_case_13_conventions_of_score_fusion_are_told():
    legs = ([("x", 5.0)], [("x", 3.0), ("y", 2.0), ("z", 0.5)])
    ids, scores = fused(rule_of("dbsf", (ONE, ONE)), legs)
    own = evidence(ids, legs, scores)
    found = explain(own)
    assert found is not None
    told = findings.of_rule(own, found)
    assert [f.case for f in told] == [13, 13]
    assert "lengths of the lists" in told[0].what
    assert told[1].what.startswith("a: a single hit")


def test_legs_that_go_on_excuse_what_they_may_hold():
    """A document behind both windows may have stood at the next place of b."""
    ids, _ = fused(rrf())
    short = (A[:6], B[:6])
    own = evidence(ids[:10], short)
    assert by_rule(own, rrf(), cut=False) is not None
    assert by_rule(own, rrf(), cut=True) is None
