"""Counted replays: heads, counted ranks, and the very stops of the rules S1 to S12."""

from fractions import Fraction

import numpy as np
import pytest
from adversarial import case
from slow_fusion import fused, replayed

from desa_ray.core.counting import Counting
from desa_ray.core.fusion.counted import (
    counted_order,
    counted_replay,
    head_of,
    members,
    state_within,
    traffic_bytes,
)
from desa_ray.core.fusion.depth import replay
from desa_ray.core.fusion.rrf import fuse_order, rank_matrix
from desa_ray.core.ranking import complete_order
from desa_ray.errors import DesaError

EVEN = [Fraction(1), Fraction(1)]


def counted(channels, weights, kappa, k):
    """The replay from heads and from ranks that `Counting` finds, and whether it went deeper."""
    lengths = [channel.size for channel in channels]
    head = head_of(lengths, weights, kappa, k)
    heads = [channel[:read] for channel, read in zip(channels, head.reads, strict=True)]
    documents = members(heads, head.window)
    ranks = np.zeros((documents.size, len(channels)), np.int32)
    for c, channel in enumerate(channels):
        scores = -np.arange(channel.size, dtype=np.float32) // 1
        held = np.isin(documents, channel)
        asked = documents[held]
        places = np.array([channel.tolist().index(own) for own in asked.tolist()], int)
        counting = Counting(asked, scores[places])
        counting.add(channel, scores)
        ranks[held, c] = counting.counts() + 1
    found = counted_replay(heads, lengths, documents, ranks, weights, kappa, k)
    top = documents[counted_order(documents, ranks, weights, kappa, k)]
    assert top.tolist() == found.topk.tolist()
    return found, any(d > read for d, read in zip(found.depths, head.reads, strict=True))


def assert_as_the_rules(seeds) -> int:
    """Compares with the rules, read by read; how many went deeper than their heads."""
    deeper = 0
    for seed in seeds:
        given = case(seed)
        channels = [np.array(channel, np.int32) for channel in given.channels]
        expected = replayed(given.channels, given.weights, given.kappa, given.k)
        found, beyond = counted(channels, given.weights, given.kappa, given.k)
        order = [document for document, _ in fused(given.channels, given.weights, given.kappa)]
        assert found.topk.tolist() == expected.topk == order[: given.k], seed
        assert list(found.depths) == expected.depths, seed
        assert list(found.exhausted) == expected.exhausted, seed
        assert found.steps == expected.steps, seed
        deeper += beyond
    return deeper


def test_counted_replays_stop_where_the_rules_do():
    assert assert_as_the_rules(range(80)) > 5


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_counted_replays_stop_there_in_12_000_cases():
    assert assert_as_the_rules(range(80, 12_080)) > 1000


def regimes(documents: int, seed: int) -> dict[str, list[np.ndarray]]:
    """Two lists that are equal, half shared, independent and opposed."""
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(2, documents))
    noisy = {"equal": one, "half": (one + other) / 2, "independent": other, "opposed": -one}
    return {
        name: [np.argsort(-one).astype(np.int32), np.argsort(-own).astype(np.int32)]
        for name, own in noisy.items()
    }


@pytest.mark.parametrize("weights", [EVEN, [Fraction(3, 5), Fraction(2, 5)]])
def test_long_lists_stop_where_complete_replays_do(weights):
    """With the paper's constants, in four regimes, some of them thousands of documents deep; and
    what a query moves stays within 16 KB.
    """
    deepest = 0
    for channels in regimes(6000, 3).values():
        lengths = [6000, 6000]
        head = head_of(lengths, weights, Fraction(60), 20)
        if weights is EVEN:
            assert (head.window, head.reads) == (100, (100, 100))
        documents = members(channels, head.window)
        ranks = rank_matrix(channels)[documents]
        heads = [channel[:read] for channel, read in zip(channels, head.reads, strict=True)]
        found = counted_replay(heads, lengths, documents, ranks, weights, Fraction(60), 20)
        expected = replay(channels, weights, Fraction(60), 20)
        assert found.depths == expected.depths
        assert found.topk.tolist() == expected.topk.tolist()
        assert traffic_bytes(head.reads, documents.size) <= 16 * 1024
        deepest = max(deepest, *found.depths)
    assert deepest > 1000


def test_numbers_too_wide_for_kernels_are_counted_too():
    given = case(2)
    channels = [np.array(channel, np.int32) for channel in given.channels]
    wide = [weight * (10**12 + 39) / 10**15 for weight in given.weights]
    for kappa in (Fraction("123456789012/7"), Fraction("-99999999999/100000000000")):
        expected = replayed(given.channels, wide, kappa, given.k)
        found, _ = counted(channels, wide, kappa, given.k)
        assert (found.topk.tolist(), list(found.depths)) == (expected.topk, expected.depths)


def test_heads_of_short_lists_by_hand():
    """A list with fewer than K documents cannot give w*; without any other, all is read."""
    one, two = Fraction(1), Fraction(2)
    assert head_of([500, 500], [one, two], Fraction(60), 20).window == 60
    assert head_of([500, 19], [one, two], Fraction(60), 20).window == 180
    assert head_of([7, 0], [one, two], Fraction(60), 20).reads == (7, 0)
    # The list of weight 2 gives 60 + r <= 2 (60 + 3) = 126 items before the third of the other.
    assert state_within(3, [500, 500], [one, two], Fraction(60)) == (3, 65)
    assert state_within(3, [500, 500], [two, one], Fraction(60)) == (66, 3)


def test_counted_ranks_are_those_of_the_sorted_ranking():
    """Whatever the blocks, with ties, infinite scores and zeros of both signs."""
    rng = np.random.default_rng(5)
    scores = np.round(rng.normal(size=3000), 1).astype(np.float32)
    scores[:40] = rng.choice([np.inf, -np.inf, 0.0, -0.0], 40)
    (order,) = complete_order(scores[None])
    ranks = np.empty(3000, int)
    ranks[order] = np.arange(3000)
    numbers = np.arange(3000, dtype=np.int32)
    for asked in (rng.choice(3000, 200, replace=False), [7], order[-1:], [], numbers):
        asked = np.array(asked, np.int32)
        counting = Counting(asked, scores[asked])
        for first, last in ((2000, 3000), (0, 7), (7, 2000)):
            counting.add(numbers[first:last], scores[first:last])
        assert counting.counts().tolist() == ranks[asked].tolist()
    with pytest.raises(DesaError, match="not a number"):
        Counting(numbers[:1], np.array([np.nan], np.float32))


def test_the_order_of_counted_documents_is_the_exact_one():
    channels = regimes(300, 8)["half"]
    ranks = rank_matrix(channels)
    everything = np.arange(300, dtype=np.int32)
    for kappa in (Fraction(60), Fraction("123456789012/7")):
        order = fuse_order(channels, EVEN, kappa)
        assert counted_order(everything, ranks, EVEN, kappa, 300).tolist() == order.tolist()
