"""Ranked prefixes: the beginning of the complete order, however documents were cut; replays that
need no more.
"""

from fractions import Fraction

import numpy as np
import pytest

import desa_ray.core.fusion.depth as replay_module
from desa_ray.core.fusion.depth import replay, replay_prefixes
from desa_ray.core.fusion.rrf import fuse_order
from desa_ray.core.ranking import complete_order, sparse_order
from desa_ray.core.topk import TopK, best_hits, documents_of, scores_of
from desa_ray.errors import DesaError


def scores_with_ties(rng: np.random.Generator, queries: int, documents: int) -> np.ndarray:
    scores = rng.normal(size=(queries, documents)).astype(np.float32)
    scores[:, ::3] = np.round(scores[:, ::3], 1)
    scores[0, : documents // 2] = 0.0
    scores[0, 1 : documents // 2 : 2] = -0.0
    scores[1] = np.sort(scores[1])  # the best come last
    scores[2] = -np.sort(-scores[2])
    scores[3, :5] = [np.inf, -np.inf, 1e-45, -1e-45, np.inf]
    return scores


@pytest.mark.parametrize("depth", [1, 7, 64, 500, 2999, 3000, 9000])
@pytest.mark.parametrize("block", [3000, 997, 64])
def test_a_prefix_is_the_beginning_of_the_complete_order(depth, block):
    """A prefix is the beginning of the complete order whatever the blocks."""
    scores = scores_with_ties(np.random.default_rng(depth), 6, 3000)
    order = complete_order(scores)
    chosen = TopK(6, depth, 3000)
    for first in range(0, 3000, block):
        chosen.add(scores[:, first : first + block], first)
    for row in range(6):
        keys = chosen.keys(row)
        assert documents_of(keys).tolist() == order[row, :depth].tolist()
        assert scores_of(keys).tolist() == scores[row, order[row, :depth]].tolist()


@pytest.mark.parametrize("depth", [1, 64, 2000])
def test_prefixes_of_groups_merge_to_the_prefix(depth):
    """Prefixes of groups merge to the prefix of all in any order."""
    scores = scores_with_ties(np.random.default_rng(depth), 5, 3000)
    order = complete_order(scores)
    groups = []
    for first, last in ((2000, 3000), (0, 10), (10, 2000)):
        group = TopK(5, depth, last - first)
        group.add(scores[:, first:last], first)
        groups.append(group)
    for row in range(5):
        kept = np.sort(np.concatenate([group.keys(row) for group in groups]))[:depth]
        assert documents_of(kept).tolist() == order[row, :depth].tolist()


def test_one_document_and_none():
    chosen = TopK(1, 5, 0)
    chosen.add(np.empty((1, 0), np.float32), 0)
    assert chosen.keys(0).size == 0
    chosen = TopK(1, 5, 1)
    chosen.add(np.zeros((1, 1), np.float32), 0)
    assert documents_of(chosen.keys(0)).tolist() == [0]


def test_a_score_that_is_no_number_is_refused():
    scores = np.ones((3, 40), np.float32)
    scores[1, 33] = np.nan
    with pytest.raises(DesaError, match="query row 1"):
        TopK(3, 4, 40).add(scores, 0)
    with pytest.raises(DesaError, match="not a number"):
        best_hits(np.arange(40, dtype=np.int32), scores[1], 4)


def test_best_hits_are_the_beginning_of_the_sparse_order():
    rng = np.random.default_rng(2)
    docs = np.flatnonzero(rng.random(5000) < 0.4).astype(np.int32)
    for values in (
        np.round(rng.random(docs.size), 2),
        np.zeros(docs.size, np.float32),
        rng.random(docs.size) ** 9,
    ):
        order = sparse_order(docs, values)
        for depth in (1, 20, docs.size - 1, docs.size, 9999):
            best, scores = best_hits(docs, values, depth)
            assert best.tolist() == order[:depth].tolist()
            assert scores.tolist() == values[np.searchsorted(docs, best)].tolist()


KAPPAS = tuple(map(Fraction, ("60", "60", "2", "0", "20", "5/2", "-1/2", "100")))
WEIGHTS = tuple(map(Fraction, ("1", "1", "1/4", "2", "2699/10000", "3/7")))


def random_case(seed: int):
    """Scores of 1 to 4 channels over up to 400 documents, some of few distinct values, some zero,
    some partial.
    """
    rng = np.random.default_rng(seed)
    documents, count = int(rng.integers(1, 400)), int(rng.integers(1, 5))
    common = rng.normal(size=documents)
    channels = []
    for _ in range(count):
        scores = (common + rng.normal(size=documents) * 2 * rng.random()).astype(np.float32)
        if rng.random() < 0.4:
            scores = np.round(scores * int(rng.integers(0, 3)))
        docs = np.flatnonzero(rng.random(documents) < rng.choice([1, 1, 0.7, 0.1, 0])).astype(
            np.int32
        )
        channels.append((docs, scores[docs]))
    picked = rng.choice(len(WEIGHTS), count) if rng.random() < 0.6 else [0] * count
    return (
        channels,
        [WEIGHTS[p] for p in picked],
        KAPPAS[rng.integers(len(KAPPAS))],
        int(rng.integers(1, 40)),
    )


def lazily(channels, weights, kappa, k, depth):
    """Prefixes of every channel, doubled until the top is certain; also says how deep that was."""
    lengths = [docs.size for docs, _ in channels]
    while True:
        prefixes = [best_hits(docs, scores, depth)[0] for docs, scores in channels]
        found = replay_prefixes(prefixes, lengths, weights, kappa, k)
        if found is not None:
            return found, depth
        assert depth < max(lengths)
        depth *= 2


def same(lazy, complete):
    assert lazy.topk.tolist() == complete.topk.tolist()
    assert (lazy.depths, lazy.exhausted, lazy.steps) == (
        complete.depths,
        complete.exhausted,
        complete.steps,
    )


def test_lazy_equals_complete_in_2000_random_cases():
    stopped_early = 0
    for seed in range(2000):
        channels, weights, kappa, k = random_case(seed)
        complete = [sparse_order(docs, scores) for docs, scores in channels]
        expected = replay(complete, weights, kappa, k)
        found, depth = lazily(channels, weights, kappa, k, 1 + seed % 16)
        same(found, expected)
        assert found.topk.tolist() == fuse_order(complete, weights, kappa, k).tolist()
        assert depth >= max(found.depths) or all(n <= depth for n in map(len, complete))
        stopped_early += depth < max(map(len, complete))
    assert stopped_early > 500


def test_prefixes_suffice_exactly_where_they_reach_the_stop():
    cut_short = 0
    for seed in range(300):
        channels, weights, kappa, k = random_case(seed)
        complete = [sparse_order(docs, scores) for docs, scores in channels]
        lengths = [docs.size for docs in complete]
        expected = replay(complete, weights, kappa, k)
        read = [docs[:depth] for docs, depth in zip(complete, expected.depths, strict=True)]
        same(replay_prefixes(read, lengths, weights, kappa, k), expected)
        for c in range(len(complete)):
            if expected.depths[c] > 0:
                shorter = [own[:-1] if c == other else own for other, own in enumerate(read)]
                assert replay_prefixes(shorter, lengths, weights, kappa, k) is None
                cut_short += 1
    assert cut_short > 400


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_prefixes_that_gave_up_leave_nothing_behind_and_large(seed, monkeypatch):
    """Prefixes that gave up leave nothing behind and large numbers are renumbered."""
    channels, weights, kappa, k = random_case(seed)
    complete = [sparse_order(docs, scores) for docs, scores in channels]
    expected = replay(complete, weights, kappa, k)
    replay_prefixes([docs[:1] for docs in complete], list(map(len, complete)), weights, kappa, k)
    assert (replay_module._workspace.ranks <= replay_module._workspace.base).all()
    assert (replay_module._workspace.chosen < replay_module._workspace.base).all()
    same(replay(complete, weights, kappa, k), expected)
    # The arrays are cleared at times
    monkeypatch.setattr(replay_module, "LAST_BASE", replay_module._workspace.base + 30)
    for _ in range(4):
        same(replay(complete, weights, kappa, k), expected)
    monkeypatch.setattr(replay_module, "SCRATCH_DOCUMENTS", 1)
    same(lazily(channels, weights, kappa, k, 2)[0], expected)


def test_wide_numbers_wait_for_complete_lists():
    lists = [np.arange(50, dtype=np.int32), np.arange(50, dtype=np.int32)[::-1].copy()]
    weights, kappa = [Fraction(1), Fraction(10**16 + 61, 10**19)], Fraction(60)
    assert replay_prefixes([own[:49] for own in lists], [50, 50], weights, kappa, 3) is None
    same(replay_prefixes(lists, [50, 50], weights, kappa, 3), replay(lists, weights, kappa, 3))


def test_a_prefix_as_deep_as_the_certificate_is_enough():
    """A prefix as deep as the certificate is enough and a shorter one is not."""
    rng = np.random.default_rng(7)
    common = rng.normal(size=5000)
    lists = [np.argsort(-(common + rng.normal(size=5000) * 0.5)).astype(np.int32) for _ in range(2)]
    weights, kappa = [Fraction(1), Fraction(1)], Fraction(60)
    expected = replay(lists, weights, kappa, 20)
    depth = max(expected.depths)
    # The kernel reads a little ahead of the step it looks for, 6 %, before it asks whether the top
    # is certain.
    enough = [own[: int(depth * 1.1) + 16] for own in lists]
    same(replay_prefixes(enough, [5000, 5000], weights, kappa, 20), expected)
    assert (
        replay_prefixes([own[: depth - 1] for own in lists], [5000, 5000], weights, kappa, 20)
        is None
    )
