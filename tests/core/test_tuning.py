"""Tuning: values of variants against fused orders, and how often nothing is called something."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from desa_ray.core.rules.fuse import fuse
from desa_ray.core.rules.kinds import KINDS
from desa_ray.core.rules.normalise import ScoreBounds
from desa_ray.core.rules.registry import ScoredList
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.core.tuning import (
    KEEP,
    by_halves,
    first_half,
    halves_verdict,
    together,
    together_verdict,
)
from desa_ray.core.variants import FusionVariant, Judged, query_values

HALF, ONE = Fraction(1, 2), Fraction(1)
BOUNDS = (ScoreBounds(Fraction(-1)), ScoreBounds(Fraction(0)))
WEIGHTS = ((HALF, HALF), (Fraction(1, 4), Fraction(3, 4)))


def made(random_, documents=30):
    """A query of two lists with ties, and its grades; 99 is in no list."""
    lists, scores = [], []
    for _ in range(2):
        own = random_.sample(range(documents), random_.randint(0, 20))
        lists.append(np.array(own, np.int32))
        scores.append(sorted((Fraction(random_.randint(0, 6), 4) for _ in own), reverse=True))
    grades = {d: random_.randint(1, 2) for d in random_.sample(range(documents), 4)}
    return Judged(lists, scores, {**grades, -1: 1})


def by_definition(judged, variant, measure, cutoff):
    cut = [
        ScoredList(docs[: variant.depth].tolist(), scores[: variant.depth])
        for docs, scores in zip(judged.lists, judged.scores, strict=True)
    ]
    top = [d for d, _ in fuse(variant.made(BOUNDS), cut)][:cutoff]
    if measure == "R":
        return sum(d in judged.grades for d in top) / len(judged.grades)
    best = sorted(judged.grades.values(), reverse=True)[:cutoff]
    ideal = sum(g / math.log2(n + 2) for n, g in enumerate(best))
    return sum(judged.grades.get(d, 0) / math.log2(n + 2) for n, d in enumerate(top)) / ideal


def test_values_are_those_of_fused_orders():
    random_ = random.Random(5)
    variants = []
    for rule in sorted(set(KINDS) - {"opensearch", "combmnz"}):
        for weights in WEIGHTS:
            for depth in (None, 5):
                variants.append(FusionVariant(rule, weights, Fraction(2), None, depth))
    variants.append(FusionVariant("combmnz", WEIGHTS[1], normaliser="min_max"))
    for measure, cutoff in (("nDCG", 3), ("R", 5)):
        for _ in range(4):
            judged = made(random_)
            found = query_values(judged, variants, BOUNDS, measure, cutoff)
            wanted = [by_definition(judged, own, measure, cutoff) for own in variants]
            assert found == pytest.approx(wanted, abs=1e-12)


def null(rng, variants, queries, kind):
    """Values of variants that do not differ but by chance, float64 [Q, V]."""
    shared = rng.normal(size=(queries, 1))
    own = rng.normal(size=(queries, variants)) + shared
    if kind == "skewed":
        own = np.exp(own)
    if kind == "zero-inflated":
        own = np.where(rng.random((queries, 1)) < 0.7, 0.0, np.maximum(own, 0))
    if kind == "tied":
        own = np.round(own)
    if kind == "dependent":
        own = shared + 0.05 * np.cumsum(rng.normal(size=(queries, variants)), axis=1)
        own = own[:, rng.permutation(variants)]
    return own


def false_winners(kind, simulations, variants, queries, resamples):
    rng = np.random.default_rng(11)
    found = [0, 0]
    for number in range(simulations):
        values = null(rng, variants, queries, kind)
        sampling = Sampling(resamples, number)
        found[0] += bool(together(values, sampling).winners)
        halves = by_halves(values, first_half([str(n) for n in range(queries)]), sampling)
        found[1] += halves.test is not None and halves.test.p <= 0.05 and halves.test.effect > 0
    return found


KINDS_OF_NULL = ("skewed", "zero-inflated", "tied", "dependent")


@pytest.mark.parametrize("kind", KINDS_OF_NULL)
def test_few_false_winners(kind):
    """Of 40 simulations 2 are expected at most; 8 or more have a probability of 1 in 1,000."""
    assert max(false_winners(kind, 40, 12, 40, 99)) <= 7


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_OF_NULL)
def test_at_most_64_false_winners_in_1000(kind):
    """50 expected, and two standard deviations."""
    assert max(false_winners(kind, 1000, 40, 100, 399)) <= 64


def test_a_true_gain_is_found_and_said():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(200, 30)) * 0.1 + 0.4
    values[:, 7] = values[:, 0] + 0.05 + rng.normal(size=200) * 0.02
    names = [f"v{n}" for n in range(30)]
    found = together(values, Sampling(999))
    assert found.winners[0] == 7
    assert found.effects[7] == pytest.approx((values[:, 7] - values[:, 0]).mean())
    assert together_verdict(found, names).startswith("use v7: +0.0")
    halves = by_halves(values, first_half(names * 6 + names[:20]), Sampling(999))
    assert halves.selected == 7
    assert halves_verdict(halves, names).startswith("use v7: +0.0")


def test_no_gain_keeps_the_default():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(50, 10))
    found = together(values, Sampling(999))
    names = [f"v{n}" for n in range(10)]
    assert found.winners == []
    assert together_verdict(found, names).startswith(KEEP)
    assert "would have been detected with probability 0.8" in together_verdict(found, names)
    assert found.needed is not None
    assert found.needed > 50
    values[:, 1:] = values[:, :1] - 0.1
    halves = by_halves(values, first_half([str(n) for n in range(50)]), Sampling(99))
    assert halves.test is None
    assert halves_verdict(halves, names).startswith(KEEP)
    assert "none of 9 variants" in together_verdict(together(values, Sampling(99)), names)


def test_needed_queries_by_hand():
    """Differences 0, 0.2, 0, 0.2, ...: mean 0.1, deviation 0.1 sqrt(n / (n - 1)); (1.96 + 0.84)^2
    times the square of their ratio, 7.85 * 8 / 7.
    """
    values = np.zeros((16, 2))
    values[:, 1] = np.tile([0.0, 0.2], 8)
    selects = np.arange(16) < 8
    found = by_halves(values, selects, Sampling(99))
    assert found.gain == pytest.approx(0.1)
    assert found.needed == 9
