"""(k) Counted, lazy and complete ranking of the same two lists, in four regimes: equal, half
shared, independent and opposed.

Both lists are dense here: exact int26 scores of two query vectors, made anew from float32 vectors
in every pass, as the platform does. So one scoring pass is the unit, and a pass of whichever way is
the same work. Tops and depths must agree.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from desa_ray.core.counting import Counting
from desa_ray.core.fusion.counted import counted_replay, head_of, members, traffic_bytes
from desa_ray.core.fusion.depth import Replay, replay, replay_prefixes
from desa_ray.core.ranking import complete_order, exact_scores, quantise
from desa_ray.core.topk import TopK, documents_of
from desa_ray.stages.prefix import FIRST_DEPTH

from .harness import Measured, Target, cpu_s
from .made_up import centres, unit_vectors

KAPPA, K, EVEN = Fraction(60), 20, [Fraction(1), Fraction(1)]
BLOCK = 8192
REGIMES = ("equal", "half-shared", "independent", "opposed")


@dataclass
class Lists:
    """Two query vectors, float32 [2, D], and all documents."""

    queries: np.ndarray
    documents: np.ndarray
    moved: int = 0  # bytes of the last counted replay

    def scores(self) -> Iterator[tuple[int, np.ndarray]]:
        """One scoring pass: (first document, float32 [2, n]) block by block."""
        asked = quantise(self.queries)
        for first in range(0, len(self.documents), BLOCK):
            yield first, exact_scores(asked, quantise(self.documents[first : first + BLOCK]))

    def one_pass(self) -> None:
        for _ in self.scores():
            pass

    def heads(self, depth: int) -> list[np.ndarray]:
        """The first documents of both lists."""
        chosen = TopK(2, depth, len(self.documents))
        for first, block in self.scores():
            chosen.add(block, first)
        return [documents_of(chosen.keys(row)) for row in range(2)]

    @property
    def lengths(self) -> list[int]:
        return [len(self.documents)] * 2

    def complete(self) -> Replay:
        scores = np.empty((2, len(self.documents)), np.float32)
        for first, block in self.scores():
            scores[:, first : first + block.shape[1]] = block
        return replay(list(complete_order(scores)), EVEN, KAPPA, K)

    def lazy(self) -> Replay:
        depth = FIRST_DEPTH
        while True:
            found = replay_prefixes(self.heads(depth), self.lengths, EVEN, KAPPA, K)
            if found is not None:
                return found
            depth *= 2

    def counted(self) -> Replay:
        head = head_of(self.lengths, EVEN, KAPPA, K)
        heads = self.heads(max(head.reads))
        documents = members(heads, head.window)
        asked = exact_scores(quantise(self.queries), quantise(self.documents[documents]))
        counting = [Counting(documents, own) for own in asked]
        for first, block in self.scores():
            numbers = np.arange(first, first + block.shape[1], dtype=np.int32)
            for own, scores in zip(counting, block, strict=True):
                own.add(numbers, scores)
        ranks = np.stack([1 + own.counts() for own in counting], axis=1).astype(np.int32)
        self.moved = traffic_bytes(head.reads, documents.size)
        return counted_replay(heads, self.lengths, documents, ranks, EVEN, KAPPA, K)


def made(documents: np.ndarray, regime: str, seed: int) -> Lists:
    """Two queries of a regime."""
    rng = np.random.default_rng([9, seed])
    one, other = unit_vectors(rng, 2, centres(rng, 8))
    other = other - np.float32(one @ other) * one
    other /= np.linalg.norm(other)
    both = one + other
    second = {
        "equal": one,
        "half-shared": both / np.linalg.norm(both),
        "independent": other,
        "opposed": -one,
    }[regime]
    return Lists(np.stack([one, second]).astype(np.float32), documents)


def counted(documents: int, repeats: int) -> list[Measured]:
    """One line per regime: both passes of a counted replay in scoring passes, with lazy and
    complete ones for comparison; every query on its own.
    """
    rng = np.random.default_rng(1)
    vectors = unit_vectors(rng, documents, centres(rng))
    made(vectors[:BLOCK], "half-shared", 0).counted()  # its kernels compile first
    lines: list[Measured] = []
    for regime in REGIMES:
        seconds: dict[str, list[float]] = {}
        worst, moved, deepest = 0.0, 0, 0
        for seed in range(repeats):
            lists = made(vectors, regime, seed)
            found: list[Replay] = []
            ways = (lists.counted, lists.lazy, lists.complete)
            unit = cpu_s(lists.one_pass)
            times = [cpu_s(partial(_kept, found, way)) for way in ways]
            depths = {replayed.depths for replayed in found}
            tops = {tuple(replayed.topk.tolist()) for replayed in found}
            assert len(depths) == len(tops) == 1, f"they disagree about {regime} lists"
            for name, value in zip(("counted", "lazy", "complete"), times, strict=True):
                seconds.setdefault(name, []).append(value)
            seconds.setdefault("pass", []).append(unit)
            worst, moved = max(worst, times[0] / unit), max(moved, lists.moved)
            deepest = max(deepest, *found[0].depths)
        mean = {name: sum(own) / len(own) for name, own in seconds.items()}
        words = f"counted replay, {regime} lists, N = {documents:,}, deepest {deepest:,}"
        beside = {f"{name}_passes": mean[name] / mean["pass"] for name in ("lazy", "complete")}
        more = {**beside, "worst": worst, "bytes_a_query": moved}
        against = (
            f"one scoring pass (lazy {beside['lazy_passes']:.2f}, complete"
            f" {beside['complete_passes']:.2f}; {moved:,} bytes a query)"
        )
        times_s = mean["counted"], mean["pass"]
        target = Target(2.6, most=True)
        lines.append(Measured("k counted", words, against, *times_s, worst, "passes", target, more))
    return lines


def _kept(found: list[Replay], way: Callable[[], Replay]) -> None:
    found.append(way())
