"""(b) to (f): ranking, replay, fusion, lazy retrieval and statistics, one thread, one process."""

import statistics
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np

from desa_ray.core.fusion.depth import Replay, replay, replay_prefixes
from desa_ray.core.fusion.rrf import fuse_order
from desa_ray.core.ranking import complete_order, exact_scores, quantise, sparse_order
from desa_ray.core.statistics.inference import paired_outcomes
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.core.topk import TopK, best_hits, documents_of
from desa_ray.stages.prefix import FIRST_DEPTH

from .harness import Measured, Target, cpu_s, in_turns, ratio
from .heap_replay import HeapReplay
from .made_up import centres, two_rankings, two_score_lists, unit_vectors

KAPPA, K = Fraction(60), 20
EVEN = [Fraction(1), Fraction(1)]
BLOCK = 8192  # documents scored at once, as a vector shard is


def dense(documents: int, queries: int, repeats: int) -> list[Measured]:
    """(b) Exact scores and complete order, against FAISS asked for everything and against a stable
    argsort.
    """
    import faiss

    faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(1)
    middle = centres(rng)
    vectors, asked = unit_vectors(rng, documents, middle), unit_vectors(rng, queries, middle)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)  # pyright: ignore[reportCallIssue]
    integers = [quantise(vectors[start : start + BLOCK]) for start in range(0, documents, BLOCK)]
    questions = quantise(asked)

    def ours() -> np.ndarray:
        scores = np.empty((queries, documents), np.float32)
        for number, block in enumerate(integers):
            scores[:, number * BLOCK : number * BLOCK + len(block)] = exact_scores(questions, block)
        return complete_order(scores)

    def argsort() -> np.ndarray:
        return np.argsort(-(asked @ vectors.T), axis=1, kind="stable")

    def flat() -> np.ndarray:
        return index.search(asked, documents)[1]  # pyright: ignore[reportCallIssue]

    agree = float((ours() == argsort()).mean())
    size = f"{queries} queries × {documents:,} documents"
    own, other = in_turns(ours, argsort, repeats)
    own_again, third = in_turns(ours, flat, max(1, repeats // 2))
    words = f"exact int26 scores and complete ranks, {size}"
    return [
        ratio(
            "b dense ranks",
            words,
            "float32 GEMM, stable argsort",
            (own, other),
            2,
            same_places=agree,
        ),
        ratio("b dense ranks", words, "IndexFlatIP.search(k=N)", (own_again, third), 4),
    ]


def dict_replay(channels: list[np.ndarray], k: int) -> tuple[list[int], list[int]]:
    """The rules as one would first write them: dictionaries, floats, everything checked after every
    read.
    """
    lists = [channel.tolist() for channel in channels]
    ranks: list[dict[int, int]] = [{} for _ in lists]
    while True:
        unread = [
            1 / (60 + len(r) + 1) if len(r) < len(own) else 0.0
            for r, own in zip(ranks, lists, strict=True)
        ]
        low: dict[int, float] = {}
        high: dict[int, float] = {}
        for document in set().union(*ranks):
            known = [1 / (60 + own[document]) if document in own else None for own in ranks]
            low[document] = sum(share for share in known if share is not None)
            high[document] = sum(
                u if share is None else share for share, u in zip(known, unread, strict=True)
            )
        order = sorted(low, key=lambda document: (-low[document], document))
        if len(order) >= k and low[order[k - 1]] > sum(unread):
            pairs = [*pairwise(order[:k]), *((order[k - 1], other) for other in order[k:])]
            if all(low[x] > high[y] or (low[x] == high[y] and x < y) for x, y in pairs):
                return [len(own) for own in ranks], order[:k]
        turn = max(range(len(lists)), key=lambda c: (unread[c], -c))
        ranks[turn][lists[turn][len(ranks[turn])]] = len(ranks[turn]) + 1


def near_depth(documents: int, depth: int, noise: float) -> tuple[list[np.ndarray], Replay]:
    """Rankings whose replay stops near a depth."""
    found = None
    for seed in range(24):
        channels = two_rankings(documents, seed, noise)
        stop = replay(channels, EVEN, KAPPA, K)
        if found is None or abs(stop.depths[0] - depth) < abs(found[1].depths[0] - depth):
            found = channels, stop
    assert found is not None
    return found


def replays(documents: int, depth: int, noise: float, calls: int) -> list[Measured]:
    """(c) Replay, against an incremental one with heaps, and against dictionaries that are checked
    whole; and its own time a query.
    """
    channels, stop = near_depth(documents, depth, noise)
    answers: list[tuple[list[int], list[int]]] = []
    lists = [channel.tolist() for channel in channels]
    heaps = cpu_s(lambda: answers.append(HeapReplay(lists, K).run()))
    baseline = cpu_s(lambda: answers.append(dict_replay(channels, K)))
    expected = list(stop.depths), stop.topk.tolist()
    assert answers == [expected, expected]
    times = [
        cpu_s(lambda: [replay(channels, EVEN, KAPPA, K) for _ in range(calls)]) / calls
        for _ in range(9)
    ]
    own = statistics.median(times)
    words = f"replay, N = {documents:,}, depths {stop.depths[0]:,} and {stop.depths[1]:,}"
    return [
        ratio("c replay", words, "incremental, with heaps, in Python", (own, heaps), 100),
        ratio("c replay", words, "dictionaries, checked after every read", (own, baseline), 10_000),
        Measured(
            "c replay", words, "-", own, None, own * 1e6, "µs per query", Target(60, most=True)
        ),
    ]


def fusions(documents: int, repeats: int) -> list[Measured]:
    """(d) Complete exact fusion, against ranx's RRF."""
    from ranx import Run, fuse

    channels = two_rankings(documents, 5, 0.6)
    runs = [
        Run({"q": {f"d{n}": float(len(own) - at) for at, n in enumerate(own.tolist())}})
        for own in channels
    ]
    small = [Run({"q": {"a": 2.0, "b": 1.0}}) for _ in range(2)]
    fuse(small, method="rrf", params={"k": 60})  # its kernels compile first

    def theirs() -> object:
        return fuse(runs, method="rrf", params={"k": 60})

    first = in_turns(lambda: fuse_order(channels, EVEN, KAPPA, 1000), theirs, repeats)
    whole = in_turns(lambda: fuse_order(channels, EVEN, KAPPA), theirs, max(1, repeats // 2))
    size = f"N = {documents:,}"
    return [
        ratio(
            "d fusion",
            f"complete exact fusion, its first 1,000, {size}",
            "ranx fuse, rrf",
            first,
            300,
        ),
        ratio(
            "d fusion",
            f"complete exact fusion, all of it in order, {size}",
            "ranx fuse, rrf (unordered)",
            whole,
            None,
        ),
    ]


def lazily(dense_scores: np.ndarray, docs: np.ndarray, sparse_scores: np.ndarray) -> Replay:
    """Selection from given scores and replay, doubled until certain."""
    depth, lengths = FIRST_DEPTH, [dense_scores.size, docs.size]
    while True:
        chosen = TopK(1, depth, dense_scores.size)
        chosen.add(dense_scores[None], 0)
        prefixes = [documents_of(chosen.keys(0)), best_hits(docs, sparse_scores, depth)[0]]
        found = replay_prefixes(prefixes, lengths, EVEN, KAPPA, K)
        if found is not None:
            return found
        depth *= 2


def completely(dense_scores: np.ndarray, docs: np.ndarray, sparse_scores: np.ndarray) -> Replay:
    """Complete rankings from given scores, and replay."""
    return replay(
        [complete_order(dense_scores[None])[0], sparse_order(docs, sparse_scores)], EVEN, KAPPA, K
    )


def _kept(found: list[Replay], work: Callable[..., Replay], *scores: np.ndarray) -> None:
    found.append(work(*scores))


def lazy(documents: int, queries: int, noise: float) -> list[Measured]:
    """(e) Certified top from scores: prefixes and replay, against complete rankings and replay."""
    own, other, deepest = [], [], []
    for seed in range(queries):
        dense_scores, sparse = two_score_lists(documents, seed, noise)
        docs = np.flatnonzero(sparse).astype(np.int32)
        scores = dense_scores, docs, sparse[docs]
        found, expected = [], []
        own.append(cpu_s(partial(_kept, found, lazily, *scores)))
        other.append(cpu_s(partial(_kept, expected, completely, *scores)))
        assert found[0].depths == expected[0].depths
        assert found[0].topk.tolist() == expected[0].topk.tolist()
        deepest.append(max(found[0].depths))
    seconds = statistics.median(own), statistics.median(other)
    words = (
        f"prefixes and replay from given scores, N = {documents:,}, median depth"
        f" {statistics.median(deepest):,.0f}"
    )
    return [ratio("e lazy", words, "complete ranks and replay", seconds, 10, deepest=max(deepest))]


def statistic(queries: int, datasets: int, resamples: int, looped: int) -> list[Measured]:
    """(f) Bootstrap intervals and sign flips of four outcomes, against loops over resamples and
    queries.
    """
    rng = np.random.default_rng(3)
    strata = [rng.normal(size=(queries // datasets, 4)) for _ in range(datasets)]
    paired_outcomes(strata, Sampling(10))
    own = statistics.median(
        cpu_s(lambda: paired_outcomes(strata, Sampling(resamples))) for _ in range(5)
    )
    rows = [values.tolist() for values in strata]

    def loop() -> None:
        import random

        random.seed(0)
        for _ in range(looped):
            for values in rows:
                flips, sample = [0.0] * 4, [0.0] * 4
                for row in values:
                    picked, sign = values[random.randrange(len(values))], random.choice((-1, 1))
                    for m in range(4):
                        sample[m] += picked[m]
                        flips[m] += sign * row[m]

    baseline = cpu_s(loop) * resamples / looped
    words = f"bootstrap and sign flips, {queries:,} queries × 4 outcomes, {resamples:,} resamples"
    return [
        ratio(
            "f statistics", words, f"plain loops ({looped} resamples, scaled)", (own, baseline), 50
        )
    ]
