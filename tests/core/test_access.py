"""Depths with random access and least depths, against their definitions read by read and pair by
pair.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from adversarial import case
from slow_fusion import certain, fused

from desa_ray.core.fusion.access import least_depths, threshold_depths
from desa_ray.core.fusion.counted import head_of, members
from desa_ray.core.fusion.depth import replay
from desa_ray.core.fusion.rrf import rank_matrix

EVEN = [Fraction(1), Fraction(1)]


def threshold_slowly(channels, weights, kappa, k):
    """The threshold algorithm as it is defined, in rationals."""
    score = dict(fused(channels, weights, kappa))
    read = [0] * len(channels)
    while True:
        bounds = [
            w / (kappa + n + 1) if n < len(channel) else Fraction(0)
            for w, n, channel in zip(weights, read, channels, strict=True)
        ]
        seen = set().union(*(channel[:n] for n, channel in zip(read, channels, strict=True)))
        best = sorted((score[document] for document in seen), reverse=True)
        if len(best) >= k and (k == 0 or best[k - 1] > sum(bounds)):
            return read
        waiting = [c for c, channel in enumerate(channels) if read[c] < len(channel)]
        if not waiting:
            return read
        read[max(waiting, key=lambda c: (bounds[c], -c))] += 1


def least_slowly(channels, weights, kappa, k):
    """All pairs, each by S10; the minimal ones, the least of them."""
    sizes = [range(len(channel) + 1) for channel in channels]
    good = {
        pair for pair in product(*sizes) if k == 0 or certain(channels, weights, kappa, k, pair)
    }
    minimal = [(a, b) for a, b in good if not good & {(a - 1, b), (a, b - 1)}]
    return min(minimal, key=lambda pair: (sum(pair), pair[0])), len(minimal)


def ranks_within(channels, weights, kappa, k):
    head = head_of([channel.size for channel in channels], weights, kappa, max(k, 1))
    documents = members(channels, head.window)
    return rank_matrix(channels)[documents] if documents.size else np.zeros((0, 2), np.int32)


def assert_as_defined(seeds):
    pairs = 0
    for seed in seeds:
        given = case(seed)
        channels = [np.array(channel, np.int32) for channel in given.channels]
        lengths = [channel.size for channel in channels]
        own = given.weights, given.kappa, given.k
        ranks = ranks_within(channels, *own)
        found = threshold_depths(ranks, lengths, *own)
        assert list(found) == threshold_slowly(given.channels, *own), seed
        least = least_depths(channels, *own)
        if len(channels) != 2:
            assert least is None
            continue
        assert least is not None
        assert (least.depths, least.pairs) == least_slowly(given.channels, *own), seed
        assert sum(least.depths) <= replay(channels, *own).steps
        pairs += 1
    assert pairs * 3 > len(seeds)


def test_both_depths_are_those_of_their_definitions():
    assert_as_defined(range(12))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_both_depths_are_those_in_1_500_cases():
    assert_as_defined(range(12, 1512))


def test_equal_weights_need_at_most_the_window_of_each_list():
    """With random access kappa + 2K reads of a list suffice, however the lists disagree."""
    rng = np.random.default_rng(4)
    one, other = rng.normal(size=(2, 3000))
    deepest = 0
    for second in (one, other, (one + other) / 2, -one):
        channels = [np.argsort(-one).astype(np.int32), np.argsort(-second).astype(np.int32)]
        ranks = ranks_within(channels, EVEN, Fraction(60), 20)
        found = threshold_depths(ranks, [3000, 3000], EVEN, Fraction(60), 20)
        assert max(found) <= 100
        deepest = max(deepest, *found)
    assert deepest > 50


def test_depths_by_hand():
    """Two equal lists: the first K of each, then one list can even be left unread further."""
    ranking = np.arange(50, dtype=np.int32)
    ranks = ranks_within([ranking, ranking], EVEN, Fraction(60), 3)
    # F(d_3) = 2/63; after (3, 2) the sum of u is 1/64 + 1/63 < 2/63.
    assert threshold_depths(ranks, [50, 50], EVEN, Fraction(60), 3) == (3, 2)
    least = least_depths([ranking, ranking], EVEN, Fraction(60), 3)
    assert least is not None
    assert least.depths == (3, 3)
    assert threshold_depths(ranks, [50, 50], EVEN, Fraction(60), 0) == (0, 0)
    empty = np.empty(0, np.int32)
    assert least_depths([ranking[:1], empty], EVEN, Fraction(60), 5).depths == (1, 0)
