"""The conditions of certification, and the first step at which all of them hold (method.md section
6).

Names and legend as in `desa_ray.core.fusion.depth_kernels`, which reads ahead. Conditions have
numbers: i < K-1 says that top[i] precedes top[i+1], K-1 that the last one precedes any wholly
unread document, K + y that it precedes document y. A document that nobody had read when condition
K-1 became true never needs a condition of its own.
"""

import numpy as np
from numba import njit

from desa_ray.core.arrays import Float64s, Int32s, Int64s, Integer, Real, Truth
from desa_ray.core.fusion.exact import BASE, NEAR, P, Q, precedes


@njit(cache=True, nogil=True, error_model="numpy")
def read_state(c: Integer, count: Integer, lengths: Int32s, scale: Int64s, state: Int32s) -> None:
    """Sets `state` to what is read right after item `count` >= 1 of channel c.

    Items are read in descending order of their bounds W / (p + q rank), the first channel first
    among equals (S6).
    """
    p, q = scale[P], scale[Q]
    for other in range(lengths.size):
        reach = scale[other] * (p + q * count) - (0 if other <= c else 1)
        state[other] = min(max((reach // scale[c] - p) // q, 0), lengths[other])


@njit(cache=True, nogil=True)
def gained_by(
    document: Integer, ranks_NC: Int32s, shares_CR: Float64s, low_N: Float64s, base: Integer
) -> Real:
    """The lower bound from everything read of a document that was read, up to rounding."""
    row = np.uint32(document)
    if ranks_NC.shape[1] != 2:
        return low_N[row]
    first, second = ranks_NC[row, 0] - base, ranks_NC[row, 1] - base
    return shares_CR[0, np.uint32(max(first, 0))] + shares_CR[1, np.uint32(max(second, 0))]


@njit(cache=True, nogil=True)
def copy(source: Int32s, target: Int32s) -> None:
    for c in range(source.size):
        target[c] = source[c]


@njit(cache=True, nogil=True)
def _holds(
    condition: Integer,
    top: Int32s,
    seen: Int32s,
    lengths: Int32s,
    ranks_NC: Int32s,
    chosen_N: Int32s,
    scale: Int64s,
) -> Truth:
    """Whether a numbered condition (see the module's docstring) is true with `seen` items read."""
    x, y = top.size - 1, condition - top.size
    if condition < x:
        x, y = condition, np.int64(top[condition + 1])
    elif y >= 0 and chosen_N[y] == scale[BASE]:
        return True
    return precedes(np.int64(top[x]), y, seen, lengths, ranks_NC, scale)


@njit(cache=True, nogil=True, error_model="numpy")
def obstacle(
    top: Int32s,
    failed: Integer,
    checked: Integer,
    lists_CP: Int32s,
    seen: Int32s,
    lengths: Int32s,
    ranks_NC: Int32s,
    shares_CR: Float64s,
    low_N: Float64s,
    chosen_N: Int32s,
    scale: Int64s,
) -> tuple[Integer, Integer]:
    """The number of a condition that is not true yet, -1 if all are; `failed`, an earlier answer,
    is tried first.

    `checked` is the position of the search among the documents read, a channel times 2^32 plus
    items, and is returned too: what was true stays true while `top` stays, so the next search for
    the same `top` continues from there.
    """
    p, q, base = scale[P], scale[Q], scale[BASE]
    if failed >= 0 and not _holds(failed, top, seen, lengths, ranks_NC, chosen_N, scale):
        return failed, checked
    for condition in range(top.size - 1, -1, -1):
        if not _holds(condition, top, seen, lengths, ranks_NC, chosen_N, scale):
            return condition, checked
    last, settled, floor, unread = top[top.size - 1], True, 0.0, 0.0
    for c in range(lengths.size):
        rank = ranks_NC[last, c] - base
        if 0 < rank <= seen[c]:
            floor += scale[c] / (p + q * rank)
        settled &= rank <= seen[c]
        if seen[c] < lengths[c]:
            unread += scale[c] / (p + q * (seen[c] + 1))
    for c in range(checked >> 32, lengths.size):
        others = unread - (scale[c] / (p + q * (seen[c] + 1)) if seen[c] < lengths[c] else 0.0)
        need = floor * (1 - NEAR) - others
        for i in range(checked & 0xFFFFFFFF, seen[c]):
            y = np.int64(lists_CP[c, i])
            close = gained_by(y, ranks_NC, shares_CR, low_N, base) >= need
            if close and not _holds(top.size + y, top, seen, lengths, ranks_NC, chosen_N, scale):
                return top.size + y, (np.int64(c) << 32) + i
            if not settled or lengths.size != 2 or chosen_N[y] == base:
                continue
            if not base < ranks_NC[y, 1 - c] <= base + seen[1 - c]:
                # what follows and is read here only has a smaller bound, and what is read in both
                # ranks lower
                break
        checked = np.int64(c + 1) << 32
    return np.int64(-1), checked


@njit(cache=True, nogil=True)
def close(
    lists_CP: Int32s,
    lengths: Int32s,
    scale: Int64s,
    top: Int32s,
    ranks_NC: Int32s,
    shares_CR: Float64s,
    low_N: Float64s,
    chosen_N: Int32s,
    reads: Int32s,
    seen: Int32s,
) -> None:
    """Moves `seen` from a step where the top K is not certain to the first where it is, at the
    latest `reads`.
    """
    state, best = np.empty_like(seen), np.empty_like(seen)
    failed, checked = np.int64(-1), np.int64(0)
    while True:
        failed, checked = obstacle(
            top,
            failed,
            checked,
            lists_CP,
            seen,
            lengths,
            ranks_NC,
            shares_CR,
            low_N,
            chosen_N,
            scale,
        )
        if failed < 0:
            return
        copy(reads, best)
        for c in range(seen.size):
            # The first step with the condition true ends with an item of some channel c
            false_at, true_at = seen[c], best[c] + 1
            while true_at - false_at > 1:
                middle = (false_at + true_at) >> 1
                read_state(c, middle, lengths, scale, state)
                if _holds(failed, top, state, lengths, ranks_NC, chosen_N, scale):
                    true_at = middle
                else:
                    false_at = middle
            if true_at <= best[c]:
                read_state(c, true_at, lengths, scale, best)
        copy(best, seen)
