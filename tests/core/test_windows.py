"""Windows of fused lists against brute force over everything that may follow."""

import random
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest

from desa_ray.core.fusion import reference
from desa_ray.core.fusion.windows import certified_window, cut_tops, window

KAPPAS = [Fraction(60), Fraction(1), Fraction(0), Fraction(7, 3)]
WEIGHTS = [(1, 1), (1, 3), (2, 1), (1, 1, 1), (1, 2, 5)]


def top(lists, weights, kappa, k):
    arrays = [np.array(items, np.int32) for items in lists]
    return reference.fuse_order(arrays, weights, kappa, k).tolist()


def continuations(items, pool, *, ends):
    """The list as it is and with one or two further documents behind it."""
    yield items
    if ends:
        return
    rest = [document for document in pool if document not in items]
    for count in (1, 2):
        for further in permutations(rest, count):
            yield [*items, *further]


def proved_by_brute_force(lists, weights, kappa, k, length, pool, *, ends):
    """The top k that all continuations of the cut lists share; None where they differ."""
    found = set()
    cuts = []
    for items in lists:
        read = items[:length]
        closed = ends and len(read) == len(items)
        cuts.append(list(continuations(read, pool, ends=closed)))
    for continued in product(*cuts):
        found.add(tuple(top(continued, weights, kappa, k)))
        if len(found) > 1:
            return None
    (own,) = found
    return own if len(own) == k or ends else None


def cases(count, seed):
    random_ = random.Random(seed)
    for _ in range(count):
        weights = tuple(map(Fraction, random_.choice(WEIGHTS[:3])))
        documents = list(range(1, random_.randint(2, 5)))
        lists = []
        for _ in weights:
            own = random_.sample(documents, random_.randint(1, len(documents)))
            lists.append(own)
        if random_.random() < 0.5:
            shortest = min(map(len, lists))
            lists = [own[:shortest] for own in lists]
        yield lists, weights, random_.choice(KAPPAS), random_.randint(1, 3), [0, *documents, 9]


@pytest.mark.parametrize("ends", [False, True])
def test_the_smallest_window_that_proves_is_that_of_brute_force(ends):
    """Documents 0 and 9 are in no list: one precedes all others in a tie, one follows them."""
    proved = 0
    for lists, weights, kappa, k, pool in cases(250, seed=3 + ends):
        longest = max(map(len, lists))
        wanted = None
        for length in range(longest + 1):
            own = proved_by_brute_force(lists, weights, kappa, k, length, pool, ends=ends)
            if own is not None:
                wanted = length, list(own)
                break
        arrays = [np.array(items, np.int32) for items in lists]
        found = certified_window(arrays, weights, kappa, k, ends=ends)
        got = None if found is None else (found[0], found[1].tolist())
        assert got == wanted, (lists, weights, kappa, k)
        proved += wanted is not None
    assert proved > 50


def proved_by_bounds(lists, weights, kappa, k, length):
    """Whether the first `length` items of open lists prove the ordered top k, by the bounds of
    every document: what it has for certain, and that with the next rank where it was not read.
    """
    places = [{d: rank for rank, d in enumerate(own[:length], 1)} for own in lists]
    unread = [weight / (kappa + length + 1) for weight in weights]
    low, high = {}, {}
    for document in set().union(*places):
        known = [
            w / (kappa + p[document]) if document in p else 0
            for w, p in zip(weights, places, strict=True)
        ]
        low[document] = sum(known)
        high[document] = sum(own or bound for own, bound in zip(known, unread, strict=True))
    order = sorted(low, key=lambda d: (-low[d], d))
    if len(order) < k or low[order[k - 1]] <= sum(unread):
        return False
    for place, one in enumerate(order[:k]):
        if any((-low[one], one) > (-high[other], other) for other in order[place + 1 :]):
            return False
    return True


def test_windows_of_long_lists_are_the_smallest_that_bounds_prove():
    """Lists of one length take the replay's way, others bisect; both against the definition."""
    random_ = np.random.default_rng(5)
    for _ in range(60):
        lists = [random_.permutation(300).astype(np.int32)[:120] for _ in range(2)]
        shared = random_.permutation(300).astype(np.int32)[:8]
        lists = [
            np.concatenate([shared, own[~np.isin(own, shared)]]).astype(np.int32) for own in lists
        ]
        shortest = min(own.size for own in lists)
        equal = [own[:shortest] for own in lists]
        weights, kappa = (Fraction(1), Fraction(1)), Fraction(60)
        for given in (equal, [equal[0], equal[1][:-1]]):
            found = certified_window(given, weights, kappa, 5)
            assert found is not None
            length, order = found
            assert proved_by_bounds(given, weights, kappa, 5, length)
            assert not proved_by_bounds(given, weights, kappa, 5, length - 1)
            heads = [own[:length].tolist() for own in given]
            assert order.tolist() == top(heads, weights, kappa, 5)


def test_the_closed_form_is_the_smallest_window():
    random_ = random.Random(11)
    assert window((Fraction(1), Fraction(1)), Fraction(60), 20) == 100
    assert window((Fraction(1),), Fraction(60), 20) == 20
    for _ in range(500):
        weights = tuple(Fraction(random_.randint(1, 9), random_.randint(1, 4)) for _ in range(3))
        kappa, k = random_.choice(KAPPAS), random_.randint(1, 40)
        length, least = window(weights, kappa, k), max(weights) / (kappa + k)
        assert sum(weights) / (kappa + length + 1) < least
        assert length == k or sum(weights) / (kappa + length) >= least


def test_cut_tops_are_those_of_the_cut_lists():
    lists = [np.array([3, 1, 2], np.int32), np.array([2, 4, 3], np.int32)]
    weights = (Fraction(1), Fraction(2))
    found = cut_tops(lists, weights, Fraction(60), 2, (1, 2, 3))
    wanted = [top([own[:n] for own in lists], weights, Fraction(60), 2) for n in (1, 2, 3)]
    assert [own.tolist() for own in found] == wanted
