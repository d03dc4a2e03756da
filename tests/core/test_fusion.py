"""Fusion and replay: golden cases, properties against the slow oracle, and the wide-number path."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_fusion import fused, replayed

import desa_ray.core.fusion.depth as replay_module
from desa_ray.core.fusion import reference
from desa_ray.core.fusion.depth import replay
from desa_ray.core.fusion.exact import constants_of, precedes
from desa_ray.core.fusion.rrf import exact_score, fuse_order, rank_matrix
from desa_ray.errors import DesaError
from tests.reference import GOLDEN

KAPPAS = [Fraction(x) for x in ("-1/2", "-9/10", "0", "1/3", "1", "2", "5/2", "20", "60")]
WIDE_KAPPAS = [
    Fraction(x) for x in ("123456789012/7", "1/100000000000", "-99999999999/100000000000")
]


def arrays(channels):
    return [np.array(channel, np.int32) for channel in channels]


@st.composite
def cases(draw, kappas=tuple(KAPPAS)):
    """1 to 4 channels over at most 12 documents; small kappas and equal weights make exact ties
    frequent.
    """
    size = draw(st.integers(0, 12))
    count = draw(st.integers(1, 4))
    channels = [
        draw(st.permutations(range(size)))[: draw(st.integers(0, size) | st.just(size))]
        for _ in range(count)
    ]
    weight = st.sampled_from(
        [Fraction(1), Fraction(1), Fraction(1, 4), Fraction(2), Fraction(2699, 10000)]
    )
    weights = [draw(weight) for _ in range(count)] if draw(st.booleans()) else [Fraction(1)] * count
    return channels, weights, draw(st.sampled_from(kappas)), draw(st.integers(0, size + 2))


@pytest.mark.long
def test_golden_order_scores_topk_depths_exhausted_and_steps():
    assert len(GOLDEN) == 41
    for path in GOLDEN:
        case = json.loads(path.read_text(encoding="utf-8"))
        expected = case["expected"]
        ids = sorted(set().union(*case["channels"]), key=str.encode)
        channels = arrays(
            [[ids.index(document) for document in channel] for channel in case["channels"]]
        )
        weights, kappa = [Fraction(w) for w in case["weights"]], Fraction(case["kappa"])
        order = fuse_order(channels, weights, kappa)
        assert [ids[d] for d in order] == expected["order"], path.name
        if ids:
            ranks = rank_matrix(channels)
            scores = [str(exact_score(ranks[d].tolist(), weights, kappa)) for d in order]
            assert scores == expected["scores"], path.name
        result = replay(channels, weights, kappa, case["K"])
        assert [ids[d] for d in result.topk] == expected["topk"], path.name
        assert list(result.depths) == expected["depths"], path.name
        assert list(result.exhausted) == expected["exhausted"], path.name
        assert result.steps == expected["steps"], path.name


@settings(deadline=None, max_examples=250)
@given(cases())
def test_complete_order_is_the_exact_one_and_every_prefix(case):
    """Complete order is the exact one and every prefix of it too."""
    channels, weights, kappa, k = case
    order = [document for document, _ in fused(channels, weights, kappa)]
    assert fuse_order(arrays(channels), weights, kappa).tolist() == order
    assert fuse_order(arrays(channels), weights, kappa, k).tolist() == order[:k]


@settings(deadline=None, max_examples=300)
@given(cases())
def test_replay_stops_at_the_first_step_that_certifies(case):
    """Replay stops at the first step that certifies and certifies the complete topk."""
    channels, weights, kappa, k = case
    expected, result = replayed(*case), replay(arrays(channels), weights, kappa, k)
    assert (
        result.topk.tolist()
        == expected.topk
        == fuse_order(arrays(channels), weights, kappa, k).tolist()
    )
    assert list(result.depths) == expected.depths
    assert list(result.exhausted) == expected.exhausted
    assert result.steps == expected.steps


@settings(deadline=None, max_examples=150)
@given(cases())
def test_short_prefixes_and_a_known_topk_change_nothing(case):
    channels, weights, kappa, k = case
    expected = replayed(*case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "FIRST_PREFIX", 1)
        continued = replay(arrays(channels), weights, kappa, k)
        patch.setattr(replay_module, "SORTED_K", 0)
        known = replay(arrays(channels), weights, kappa, k)
    # Scratch arrays of the short prefixes are not kept for it
    again = replay(arrays(channels), weights, kappa, k)
    for result in (continued, known, again):
        assert (result.topk.tolist(), list(result.depths)) == (expected.topk, expected.depths)


@settings(deadline=None, max_examples=150)
@given(cases(kappas=(*WIDE_KAPPAS, Fraction(2))))
def test_numbers_beyond_31_bits_are_compared_exactly_too(case):
    channels, weights, kappa, k = case
    # Kappa 2 stays narrow, the others do not
    weights = [weight * (10**12 + 39) / 10**15 for weight in weights]
    if kappa in WIDE_KAPPAS:
        assert constants_of(weights, kappa).scale(12) is None
    expected, result = (
        replayed(channels, weights, kappa, k),
        replay(arrays(channels), weights, kappa, k),
    )
    assert (result.topk.tolist(), list(result.depths)) == (expected.topk, expected.depths)
    order = [document for document, _ in fused(channels, weights, kappa)]
    assert fuse_order(arrays(channels), weights, kappa).tolist() == order


@settings(deadline=None, max_examples=60)
@given(cases(), st.integers(0, 2**32))
def test_no_continuation_of_the_unread_lists_changes_a_certified(case, seed):
    """No continuation of the unread lists changes a certified topk. Soundness: replace what
    lies behind the certified depths by other documents, known and new ones.
    """
    channels, weights, kappa, k = case
    result = replay(arrays(channels), weights, kappa, k)
    rng = np.random.default_rng(seed)
    changed = []
    for channel, depth in zip(channels, result.depths, strict=True):
        others = rng.permutation([d for d in range(16) if d not in channel[:depth]])
        changed.append(channel[:depth] + others[: len(channel) - depth].tolist())
    if all(len(new) == len(old) for new, old in zip(changed, channels, strict=True)):
        assert [d for d, _ in fused(changed, weights, kappa)][:k] == result.topk.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_weights_of_40_bits_are_compared_by_the_kernels(seed):
    """Confidence weights are multiples of 2^-40; equal ones beside them keep exact ties there."""
    rng = np.random.default_rng(seed)
    weights = [Fraction(int(w), 2**40) for w in rng.integers(2**37, 2**39, 4)]
    weights[3] = weights[seed % 3]
    assert constants_of(weights, Fraction(60)).scale(8_000_000) is not None
    common = rng.normal(size=400)
    channels = [np.argsort(common + rng.normal(size=400) * 0.6).astype(np.int32) for _ in range(4)]
    channels[2] = channels[2][: 400 // (seed + 1)]
    result = replay(channels, weights, Fraction(60), 10)
    top = reference.fuse_order(channels, weights, Fraction(60), 400)
    assert fuse_order(channels, weights, Fraction(60)).tolist() == top.tolist()
    assert result.topk.tolist() == top[:10].tolist()
    expected = reference.certified_state(channels, weights, Fraction(60), top[:10])
    assert list(result.depths) == expected


def test_weights_too_wide_for_the_kernels_are_compared_too():
    weights = [Fraction(2**39 - 1, 2**40), Fraction(2**38 + 1, 2**40)]
    assert constants_of(weights, Fraction(60)).scale(2**24 - 62) is not None
    assert constants_of(weights, Fraction(60)).scale(2**24) is None
    assert constants_of([Fraction(2**53 + 1), Fraction(1)], Fraction(60)).scale(10) is None


@pytest.mark.long
@pytest.mark.parametrize("support", [2500, 300, 0])
@pytest.mark.parametrize("weights", [("1", "1"), ("1/4", "1/4", "1/4", "1/4"), ("2/5", "3/5", "1")])
def test_long_lists_stop_where_rationals_say(support, weights):
    rng = np.random.default_rng(support)
    weights, kappa = [Fraction(w) for w in weights], Fraction(60)
    common = rng.normal(size=2500)
    orders = [np.argsort(-(common + rng.normal(size=2500) * 0.7)).astype(np.int32) for _ in weights]
    channels = [order if c % 2 == 0 else order[:support] for c, order in enumerate(orders)]
    result = replay(channels, weights, kappa, 5)
    top = reference.fuse_order(channels, weights, kappa, 5)
    assert result.topk.tolist() == top.tolist() == fuse_order(channels, weights, kappa, 5).tolist()
    assert list(result.depths) == reference.certified_state(channels, weights, kappa, top)


@pytest.mark.parametrize("seed", range(40))
def test_middling_lists_stop_where_rationals_say(seed):
    rng = np.random.default_rng(seed)
    count, k = int(rng.integers(1, 5)), int(rng.integers(1, 31))
    kappa = Fraction(int(rng.integers(0, 240)), 4)
    weights = [
        Fraction(int(w), 100) for w in (rng.integers(1, 100, count) if seed % 2 else [25] * count)
    ]
    common = rng.normal(size=200)
    channels = [
        np.argsort(common + rng.normal(size=200) * rng.random()).astype(np.int32)
        for _ in range(count)
    ]
    channels = [channel[: rng.integers(0, 400)] for channel in channels]
    result, top = (
        replay(channels, weights, kappa, k),
        reference.fuse_order(channels, weights, kappa, k),
    )
    assert result.topk.tolist() == top.tolist()
    assert len(top) < k or list(result.depths) == reference.certified_state(
        channels, weights, kappa, top
    )


def test_sums_that_float64_cannot_tell_apart_are_told_apart():
    n = 100_000_000  # 1/(n-1) + 1/(n+1) exceeds 2/n by one part in n^2 = 1e16
    ranks = np.array([[n, n], [n - 1, n + 1], [n + 1, n - 1]], np.int32)
    scale = constants_of([Fraction(1), Fraction(1)], Fraction(0)).scale(n + 1)
    everything = np.array([n + 1, n + 1], np.int32)

    def before(x: int, y: int) -> bool:
        return bool(precedes(x, y, everything, everything, ranks, scale))

    assert 1 / (n - 1) + 1 / (n + 1) == 2 / n
    assert before(1, 0)
    assert not before(0, 1)
    assert before(1, 2)  # an exact tie: the smaller number
    assert not before(2, 1)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_comparison_agrees_with_rationals_for_large_weights(data):
    """Comparison agrees with rationals for large weights and permuted ranks."""
    count = data.draw(st.integers(1, 4))
    weight = st.integers(1, 2**31 - 1) if data.draw(st.booleans()) else st.just(1)
    weights = [Fraction(data.draw(weight)) for _ in range(count)]
    kappa = Fraction(data.draw(st.integers(-5, 200)), 6)
    first = [data.draw(st.integers(0, 400)) for _ in range(count)]
    second = data.draw(st.permutations(first))
    scale = constants_of(weights, kappa).scale(400)
    assert scale is not None
    everything = np.full(count, 400, np.int32)
    ranks = np.array([first, second], np.int32)
    x, y = exact_score(first, weights, kappa), exact_score(second, weights, kappa)
    assert bool(precedes(0, 1, everything, everything, ranks, scale)) == (x >= y)
    assert bool(precedes(1, 0, everything, everything, ranks, scale)) == (y > x)


def test_repeated_and_negative_numbers_are_refused_and_leave():
    """Repeated and negative numbers are refused and leave no trace."""
    one, weights = Fraction(1), [Fraction(1)] * 2
    good = arrays([range(6), [3, 1, 5, 0]])
    expected = replay(good, weights, one, 3)
    for broken, place in (([2, 1, 2], "channel 1"), ([4, -1], "channel 1")):
        channels = arrays([range(6), broken])
        for kappa in (one, WIDE_KAPPAS[0]):
            for refused in (replay, fuse_order):
                with pytest.raises(DesaError, match=place):
                    refused(channels, weights, kappa, 4)
    again = replay(good, weights, one, 3)
    assert (again.depths, again.topk.tolist()) == (expected.depths, expected.topk.tolist())


@pytest.mark.parametrize(
    ("weights", "kappa", "k", "message"),
    [
        (["1", "0"], "60", 1, "channel 1: weight 0 is not above 0"),
        (["1", "-1/2"], "60", 1, "weight -1/2"),
        (["1"], "60", 1, "2 channels but 1 weights"),
        (["1", "1"], "-1", 1, "kappa is -1"),
        (["1", "1"], "60", -1, "k = -1"),
    ],
)
def test_numbers_out_of_range_are_refused(weights, kappa, k, message):
    channels = arrays([[0, 1], [1, 0]])
    with pytest.raises(DesaError, match=message):
        replay(channels, [Fraction(w) for w in weights], Fraction(kappa), k)
