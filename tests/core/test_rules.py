"""Fusion rules: orders against their definitions, certificates against every continuation."""

import math
import random
from fractions import Fraction
from itertools import product

import pytest

from desa_ray.core.rules.certify import certify, lanes_of, reading
from desa_ray.core.rules.constants import logarithm, root
from desa_ray.core.rules.fuse import fuse
from desa_ray.core.rules.normalise import ScoreBounds
from desa_ray.core.rules.registry import ScoredList, rule_of
from desa_ray.core.rules.window import rule_window
from desa_ray.errors import DesaError
from tests.core import rule_oracle as oracle

ONE = Fraction(1)
# Rule and settings -> the oracle's contributions and combination, and the declared bounds.
RULES = {
    "rrf": ({}, "rrf", "sum", None),
    "qdrant_rrf": ({"kappa": Fraction(2)}, "qdrant_rrf", "sum", None),
    "isr": ({}, "isr", "isr", None),
    "log_isr": ({}, "log_isr", "log_isr", None),
    "convex": ({}, "convex", "sum", ScoreBounds(Fraction(-1))),
    "combsum": ({}, "combsum", "sum", ScoreBounds(Fraction(-1))),
    "combmnz": ({}, "combmnz", "combmnz", ScoreBounds(Fraction(0), Fraction(4))),
    "dbsf": ({}, "dbsf", "sum", None),
    "zscore": ({}, "zscore", "sum", None),
    "opensearch arithmetic": ({"mean": "arithmetic"}, "min_max", "arithmetic", None),
    "opensearch harmonic": ({"mean": "harmonic"}, "min_max", "harmonic", None),
    "opensearch geometric": ({"mean": "geometric"}, "min_max", "geometric", None),
}


def made(name, weights):
    settings, shares, combination, bounds = RULES[name]
    given = (bounds,) * len(weights) if bounds else ()
    return rule_of(name.split()[0], weights, bounds=given, **settings), shares, combination, bounds


def cases(name, count, seed, documents=5, longest=4):
    """Random lists of a rule with ties, as (document, score) pairs."""
    random_ = random.Random(f"{name} {seed}")
    least = Fraction(0) if name == "combmnz" else Fraction(-1)
    for _ in range(count):
        weights = random_.choice([(ONE, ONE), (ONE / 4, 3 * ONE / 4), (3 * ONE, ONE)])
        if name == "convex":
            weights = tuple(w / sum(weights) for w in weights)
        if "geometric" in name:
            weights = (ONE, ONE)
        lists = []
        for _ in weights:
            own = random_.sample(range(documents), random_.randint(0, min(longest, documents)))
            scores = sorted((random_.randint(0, 8) / Fraction(2) for _ in own), reverse=True)
            if name != "combmnz" and random_.random() < 0.5:
                scores = [s - 1 for s in scores]
            lists.append([(d, max(s, least)) for d, s in zip(own, scores, strict=True)])
        yield lists, weights, random_.randint(1, 3)


def listed(lists):
    return [ScoredList([d for d, _ in own], [s for _, s in own]) for own in lists]


def by_definition(name, lists, weights):
    """Every list as (document, contribution) pairs."""
    settings, shares, _, bounds = RULES[name]
    kappa, least = settings.get("kappa", Fraction(60)), bounds.least if bounds else 0
    found = []
    for own, weight in zip(lists, weights, strict=True):
        values = oracle.contributions(shares, own, weight, kappa, least)
        found.append([(d, x) for (d, _), x in zip(own, values, strict=True)])
    return found


@pytest.mark.parametrize("name", RULES)
def test_orders_are_those_of_the_definitions(name):
    for lists, weights, _ in cases(name, 60, "orders", documents=8, longest=8):
        rule, _, combination, _ = made(name, weights)
        found = [document for document, _ in fuse(rule, listed(lists))]
        assert found == oracle.order(combination, by_definition(name, lists, weights), weights)


def agreed(name, lists, weights, state, k):
    """The ordered top k that every continuation of a state has; None where two differ."""
    rule, _, combination, _ = made(name, weights)
    given = by_definition(name, lists, weights)
    lanes = lanes_of(rule, listed(lists), rule.contributions(listed(lists)))
    read = [own[:n] for own, n in zip(given, state, strict=True)]
    shown = {document for own in read for document, _ in own}
    if any(n < len(own) for own, n in zip(given, state, strict=True)) and len(shown) < k:
        return None  # an unread document is among the first k, and may have any id
    pool = [*sorted(shown), *oracle.NEW]
    continued = []
    for own, lane, n in zip(given, lanes, state, strict=True):
        left = len(own) - n
        bound = lane.bound(n) if left else None
        if left and bound is None:
            return None
        following = [x for _, x in own[n:]] if rule.normaliser is None else None
        ways = oracle.continuations(own[:n], left, bound, lane.least, pool, following)
        continued.append(random.Random(n).sample(found := list(ways), len(found)))
    if math.prod(map(len, continued)) > 60_000:
        return "too many"
    tops = set()
    for lists_ in product(*continued):
        tops.add(tuple(oracle.order(combination, lists_, weights)[:k]))
        if len(tops) > 1:
            return None
    return list(tops.pop())


def check_certificates(name, count, seed):
    """At the depth found all continuations agree, and one item before they do not."""
    tried = 0
    for lists, weights, k in cases(name, count, seed, longest=3):
        rule, _, combination, _ = made(name, weights)
        proof = certify(rule, listed(lists), k, frozen=True)
        truth = oracle.order(combination, by_definition(name, lists, weights), weights)[:k]
        assert [document for document, _ in proof.top] == truth
        lanes = lanes_of(rule, listed(lists), rule.contributions(listed(lists)))
        states = list(reading(lanes))
        place = states.index(proof.sorted_depths)
        found = agreed(name, lists, weights, states[place], k)
        assert found in (truth, "too many"), (lists, weights, k, proof)
        if place:
            before = agreed(name, lists, weights, states[place - 1], k)
            assert before in (None, "too many"), (lists, weights, k, proof)
        assert sum(proof.random_depths) <= sum(proof.sorted_depths)
        tried += found != "too many"
    assert tried >= count * 0.6


@pytest.mark.parametrize("name", RULES)
def test_certificates_are_sound_and_minimal(name):
    check_certificates(name, 12, "quick")


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_two_thousand_certificates_of_every_rule(name):
    check_certificates(name, 2000, "slow")


def test_rules_without_a_bound_say_why():
    lists = [ScoredList([1, 2], [ONE, ONE / 2]), ScoredList([2], [ONE])]
    for name, reason in (("zscore", "its mean and standard"), ("combsum", "least possible score")):
        with pytest.raises(DesaError, match=reason):
            certify(rule_of(name, (ONE, ONE)), lists, 1)
    rule = rule_of("opensearch", (ONE, ONE), normaliser="l2", mean="harmonic")
    zero = [lists[0], ScoredList([2, 1], [ONE, Fraction(0)])]
    with pytest.raises(DesaError, match="leaves out values of 0"):
        certify(rule, zero, 1, frozen=True)


@pytest.mark.parametrize(
    ("name", "settings", "what"),
    [
        ("rff", {}, "unknown rule"),
        ("rrf", {"normaliser": "l2"}, "uses ranks only"),
        ("convex", {"bounds": [ScoreBounds(ONE)] * 2}, "sum to 2"),
        ("combsum", {"normaliser": "theoretical"}, "needs the least possible"),
        ("combsum", {"mean": "harmonic"}, "has no setting mean"),
        ("qdrant_rrf", {"kappa": Fraction(0)}, "Qdrant's k is 0"),
        ("dbsf", {"normaliser": "l2"}, "its own normaliser"),
        ("combsum", {"bounds": [ScoreBounds(ONE, ONE)] * 2}, "not below most"),
    ],
)
def test_what_a_rule_does_not_take_is_refused(name, settings, what):
    with pytest.raises(DesaError, match=what):
        rule_of(name, (ONE, ONE), **settings)


def test_scores_that_a_rule_does_not_take_are_refused():
    low = ScoredList([1], [-ONE])
    rule = rule_of("combmnz", (ONE,))
    with pytest.raises(DesaError, match="values below 0"):
        fuse(rule, [low])
    with pytest.raises(DesaError, match="beyond the declared least"):
        fuse(rule_of("convex", (ONE,), bounds=[ScoreBounds(Fraction(0))]), [low])
    with pytest.raises(DesaError, match="needs scores"):
        fuse(rule, [ScoredList([1])])
    with pytest.raises(DesaError, match="scores increase"):
        fuse(rule, [ScoredList([1, 2], [ONE, 2 * ONE])])


def test_one_hit_and_equal_scores_have_their_own_values():
    """One hit is 1 under min-max, 0 as a z-score, 1/2 in DBSF; log_isr gives one list's 0."""
    one, two = ScoredList([5], [Fraction(7)]), ScoredList([6, 5], [Fraction(3), Fraction(3)])
    for name, wanted in (
        ("min_max", {5: 2, 6: 1}),
        ("z_score", {5: 0, 6: 0}),
        ("dbsf", {5: 1, 6: ONE / 2}),
    ):
        assert dict(fuse(rule_of("combsum", (ONE, ONE), normaliser=name), [one, two])) == wanted
    found = dict(fuse(rule_of("log_isr", (ONE, ONE)), [one, two]))
    assert found[6] == 0
    assert found[5] == logarithm(2) * Fraction(5, 4)


def test_worked_by_hand():
    """Means of OpenSearch for (1, 1/2) and (absent, 1): 3/4, root of 1/2, 2/3 against 1/2, 1, 1."""
    lists = [
        ScoredList([1, 3], [Fraction(9), Fraction(1)]),
        ScoredList([2, 1, 4], [Fraction(5), Fraction(4), Fraction(3)]),
    ]
    means = {"arithmetic": (3 * ONE / 4, ONE / 2), "geometric": (ONE / 2, ONE)}
    means["harmonic"] = (2 * ONE / 3, ONE)
    for mean, (first, second) in means.items():
        found = dict(fuse(rule_of("opensearch", (ONE, ONE), mean=mean), lists))
        assert (found[1], found[2]) == (first, second)


def test_windows_of_rules_of_ranks():
    """Equal weights: kappa + 2k. qdrant_rrf, k = 2, weights 3 and 1: 3/(10+3) of rank 10 against
    3/(L+4) + 1/(L+2).
    """
    assert rule_window(rule_of("rrf", (ONE, ONE)), 20) == 100
    weights = (ONE, 2 * ONE, 5 * ONE)
    found = rule_window(rule_of("weighted_rrf", weights), 7)
    assert found == next(L for L in range(7, 99) if 8 * ONE / (60 + L + 1) < 5 * ONE / (60 + 7))
    found = rule_window(rule_of("qdrant_rrf", (3 * ONE, ONE), kappa=Fraction(2)), 10)
    assert found == next(
        L for L in range(10, 99) if ONE * 3 / (L + 4) + ONE / (L + 2) < ONE * 3 / 13
    )
    assert rule_window(rule_of("isr", (ONE, ONE)), 10) == 20  # 2 (1/L^2 + 1/L^2) < 1/100, L > 20
    assert rule_window(rule_of("log_isr", (ONE, ONE)), 10) is None


def test_constants_are_the_nearest_floats():
    random_ = random.Random(4)
    for _ in range(300):
        value = Fraction(random_.getrandbits(70) + 1, random_.getrandbits(50) + 1)
        found = float(root(value))
        low = (Fraction(math.nextafter(found, 0)) + Fraction(found)) / 2
        high = (Fraction(math.nextafter(found, math.inf)) + Fraction(found)) / 2
        assert low**2 <= value <= high**2
    assert root(Fraction(9, 4)) == Fraction(3, 2)
    assert logarithm(1) == 0
    assert float(logarithm(2)) == 0.6931471805599453
