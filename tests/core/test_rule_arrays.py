"""Rules on arrays give the orders and depths of rules on fractions."""

import random
from fractions import Fraction

import numpy as np
import pytest

from desa_ray.core.rules.arrays import ArrayFusion, fused_order, sorted_replay
from desa_ray.core.rules.certify import certify, refusal
from desa_ray.core.rules.fuse import fuse
from desa_ray.core.rules.held_lists import ranked_lists, scored_lists
from desa_ray.core.rules.normalise import ScoreBounds
from desa_ray.core.rules.registry import ScoredList, rule_of
from tests.core.test_rules import RULES, cases, listed, made


def held(rule, lists):
    documents = [np.array([d for d, _ in own], np.int32) for own in lists]
    if rule.by_scores:
        return scored_lists(rule, documents, [[s for _, s in own] for own in lists])
    return ranked_lists(rule, documents)


@pytest.mark.parametrize("name", RULES)
def test_orders_and_depths_are_those_of_fractions(name):
    for lists, weights, k in cases(name, 80, "arrays", documents=9, longest=8):
        rule, *_ = made(name, weights)
        own, whole = held(rule, lists), listed(lists)
        assert fused_order(rule, own).tolist() == [d for d, _ in fuse(rule, whole)]
        if refusal(rule) is None:
            proof, found = certify(rule, whole, k), sorted_replay(rule, own, k)
            assert found is not None
            assert found.depths == proof.sorted_depths
            assert found.topk.tolist() == [d for d, _ in proof.top]
            assert found.steps == sum(found.depths)


@pytest.mark.parametrize("name", ["qdrant_rrf", "isr", "log_isr"])
def test_heads_prove_what_they_can(name):
    """A head suffices exactly where the certificate of whole lists reads no further."""
    rule = rule_of(name, (Fraction(1), Fraction(2)), kappa=Fraction(61))
    random_, proved = random.Random(3), 0
    for _ in range(60):
        lists = [random_.sample(range(40), random_.randint(0, 30)) for _ in range(2)]
        channels, lengths = [np.array(own, np.int32) for own in lists], [len(o) for o in lists]
        depths = certify(rule, [ScoredList(own) for own in lists], 3).sorted_depths
        size = random_.randint(1, 30)
        heads = ranked_lists(rule, [own[:size] for own in channels], lengths)
        found = ArrayFusion(rule, heads).certified(3)
        proved += found is not None
        enough = all(depth <= size for depth in depths)
        assert (found.depths if found else None) == (depths if enough else None)
    assert 10 < proved < 50


def test_long_lists_of_close_scores_are_ordered_exactly():
    """Scores that floats cannot tell apart, against fractions."""
    random_ = random.Random(7)
    bounds = (ScoreBounds(Fraction(-1)), ScoreBounds(Fraction(0)))
    for name in ("convex", "combsum", "zscore", "dbsf"):
        declared = bounds if name in ("convex", "combsum") else ()
        rule = rule_of(name, (Fraction(1, 3), Fraction(2, 3)), bounds=declared)
        lists = []
        for _ in range(2):
            some = [1 + random_.randint(0, 3) * 2.0**-52 for _ in range(40)]
            scores = sorted([*some, *(random_.random() for _ in range(80))], reverse=True)
            numbers = random_.sample(range(160), 120)
            lists.append(list(zip(numbers, map(Fraction, scores), strict=True)))
        own, whole = held(rule, lists), listed(lists)
        assert fused_order(rule, own).tolist() == [d for d, _ in fuse(rule, whole)]
        if refusal(rule) is None:
            found = sorted_replay(rule, own, 20)
            assert found is not None
            assert found.depths == certify(rule, whole, 20).sorted_depths
