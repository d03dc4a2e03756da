"""Exp4Fuse's fusion: hand-derived scores, the slow oracle, and soundness of its depths."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_exp4fuse import depths, fused

from desa_ray.core.fusion.exp4fuse import fuse_order, replay
from desa_ray.core.fusion.registry import FUSIONS

ONE = Fraction(1)


def arrays(channels):
    return [np.array(channel, np.int32) for channel in channels]


@st.composite
def cases(draw):
    """1 to 4 lists over at most 10 documents; small kappas and equal weights make exact ties
    frequent.
    """
    size = draw(st.integers(0, 10))
    count = draw(st.integers(1, 4))
    channels = [
        draw(st.permutations(range(size)))[: draw(st.integers(0, size))] for _ in range(count)
    ]
    weight = st.sampled_from([ONE, ONE, Fraction(1, 4), Fraction(2)])
    weights = [draw(weight) for _ in range(count)] if draw(st.booleans()) else [ONE] * count
    kappa = draw(
        st.sampled_from([Fraction(x) for x in ("0", "1", "5/2", "60", "-1/2", "123456789012/7")])
    )
    return channels, weights, kappa, draw(st.integers(0, size + 2))


def test_a_document_in_both_lists_gets_twelve_tenths():
    # 1.2 (1/62 + 1/63) = 0.0384, 1.1/61 = 0.0180 twice: the tie goes to the smaller number.
    """A document in both lists gets twelve tenths and one in a single list eleven."""
    assert fuse_order(arrays([[7, 3], [5, 9, 3]]), [ONE, ONE], Fraction(60)).tolist() == [
        3,
        5,
        7,
        9,
    ]


def test_the_bonus_can_turn_what_rrf_says():
    # kappa 0: 1/1 = 1/2 + 1/2 in RRF, so 1 (smaller number) leads; 1.1 against 1.2 here.
    channels = arrays([[1, 2], [3, 2]])
    assert FUSIONS["rrf"].order(channels, [ONE, ONE], Fraction(0), None).tolist() == [1, 2, 3]
    assert FUSIONS["exp4fuse"].order(channels, [ONE, ONE], Fraction(0), None).tolist() == [2, 1, 3]


def test_a_single_list_is_certified_after_k_reads_and_a_short():
    """A single list is certified after k reads and a short one at its end."""
    ranking = arrays([[4, 2, 9, 1]])
    assert replay(ranking, [ONE], Fraction(60), 2).depths == (2,)
    short = replay(ranking, [ONE], Fraction(60), 9)
    assert (short.depths, short.exhausted, short.topk.tolist()) == ((4,), (True,), [4, 2, 9, 1])
    empty = replay(arrays([[], []]), [ONE, ONE], Fraction(60), 3)
    assert (empty.depths, empty.exhausted, empty.topk.size) == ((0, 0), (True, True), 0)
    assert replay(ranking, [ONE], Fraction(60), 0).depths == (0,)


@settings(deadline=None, max_examples=150)
@given(cases())
def test_order_and_depths_are_those_of_the_oracle(case):
    channels, weights, kappa, k = case
    order, result = fused(channels, weights, kappa), replay(arrays(channels), weights, kappa, k)
    assert fuse_order(arrays(channels), weights, kappa).tolist() == order
    assert (
        fuse_order(arrays(channels), weights, kappa, k).tolist()
        == result.topk.tolist()
        == order[:k]
    )
    assert list(result.depths) == depths(channels, weights, kappa, k)
    assert result.steps == sum(result.depths)


@settings(deadline=None, max_examples=60)
@given(cases(), st.integers(0, 2**32))
def test_no_continuation_of_the_unread_lists_changes_a_certified(case, seed):
    """No continuation of the unread lists changes a certified topk."""
    channels, weights, kappa, k = case
    result = replay(arrays(channels), weights, kappa, k)
    rng = np.random.default_rng(seed)
    changed = []
    for channel, depth in zip(channels, result.depths, strict=True):
        others = rng.permutation([d for d in range(24) if d not in channel[:depth]])
        changed.append([*channel[:depth], *others[: len(channel) - depth].tolist()])
    assert fuse_order(arrays(changed), weights, kappa, k).tolist() == result.topk.tolist()
