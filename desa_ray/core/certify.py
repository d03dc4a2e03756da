"""The kernels of the replay: read ahead until the ordered top K is certain, then find the exact step (SPEC section 6).

Certification is a conjunction of conditions "x surely precedes y", each of which stays true once it is true (S12). So
the reading may run ahead and check only now and then, keeping the K best lower bounds on the way. At the first check
that succeeds the top K is known, and the exact step is the largest of the conditions' first steps, each found by
bisection. Conditions have numbers: i < K-1 says that top[i] precedes top[i+1], K-1 that the last one precedes any
wholly unread document, K + y that it precedes document y. A document that nobody had read when condition K-1 became
true never needs a condition of its own.

A step is a state: how many items of each channel are read. Legend as in `desa_ray.core.compare`; P is the length of the
channels' prefixes that a kernel sees; `low_N` is what a document has gained so far, up to rounding; `chosen_N` equals
the base where it is among the K best; `top` holds those, best first.

The three arrays over documents are never cleared, as that takes as long as filling them: what is not above the base
(`scale[BASE]`) is left from earlier replays, whose base was lower.
"""

import numpy as np
from numba import njit

from desa_ray.core.compare import BASE, NEAR, P, Q, precedes

TOO_SHORT = -1  # status: the prefixes ended before the top K was certain
BROKEN = -2  # status: channel BROKEN - status holds a negative number, or a document twice


@njit(cache=True, nogil=True)
def certify(lists_CP, given, lengths, scale, top, known, ranks_NC, low_N, chosen_N, reads, seen):
    """Sets `seen` to the first certain step; returns how many documents `top` holds, or TOO_SHORT, or BROKEN - c.

    `given` of the `lengths` items of every channel are in `lists_CP`. `top` holds the complete fusion's top K if
    `known`, else it is filled here; unused places are -1. After TOO_SHORT, a call with longer prefixes and everything
    else as it was left goes on from there.
    """
    status = _read(lists_CP, given, lengths, scale, top, known, ranks_NC, low_N, chosen_N, reads, seen)
    if status == TOO_SHORT:
        return status
    if status == top.size:
        _close(lists_CP, lengths, scale, top, ranks_NC, low_N, chosen_N, reads, seen)
    return status


@njit(cache=True, nogil=True, error_model="numpy")
def _read(lists_CP, given, lengths, scale, top, known, ranks_NC, low_N, chosen_N, reads, seen):
    """Reads ahead until the top K is certain after `reads`, and leaves `seen` at the last step where it was not.

    Returns as `certify`; where there are fewer than K documents, `seen` says that everything is read.
    """
    p, q, base = scale[P], scale[Q], scale[BASE]
    target = np.zeros(lengths.size, np.int32)
    found, failed = 0, np.int64(-1)  # typed: a literal would compile what it is passed to twice
    while found < top.size and top[found] >= 0:
        found += 1
    entry = 0.0  # a document whose lower bound is below this is not among the K best
    if found == top.size:
        entry = low_N[top[found - 1]] * (1 - NEAR)
    if known:
        for document in top:
            chosen_N[document] = base
        _copy(lengths, target)
    else:
        _ahead(reads, lengths, scale, target)
    while True:
        for c in range(reads.size):
            if target[c] > given[c]:
                return TOO_SHORT
        for c in range(reads.size):
            weight, denominator = float(scale[c]), float(p + q * reads[c])
            for i in range(reads[c], target[c]):
                document = np.int64(lists_CP[c, i])
                if document < 0 or ranks_NC[document, c] > base:
                    reads[c] = i
                    return BROKEN - c
                known_to = np.int64(0)
                for other in range(reads.size):
                    known_to = max(known_to, ranks_NC[document, other])
                ranks_NC[document, c] = base + i + 1
                denominator += q
                low_N[document] = (low_N[document] if known_to > base else 0.0) + weight / denominator
                if low_N[document] >= entry and not known:
                    reads[c] = i + 1
                    found = _enter(document, top, found, reads, ranks_NC, low_N, chosen_N, scale)
                    if found == top.size:
                        entry = low_N[top[found - 1]] * (1 - NEAR)
            reads[c] = target[c]
        if found == top.size:
            failed = _obstacle(top, failed, lists_CP, reads, lengths, ranks_NC, low_N, chosen_N, scale)
            if failed < 0:
                return found
        _copy(reads, seen)
        if not _ahead(reads, lengths, scale, target):
            return found


@njit(cache=True, nogil=True)
def _ahead(reads, lengths, scale, target):
    """Sets `target` to a state 6 % ahead of `reads`; false if nothing is left to read."""
    p, q = scale[P], scale[Q]
    turn = np.int64(-1)  # the channel that is read next; typed, as above
    for c in range(reads.size):
        if reads[c] == lengths[c]:
            continue
        if turn < 0 or scale[c] * (p + q * (reads[turn] + 1)) > scale[turn] * (p + q * (reads[c] + 1)):
            turn = c
    if turn >= 0:
        _state(turn, min(lengths[turn], reads[turn] + max(8, reads[turn] >> 4)), lengths, scale, target)
    return turn >= 0


@njit(cache=True, nogil=True, error_model="numpy")
def _state(c, count, lengths, scale, state):
    """Sets `state` to what is read right after item `count` >= 1 of channel c.

    Items are read in descending order of their bounds W / (p + q rank), the first channel first among equals (S6).
    """
    p, q = scale[P], scale[Q]
    for other in range(lengths.size):
        reach = scale[other] * (p + q * count) - (0 if other <= c else 1)
        state[other] = min(max((reach // scale[c] - p) // q, 0), lengths[other])


@njit(cache=True, nogil=True)
def _copy(source, target):
    for c in range(source.size):
        target[c] = source[c]


@njit(cache=True, nogil=True)
def _above(x, y, reads, ranks_NC, low_N, scale):
    """Whether the lower bound of x is above that of y after `reads`, ties by number."""
    if low_N[x] > low_N[y] * (1 + NEAR):
        return True
    return low_N[x] >= low_N[y] * (1 - NEAR) and precedes(x, y, reads, reads, ranks_NC, scale)


@njit(cache=True, nogil=True)
def _enter(document, top, found, reads, ranks_NC, low_N, chosen_N, scale):
    """Moves a document whose lower bound rose to its place among the K best; returns how many there are."""
    i = found
    if chosen_N[document] == scale[BASE]:
        i = 0
        while top[i] != document:
            i += 1
    elif found < top.size:
        found += 1
    else:
        i = found - 1
        if not _above(document, np.int64(top[i]), reads, ranks_NC, low_N, scale):
            return found
        chosen_N[top[i]] = -1
    chosen_N[document] = scale[BASE]
    while i > 0 and _above(document, np.int64(top[i - 1]), reads, ranks_NC, low_N, scale):
        top[i] = top[i - 1]
        i -= 1
    top[i] = document
    return found


@njit(cache=True, nogil=True)
def _holds(condition, top, seen, lengths, ranks_NC, chosen_N, scale):
    """Whether a numbered condition (see the module's docstring) is true with `seen` items read."""
    x, y = top.size - 1, condition - top.size
    if condition < x:
        x, y = condition, np.int64(top[condition + 1])
    elif y >= 0 and chosen_N[y] == scale[BASE]:
        return True
    return precedes(np.int64(top[x]), y, seen, lengths, ranks_NC, scale)


@njit(cache=True, nogil=True, error_model="numpy")
def _obstacle(top, failed, lists_CP, seen, lengths, ranks_NC, low_N, chosen_N, scale):
    """The number of a condition that is not true yet, -1 if all are; `failed`, an earlier answer, is tried first."""
    p, q, base = scale[P], scale[Q], scale[BASE]
    if failed >= 0 and not _holds(failed, top, seen, lengths, ranks_NC, chosen_N, scale):
        return failed
    for condition in range(top.size - 1, -1, -1):
        if not _holds(condition, top, seen, lengths, ranks_NC, chosen_N, scale):
            return condition
    last, settled, floor, unread = top[top.size - 1], True, 0.0, 0.0
    for c in range(lengths.size):
        rank = ranks_NC[last, c] - base
        if 0 < rank <= seen[c]:
            floor += scale[c] / (p + q * rank)
        settled &= rank <= seen[c]
        if seen[c] < lengths[c]:
            unread += scale[c] / (p + q * (seen[c] + 1))
    for c in range(lengths.size):
        others = unread - (scale[c] / (p + q * (seen[c] + 1)) if seen[c] < lengths[c] else 0.0)
        need = floor * (1 - NEAR) - others
        for i in range(seen[c]):
            y = np.int64(lists_CP[c, i])
            if low_N[y] >= need and not _holds(top.size + y, top, seen, lengths, ranks_NC, chosen_N, scale):
                return top.size + y
            if not settled or lengths.size != 2 or chosen_N[y] == base:
                continue
            if not base < ranks_NC[y, 1 - c] <= base + seen[1 - c]:
                break  # what follows and is read here only has a smaller bound, and what is read in both ranks lower
    return np.int64(-1)


@njit(cache=True, nogil=True)
def _close(lists_CP, lengths, scale, top, ranks_NC, low_N, chosen_N, reads, seen):
    """Moves `seen` from a step where the top K is not certain to the first where it is, at the latest `reads`."""
    state, best = np.empty_like(seen), np.empty_like(seen)
    failed = np.int64(-1)
    while True:
        failed = _obstacle(top, failed, lists_CP, seen, lengths, ranks_NC, low_N, chosen_N, scale)
        if failed < 0:
            return
        _copy(reads, best)
        for c in range(seen.size):  # the first step with the condition true ends with an item of some channel c
            false_at, true_at = seen[c], best[c] + 1
            while true_at - false_at > 1:
                middle = (false_at + true_at) >> 1
                _state(c, middle, lengths, scale, state)
                if _holds(failed, top, state, lengths, ranks_NC, chosen_N, scale):
                    true_at = middle
                else:
                    false_at = middle
            if true_at <= best[c]:
                _state(c, true_at, lengths, scale, best)
        _copy(best, seen)
