"""Fusion rules written down a second time, as their definitions read, and every continuation of
lists that were read in part.
"""

import math
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product

NEW = (-2, -1, 97, 98)  # documents that no list has shown: before and behind all others


def nearest(value: float) -> Fraction:
    return Fraction(value)


def sigma(scores):
    """The sample's standard deviation by isqrt, rounded to the nearest float64."""
    mean = sum(scores, Fraction(0)) / len(scores)
    variance = sum(((s - mean) ** 2 for s in scores), Fraction(0)) / max(len(scores) - 1, 1)
    shift = 200
    whole = math.isqrt(variance.numerator * 4**shift // variance.denominator)
    return mean, Fraction(float(Fraction(whole, 2**shift)))


def contributions(name, ranked, weight, kappa=60, least=0, most=1):
    """What a list of (document, score) pairs gives each of its documents."""
    scores = [score for _, score in ranked]
    ranks = range(1, len(ranked) + 1)
    if name == "rrf":
        return [weight / (kappa + r) for r in ranks]
    if name == "qdrant_rrf":
        return [1 / (r / weight + kappa - 1) for r in ranks]
    if name in ("isr", "log_isr"):
        return [weight * Fraction(1, r * r) for r in ranks]
    if not scores:
        return []
    if name == "convex":
        top = max(scores)
        return [weight * ((s - least) / (top - least) if top > least else 0) for s in scores]
    if name in ("combsum", "combmnz"):
        return [weight * s for s in scores]
    if name == "bounds":
        return [weight * (s - least) / (most - least) for s in scores]
    if name in ("zscore", "dbsf"):
        mean, wide = sigma(scores)
        if name == "zscore":
            return [weight * ((s - mean) / wide if wide else Fraction(0)) for s in scores]
        low = mean - 3 * wide
        return [weight * ((s - low) / (6 * wide) if wide else Fraction(1, 2)) for s in scores]
    low, high = min(scores), max(scores)  # OpenSearch's min_max, weighted by the mean itself
    scaled = [(s - low) / (high - low) if high > low else Fraction(1) for s in scores]
    return [x if x else Fraction(1, 1000) for x in scaled]


def combined(name, values, weights):
    """The fused score of a document: a number, or for the geometric mean its logarithm's order."""
    there = [(x, w) for x, w in zip(values, weights, strict=True) if x is not None]
    sums = sum((x for x, _ in there), Fraction(0))
    if name in ("isr", "combmnz"):
        return len(there) * sums
    if name == "log_isr":
        return nearest(math.log(len(there))) * sums
    if name == "arithmetic":
        return sum((x * w for x, w in there), Fraction(0)) / sum(weights)
    if name == "harmonic":
        return sum(w for _, w in there) / sum(w / x for x, w in there)
    if name == "geometric":  # of weights 1 for two lists: squares
        found = math.prod(x for x, _ in there)
        return found if len(there) == 2 else found**2
    return sums


def order(name, lists, weights):
    """Documents by score descending, then number, of lists of (document, contribution) pairs."""
    documents = {document for own in lists for document, _ in own}
    maps = [dict(own) for own in lists]
    scores = {d: combined(name, [own.get(d) for own in maps], weights) for d in documents}
    return sorted(documents, key=lambda d: (-scores[d], d))


def continuations(read, left, bound, least, pool, following=None):
    """A list that was read in part, with everything that may fill its `left` unread places.

    Contributions fall from `bound` to `least` (both ends occur), or are `following`.
    """
    rest = [d for d in pool if d not in {document for document, _ in read}]
    if following is not None:
        values = [tuple(following)]
    else:
        values = list(combinations_with_replacement(dict.fromkeys((bound, least)), left))
    for documents, given in product(permutations(rest, left), values):
        yield [*read, *zip(documents, given, strict=True)]
