"""The kernel of the release's replay: one read after another, the K best lower bounds kept sorted.

Legend: C channels, N documents of all lists; `gained_NC` is what a document gained in a channel, 0
where it was not read; `next_C` the bound on what a channel's unread items contribute.
"""

import numpy as np
from numba import njit

from desa_ray.core.arrays import Bools, Float64s, Int64s, Integer, Real, Truth


@njit(cache=True, nogil=True, error_model="numpy")
def read_until_certain(
    items: Int64s,
    starts: Int64s,
    sizes: Int64s,
    weights: Float64s,
    kappa: Real,
    union: Integer,
    peek: Truth,
    top: Int64s,
    reads: Int64s,
) -> None:
    """Reads until `top` is certain; fills `top` and `reads`."""
    channels, k = sizes.size, top.size
    gained_NC = np.zeros((union, channels))
    low_N, seen_N, chosen_N = np.zeros(union), np.zeros(union, np.bool_), np.zeros(union, np.bool_)
    observed = np.empty(union, np.int64)
    next_C = np.zeros(channels)
    for c in range(channels):
        next_C[c] = weights[c] / (kappa + 1.0) if sizes[c] > 0 else 0.0
    # typed: a literal would compile what it is passed to twice
    count, found, rival = np.int64(0), np.int64(0), np.int64(0)
    while True:
        if found == k:
            unread = 0.0
            open_ = False
            for c in range(channels):
                unread += next_C[c]
                open_ |= reads[c] < sizes[c]
            beaten = not open_ or (peek and count == union) or low_N[top[k - 1]] > unread
            if beaten and _ordered(top, low_N, gained_NC, next_C):
                rival = _rival(
                    top[k - 1], rival, observed, count, chosen_N, low_N, gained_NC, next_C
                )
                if rival < 0:
                    return
        turn = np.int64(-1)
        for c in range(channels):
            if reads[c] < sizes[c] and (turn < 0 or next_C[c] > next_C[turn]):
                turn = c
        place: int = starts[turn] + reads[turn]
        document = items[place]
        gained_NC[document, turn] = next_C[turn]
        reads[turn] += 1
        next_C[turn] = (
            weights[turn] / (kappa + (reads[turn] + 1)) if reads[turn] < sizes[turn] else 0.0
        )
        if not seen_N[document]:
            seen_N[document] = True
            observed[count] = document
            count += 1
        total = 0.0
        for c in range(channels):
            total += gained_NC[document, c]
        low_N[document] = total
        found = _enter(document, top, found, chosen_N, low_N)


@njit(cache=True, nogil=True)
def _high(document: Integer, gained_NC: Float64s, next_C: Float64s) -> Real:
    """Upper bound: what was read, and the next bound of every channel where it was not."""
    total = 0.0
    for c in range(next_C.size):
        own = gained_NC[document, c]
        total += own if own > 0.0 else next_C[c]
    return total


@njit(cache=True, nogil=True)
def _precedes(
    x: Integer, y: Integer, low_N: Float64s, gained_NC: Float64s, next_C: Float64s
) -> Truth:
    high = _high(y, gained_NC, next_C)
    return low_N[x] > high or (low_N[x] == high and x < y)


@njit(cache=True, nogil=True)
def _ordered(top: Int64s, low_N: Float64s, gained_NC: Float64s, next_C: Float64s) -> Truth:
    """Whether each document of the top surely precedes the next."""
    ordered = True
    for i in range(top.size - 1):
        ordered = ordered and _precedes(top[i], top[i + 1], low_N, gained_NC, next_C)
    return ordered


@njit(cache=True, nogil=True)
def _rival(
    last: Integer,
    first: Integer,
    observed: Int64s,
    count: Integer,
    chosen_N: Bools,
    low_N: Float64s,
    gained_NC: Float64s,
    next_C: Float64s,
) -> Integer:
    """Place of an observed document that may still pass the last of the top, -1 if there is none;
    the search begins with place `first`, which was one before.
    """
    for step in range(count):
        place = (max(first, 0) + step) % count
        y = observed[place]
        if not chosen_N[y] and not _precedes(last, y, low_N, gained_NC, next_C):
            return place
    return np.int64(-1)


@njit(cache=True, nogil=True)
def _enter(
    document: Integer, top: Int64s, found: Integer, chosen_N: Bools, low_N: Float64s
) -> Integer:
    """Moves a document to its place among the best lower bounds; returns how many there are."""
    if chosen_N[document]:
        i = 0
        while top[i] != document:
            i += 1
    elif found < top.size:
        i = found
        found += 1
    else:
        i = found - 1
        last = top[i]
        if not _above(document, last, low_N):
            return found
        chosen_N[last] = False
    chosen_N[document] = True
    while i > 0 and _above(document, top[i - 1], low_N):
        top[i] = top[i - 1]
        i -= 1
    top[i] = document
    return found


@njit(cache=True, nogil=True)
def _above(x: Integer, y: Integer, low_N: Float64s) -> Truth:
    return low_N[x] > low_N[y] or (low_N[x] == low_N[y] and x < y)
