"""What method.md section 6 proves, tried on all continuations of small states: soundness,
minimality, monotony.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from desa_ray.core.fusion.exact import constants_of
from desa_ray.core.fusion.reference import unread_bound
from desa_ray.core.fusion.registry import FUSIONS

Lists = Sequence[Sequence[int]]
# Documents of the lists; new ones stand below and above, since an unread id may be any
KNOWN = range(10, 15)
KAPPAS = [Fraction(kappa) for kappa in ("-1/2", "0", "1", "2", "60")]
WEIGHTS = [Fraction(weight) for weight in ("1", "1", "1/2", "2", "1/4")]


def rrf(shares: Sequence[Fraction]) -> Fraction:
    return sum(shares, Fraction(0))


def exp4fuse(shares: Sequence[Fraction]) -> Fraction:
    return (1 + Fraction(len(shares), 10)) * sum(shares, Fraction(0))


Score = Callable[[Sequence[Fraction]], Fraction]


def known_shares(
    read: Lists, weights: Sequence[Fraction], kappa: Fraction
) -> dict[int, dict[int, Fraction]]:
    """Document -> channel -> what was read of its contributions."""
    shares: dict[int, dict[int, Fraction]] = {}
    for c, own in enumerate(read):
        for rank, document in enumerate(own, 1):
            shares.setdefault(document, {})[c] = weights[c] / (kappa + rank)
    return shares


def fused(lists: Lists, weights: Sequence[Fraction], kappa: Fraction, score: Score) -> list[int]:
    scores = {
        d: score(list(own.values())) for d, own in known_shares(lists, weights, kappa).items()
    }
    return sorted(scores, key=lambda d: (-scores[d], d))


def certified(
    read: Lists,
    lengths: Sequence[int],
    weights: Sequence[Fraction],
    kappa: Fraction,
    k: int,
    score: Score,
) -> tuple[bool, list[int]]:
    """S5 and S7 to S10 for one state; and the candidates."""
    unread = {
        c: unread_bound(weights[c], kappa, len(own))
        for c, own in enumerate(read)
        if len(own) < lengths[c]
    }
    shares = known_shares(read, weights, kappa)
    low = {d: score(list(own.values())) for d, own in shares.items()}
    high = {
        d: score([*own.values(), *(u for c, u in unread.items() if c not in own)])
        for d, own in shares.items()
    }
    candidates = sorted(low, key=lambda d: (-low[d], d))[:k]
    if len(candidates) < k:
        return not unread, candidates

    def precedes(x: int, y: int) -> bool:
        return low[x] > high[y] or (low[x] == high[y] and x < y)

    last = candidates[-1]
    certain = (
        all(precedes(*pair) for pair in pairwise(candidates))
        and all(precedes(last, other) for other in low.keys() - set(candidates))
        and (not unread or low[last] > score(list(unread.values())))
    )
    return certain, candidates


def continuations(read: Lists, lengths: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to fill the unread places, with documents read elsewhere and with new ones."""
    places = [c for c, own in enumerate(read) for _ in range(lengths[c] - len(own))]
    new = [*range(len(places) + 1), 100, 101]
    documents = [*sorted({document for own in read for document in own}), *new]
    for filling in product(documents, repeat=len(places)):
        lists = [list(own) for own in read]
        for c, document in zip(places, filling, strict=True):
            lists[c].append(document)
        if all(len(set(own)) == len(own) for own in lists):
            yield lists


def random_case(rng: random.Random) -> tuple[list[list[int]], list[Fraction], Fraction, int]:
    channels = rng.choice([1, 2, 2, 2, 3])
    lists = [rng.sample(KNOWN, rng.randint(0, 3)) for _ in range(channels)]
    return lists, [rng.choice(WEIGHTS) for _ in lists], rng.choice(KAPPAS), rng.randint(1, 4)


def states(
    lengths: Sequence[int], weights: Sequence[Fraction], kappa: Fraction
) -> Iterator[list[int]]:
    """The chain of states by S6."""
    seen = [0] * len(lengths)
    yield list(seen)
    for _ in range(sum(lengths)):
        open_channels = [c for c in range(len(lengths)) if seen[c] < lengths[c]]
        seen[max(open_channels, key=lambda c: (unread_bound(weights[c], kappa, seen[c]), -c))] += 1
        yield list(seen)


@pytest.mark.parametrize("score", [rrf, exp4fuse])
def test_a_state_is_certified_exactly_if_no_continuation_differs(score):
    """S11 both ways and S12, and that the product's own replay stops at the first such state."""
    rng = random.Random(11)
    counts = {True: 0, False: 0}
    for _ in range(400):
        lists, weights, kappa, k = random_case(rng)
        lengths = [len(own) for own in lists]
        first = None
        for seen in states(lengths, weights, kappa):
            read = [own[:n] for own, n in zip(lists, seen, strict=True)]
            certain, candidates = certified(read, lengths, weights, kappa, k, score)
            assert certain or first is None  # S12
            first = first if first is not None or not certain else seen
            if sum(lengths) - sum(seen) > 3:
                continue
            tops: set[tuple[int, ...]] = set()
            for continued in continuations(read, lengths):
                tops.add(tuple(fused(continued, weights, kappa, score)[:k]))
                if len(tops) > 1 and not certain:
                    break
            assert (len(tops) == 1) is certain
            assert not certain or tops == {tuple(candidates)}
            counts[certain] += 1
        stop = FUSIONS[score.__name__].replay(
            [np.array(own, np.int32) for own in lists], weights, kappa, k
        )
        assert list(stop.depths) == first
    assert min(counts.values()) > 300


def test_the_chain_of_states_has_its_closed_form():
    """Section 6.6: what is read right after item r of a channel, without reading."""
    rng = random.Random(6)
    for _ in range(200):
        lengths = [rng.randint(0, 12) for _ in range(rng.randint(1, 4))]
        weights, kappa = (
            [rng.choice(WEIGHTS) for _ in lengths],
            rng.choice([*KAPPAS, Fraction(5, 3)]),
        )
        scale = constants_of(weights, kappa).scale(max(lengths))
        assert scale is not None
        whole, p, q = scale[: len(lengths)].tolist(), kappa.numerator, kappa.denominator
        chain = list(states(lengths, weights, kappa))
        for before, after in pairwise(chain):
            c = next(c for c in range(len(lengths)) if after[c] > before[c])
            expected = []
            for other, n in enumerate(lengths):
                reach = (whole[other] * (p + q * after[c]) - (other > c)) // whole[c]
                expected.append(min(n, max(0, (reach - p) // q)))
            assert after == expected


def test_equal_weights_are_read_in_turn():
    chain = list(states([9, 9], [Fraction(1)] * 2, Fraction(60)))
    assert all(dense - sparse in (0, 1) for dense, sparse in chain)


def test_depths_are_at_least_what_unread_documents_and_gaps_ask():
    """Depths are at least what unread documents and gaps ask for. Section 6.7, both bounds, on
    random pairs of rankings that share part of their documents.
    """
    rng, kappa, tight = random.Random(67), Fraction(60), 0
    for _ in range(60):
        pool = list(range(rng.choice([60, 120, 400])))
        lists = [
            np.array(rng.sample(pool, len(pool) - rng.randint(0, 30)), np.int32) for _ in range(2)
        ]
        k = rng.randint(1, 5)
        stop = FUSIONS["rrf"].replay(lists, [Fraction(1)] * 2, kappa, k)
        ranks = [{int(d): rank for rank, d in enumerate(own, 1)} for own in lists]
        score = {d: sum(Fraction(1) / (kappa + own[d]) for own in ranks if d in own) for d in pool}
        if not any(stop.exhausted):
            assert stop.depths[0] > 2 / score[int(stop.topk[-1])] - kappa - 1
        order = sorted((d for d in pool if score[d]), key=lambda d: (-score[d], d))
        for c, own in enumerate(ranks):
            for place, x in enumerate(order[:k]):
                for y in order[place + 1 :]:
                    if y in own or stop.exhausted[c]:
                        continue
                    assert score[x] > score[y]
                    assert stop.depths[c] >= 1 / (score[x] - score[y]) - kappa - 1
                    tight += 1
    assert tight > 0
