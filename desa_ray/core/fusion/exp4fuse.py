"""Exp4Fuse's fusion: RRF times a bonus for every list that holds a document (Liu & Zhang, Findings
of ACL 2025).

The authors' code scores F(d) = (1 + n/10) * sum of 1 / (60 + rank_c(d)), n being how many lists
hold d. The score is theirs, with kappa for 60 and a weight per list (1 in their code). Ours: exact
comparison, ties by number, and complete lists where the authors take the first 1,000 documents (a
method's `prefix: 1000` does that, and changes n with it).

The score is not a plain sum, so a certification depth needs bounds of its own. They follow the
rules of method.md section 6: a document's lower bound counts the lists where it was read; its
upper bound gives it the next place in every list that is still open and did not show it yet, and
counts those lists too. Reading only ever raises the one and lowers the other, so the depths are
sound, as for RRF. The reading order is RRF's, by w / (kappa + next rank).

Exactness: float64 decides what differs by more than a relative 1e-12, rationals the rest. Plain
numpy, a millisecond per query for lists of some thousand documents: meant for comparison rows.
Legend as in `desa_ray.core.fusion.exact`.
"""

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.fusion.depth import Replay
from desa_ray.core.fusion.exact import NEAR, checked
from desa_ray.core.fusion.reference import unread_bound
from desa_ray.core.fusion.rrf import rank_matrix
from desa_ray.errors import DesaError

BONUS = 10  # a list adds 1/10 to the factor

Ranking = NDArray[np.int32]


def fuse_order(
    channels: Sequence[Ranking], weights: Sequence[Fraction], kappa: Fraction, m: int | None = None
) -> Ranking:
    """The first m documents (all of them for None) of the exact fused order; arguments and errors
    as for RRF.
    """
    checked(channels, weights, kappa)
    return _Scores(channels, weights, kappa).order(m)


def replay(
    channels: Sequence[Ranking], weights: Sequence[Fraction], kappa: Fraction, k: int
) -> Replay:
    """The certification depths of the ordered top k under the bounds above; arguments and errors as
    for RRF.
    """
    checked(channels, weights, kappa)
    if k < 0:
        raise DesaError(f"k = {k} is negative", hint="use 0 or more")
    scores = _Scores(channels, weights, kappa)
    top = scores.order(k)
    states = _reading(scores.lengths, weights, kappa)
    last = len(states) - 1
    step = bisect_left(range(last), True, key=lambda step: scores.certified(top, k, states[step]))
    depths = states[step]
    exhausted = tuple(
        bool(depth == length) for depth, length in zip(depths, scores.lengths, strict=True)
    )
    return Replay(tuple(map(int, depths)), exhausted, int(depths.sum()), top)


class _Scores:
    """Ranks of one query's documents and the bounds that a state of reading gives them: so many
    items read per channel.
    """

    def __init__(self, channels: Sequence[Ranking], weights: Sequence[Fraction], kappa: Fraction):
        self.weights, self.kappa = weights, kappa
        self.lengths = np.array([channel.size for channel in channels])
        union, places = np.unique(np.concatenate(channels), return_inverse=True)
        edges = np.cumsum([0, *self.lengths])
        small = [places[a:b].astype(np.int32) for a, b in pairwise(edges)]
        self.documents = union.astype(np.int32)
        ranks_NC = rank_matrix(small) if union.size else np.empty((0, len(channels)), np.int32)
        self.ranks_CN = np.ascontiguousarray(ranks_NC.T)
        self.weights_C = np.array([float(weight) for weight in weights])
        with np.errstate(divide="ignore", invalid="ignore"):
            shares_CN = self.weights_C[:, None] / (float(kappa) + self.ranks_CN)
        self.shares_CN = np.where(self.ranks_CN > 0, shares_CN, 0.0)

    def order(self, m: int | None) -> Ranking:
        """The exact order: presorted by floats, then every run of neighbours that floats cannot
        tell apart, exactly.
        """
        scores_N = (BONUS + (self.ranks_CN > 0).sum(axis=0)) * self.shares_CN.sum(axis=0)
        order = np.argsort(-scores_N, kind="stable")
        m = order.size if m is None else min(m, order.size)
        close = scores_N[order[1:]] >= scores_N[order[:-1]] * (1 - NEAR)
        starts = np.flatnonzero(np.concatenate([[True], ~close]))
        for begin, end in pairwise([*starts.tolist(), order.size]):
            if begin >= m:
                break
            if end - begin > 1:
                exact = {n: self.exact(n, self.lengths)[0] for n in order[begin:end].tolist()}
                order[begin:end] = sorted(exact, key=lambda n: (-exact[n], n))
        return self.documents[order[:m]]

    def exact(self, n: int, seen: NDArray[np.int64]) -> tuple[Fraction, Fraction]:
        """Lower and upper bound of document n (a place; -1 for a wholly unread one) with `seen`
        items read.
        """
        low = high = Fraction(0)
        lists = possible = 0
        for c, weight in enumerate(self.weights):
            rank = int(self.ranks_CN[c, n]) if n >= 0 else 0
            if 0 < rank <= seen[c]:
                low, lists = low + weight / (self.kappa + rank), lists + 1
                high, possible = high + weight / (self.kappa + rank), possible + 1
            elif seen[c] < self.lengths[c]:
                bound = unread_bound(weight, self.kappa, int(seen[c]))
                high, possible = high + bound, possible + 1
        return (BONUS + lists) * low, (BONUS + possible) * high

    def certified(self, top: Ranking, k: int, seen: NDArray[np.int64]) -> bool:
        """Whether the state proves `top`: each document surely precedes the next, the last all
        others, read or not.
        """
        if k == 0:
            return True
        if top.size < k:  # only the ends of all lists say that there are no more documents
            return False
        places = np.searchsorted(self.documents, top).tolist()
        last, open_C = places[-1], seen < self.lengths
        if open_C.any() and self.exact(last, seen)[0] <= self.exact(-1, seen)[1]:
            return False
        read_CN = (self.ranks_CN > 0) & (self.ranks_CN <= seen[:, None])
        may_CN = ~read_CN & open_C[:, None]
        next_C = self.weights_C / (float(self.kappa) + seen + 1)
        lists_N = read_CN.sum(axis=0)
        known_N = np.where(read_CN, self.shares_CN, 0.0).sum(axis=0)
        low_N = (BONUS + lists_N) * known_N
        high_N = (BONUS + lists_N + may_CN.sum(axis=0)) * (known_N + next_C @ may_CN)
        rivals = high_N >= low_N[last] * (1 - NEAR)
        rivals[places] = False
        pairs = [*pairwise(places), *((last, rival) for rival in np.flatnonzero(rivals).tolist())]
        return all(self._precedes(x, y, seen, low_N, high_N) for x, y in pairs)

    def _precedes(
        self,
        x: int,
        y: int,
        seen: NDArray[np.int64],
        low_N: NDArray[np.float64],
        high_N: NDArray[np.float64],
    ) -> bool:
        """S8: x surely precedes y, in floats where they are clear."""
        if low_N[x] > high_N[y] * (1 + NEAR):
            return True
        if low_N[x] < high_N[y] * (1 - NEAR):
            return False
        low, high = self.exact(x, seen)[0], self.exact(y, seen)[1]
        return low > high or (low == high and x < y)


def _reading(
    lengths: NDArray[np.int64], weights: Sequence[Fraction], kappa: Fraction
) -> NDArray[np.int64]:
    """int64 [steps + 1, C]: items read of each channel before the first read and after every one
    (S5, S6).
    """
    common = lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * common) for weight in weights]
    unit = lcm(*whole)
    p, q = kappa.numerator, kappa.denominator
    # Bounds w / (kappa + rank) descend as these whole numbers ascend.
    keys: list[list[int]] = []
    for w, n in zip(whole, lengths, strict=True):
        keys.append([(p + q * rank) * (unit // w) for rank in range(1, n + 1)])
    flat = np.array([key for own in keys for key in own], np.int64 if _small(keys) else object)
    turns = np.repeat(np.arange(lengths.size), lengths)[np.argsort(flat, kind="stable")]
    reads = turns[:, None] == np.arange(lengths.size)
    return np.concatenate([np.zeros((1, lengths.size), np.int64), np.cumsum(reads, axis=0)])


def _small(keys: Sequence[Sequence[int]]) -> bool:
    return all(abs(key) < 1 << 63 for own in keys if own for key in (own[0], own[-1]))
