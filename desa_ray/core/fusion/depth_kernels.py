"""The kernels of the replay: read ahead until the top K is certain, then find the exact step
(method.md section 6).

Certification is a conjunction of conditions "x surely precedes y", each of which stays true once it
is true (S12). So the reading may run ahead and check only now and then, keeping the K best lower
bounds on the way. At the first check that succeeds the top K is known, and the exact step is the
largest of the conditions' first steps, each found by bisection. `condition_kernels` numbers
and tests them.

A step is a state: how many items of each channel are read. Legend as in
`desa_ray.core.fusion.exact`; P is the length of the channels' prefixes that a kernel sees;
`chosen_N` equals the base where a document is among the K best; `top` holds those, best first, and
`low_K` their lower bounds, up to rounding. `low_N` is what every document has gained so far; of two
channels it is empty, because two ranks are summed as fast.

The arrays over documents are never cleared, as that takes as long as filling them: what is not
above the base (`scale[BASE]`) is left from earlier replays, whose base was lower.
"""

import numpy as np
from numba import njit

from desa_ray.core.arrays import Float64s, Int32s, Int64s, Integer, Real, Truth
from desa_ray.core.fusion.condition_kernels import close, copy, gained_by, obstacle, read_state
from desa_ray.core.fusion.exact import BASE, NEAR, P, Q, precedes

READS, SEEN, GIVEN, LENGTHS = range(4)  # rows of the state
TOO_SHORT = -1  # status: the prefixes ended before the top K was certain
TOO_NARROW = -2  # status: a document has no place in the arrays
BROKEN = -3  # status: channel BROKEN - status holds a negative number, or a document twice


@njit(cache=True, nogil=True)
def certify(
    lists_CP: Int32s,
    state_4C: Int32s,
    scale: Int64s,
    top: Int32s,
    known: Truth | Integer,
    ranks_NC: Int32s,
    shares_CR: Float64s,
    low_N: Float64s,
    chosen_N: Int32s,
) -> Integer:
    """Moves SEEN to the first certain step; returns how many documents `top` holds, or a status <
    0.

    The rows of `state_4C`: READS and SEEN, both 0 at first; GIVEN, how many items of every channel
    are in `lists_CP`; LENGTHS, how many there are. `top` holds the complete fusion's top K if
    `known`, else it is filled here; unused places are -1. After TOO_SHORT or TOO_NARROW, a call
    with longer prefixes or for more documents continues from there, if `state_4C`, `top` and the
    arrays over documents are as they were left.
    """
    reads, seen, given, lengths = (
        state_4C[READS],
        state_4C[SEEN],
        state_4C[GIVEN],
        state_4C[LENGTHS],
    )
    status = _readable(lists_CP, given, ranks_NC)
    if status < 0:
        return status
    status = _read(
        lists_CP,
        given,
        lengths,
        scale,
        top,
        known,
        ranks_NC,
        shares_CR,
        low_N,
        chosen_N,
        reads,
        seen,
    )
    if status == top.size:
        close(lists_CP, lengths, scale, top, ranks_NC, shares_CR, low_N, chosen_N, reads, seen)
    return status


@njit(cache=True, nogil=True)
def _read(
    lists_CP: Int32s,
    given: Int32s,
    lengths: Int32s,
    scale: Int64s,
    top: Int32s,
    known: Truth | Integer,
    ranks_NC: Int32s,
    shares_CR: Float64s,
    low_N: Float64s,
    chosen_N: Int32s,
    reads: Int32s,
    seen: Int32s,
) -> Integer:
    """Reads ahead until the top K is certain after `reads`, and leaves `seen` at the last step
    where it was not.

    Returns as `certify`; where there are fewer than K documents, `seen` says that everything is
    read.
    """
    base = scale[BASE]
    target, low_K = np.zeros(lengths.size, np.int32), np.zeros(top.size)
    # Typed: a literal would compile what it is passed to twice
    found, failed, checked = (
        0,
        np.int64(-1),
        np.int64(0),
    )
    while found < top.size and top[found] >= 0:
        low_K[found] = gained_by(np.int64(top[found]), ranks_NC, shares_CR, low_N, base)
        found += 1
    entry = 0.0  # a document whose lower bound is below this is not among the K best
    if known:
        entry = np.inf
        for document in top:
            chosen_N[document] = base
        copy(lengths, target)
    else:
        if found == top.size:
            entry = low_K[found - 1] * (1 - NEAR)
        _ahead(reads, lengths, scale, target)
    while True:
        if _clipped(given, lengths, scale, target) and (target == reads).all():
            return TOO_SHORT
        for c in range(reads.size):
            while reads[c] < target[c]:
                status = _pass(
                    c, reads[c], target[c], lists_CP, entry, base, ranks_NC, shares_CR, low_N
                )
                if status < 0:
                    return BROKEN - c
                reads[c] = status >> 1
                if status & 1:
                    document = np.int64(lists_CP[c, reads[c] - 1])
                    gained, checked = (
                        gained_by(document, ranks_NC, shares_CR, low_N, base),
                        np.int64(0),
                    )
                    found = _enter(
                        document, gained, top, low_K, found, reads, ranks_NC, chosen_N, scale
                    )
                    if found == top.size:
                        entry = low_K[found - 1] * (1 - NEAR)
        if found == top.size:
            failed, checked = obstacle(
                top,
                failed,
                checked,
                lists_CP,
                reads,
                lengths,
                ranks_NC,
                shares_CR,
                low_N,
                chosen_N,
                scale,
            )
            if failed < 0:
                return found
        copy(reads, seen)
        if not _ahead(reads, lengths, scale, target):
            return found


@njit(cache=True, nogil=True)
def _pass(
    c: Integer,
    start: Integer,
    end: Integer,
    lists_CP: Int32s,
    entry: Real,
    base: Integer,
    ranks_NC: Int32s,
    shares_CR: Float64s,
    low_N: Float64s,
) -> Integer:
    """Reads items of channel c up to `end` or the first document with a lower bound of `entry`.

    Returns twice the number of items read, and 1 more if there is such a document; -1 where one
    is listed twice. Most of a replay is spent here: unsigned indices, no views of rows, and no
    loop over two channels make it fast.
    """
    own, other = np.uint32(c), np.uint32(0 if c else 1)
    if ranks_NC.shape[1] == 2:
        for i in range(np.uint32(start), np.uint32(end)):
            document, rank = np.uint32(lists_CP[own, i]), np.int64(i) + 1
            if ranks_NC[document, own] > base:
                return np.int64(-1)
            known = np.uint32(max(ranks_NC[document, other] - base, 0))
            ranks_NC[document, own] = base + rank
            if shares_CR[own, np.uint32(rank)] + shares_CR[other, known] >= entry:
                return 2 * rank + 1
    else:
        for i in range(np.uint32(start), np.uint32(end)):
            document, rank = np.uint32(lists_CP[own, i]), np.int64(i) + 1
            if ranks_NC[document, own] > base:
                return np.int64(-1)
            known = np.int64(0)
            for any_channel in range(np.uint32(ranks_NC.shape[1])):
                known = max(known, ranks_NC[document, any_channel])
            ranks_NC[document, own] = base + rank
            low_N[document] = (low_N[document] if known > base else 0.0) + shares_CR[
                own, np.uint32(rank)
            ]
            if low_N[document] >= entry:
                return 2 * rank + 1
    return 2 * np.int64(end)


@njit(cache=True, nogil=True)
def _readable(lists_CP: Int32s, given: Int32s, ranks_NC: Int32s) -> int:
    """0 if every document in the prefixes has a place in the arrays; else a status."""
    for c in range(given.size):
        smallest, largest = np.int32(0), np.int32(-1)
        for i in range(given[c]):
            smallest, largest = min(smallest, lists_CP[c, i]), max(largest, lists_CP[c, i])
        if smallest < 0:
            return BROKEN - c
        if largest >= ranks_NC.shape[0]:
            return TOO_NARROW
    return 0


@njit(cache=True, nogil=True)
def _ahead(reads: Int32s, lengths: Int32s, scale: Int64s, target: Int32s) -> Truth:
    """Sets `target` to a state 6 % ahead of `reads`; false if nothing is left to read."""
    p, q = scale[P], scale[Q]
    turn = np.int64(-1)  # the channel that is read next; typed, as above
    for c in range(reads.size):
        if reads[c] == lengths[c]:
            continue
        if turn < 0 or scale[c] * (p + q * (reads[turn] + 1)) > scale[turn] * (
            p + q * (reads[c] + 1)
        ):
            turn = c
    if turn >= 0:
        read_state(
            turn,
            min(lengths[turn], reads[turn] + max(16, reads[turn] >> 4)),
            lengths,
            scale,
            target,
        )
    return turn >= 0


@njit(cache=True, nogil=True)
def _clipped(given: Int32s, lengths: Int32s, scale: Int64s, target: Int32s) -> bool:
    """Moves `target` back to the last state that is `given`; whether that was needed."""
    clipped = False
    for c in range(given.size):
        if target[c] > given[c]:
            # States are a chain: no channel gains by this
            read_state(c, given[c] + 1, lengths, scale, target)
            target[c] -= 1
            clipped = True
    return clipped


@njit(cache=True, nogil=True)
def _above(
    x: Integer,
    gained: Real,
    y: Integer,
    other: Real,
    reads: Int32s,
    ranks_NC: Int32s,
    scale: Int64s,
) -> Truth:
    """Whether x, which has gained `gained`, is above y, which has gained `other`, after `reads`;
    ties by number.
    """
    if gained > other * (1 + NEAR):
        return True
    return gained >= other * (1 - NEAR) and precedes(x, y, reads, reads, ranks_NC, scale)


@njit(cache=True, nogil=True)
def _enter(
    document: Integer,
    gained: Real,
    top: Int32s,
    low_K: Float64s,
    found: Integer,
    reads: Int32s,
    ranks_NC: Int32s,
    chosen_N: Int32s,
    scale: Int64s,
) -> Integer:
    """Moves a document whose lower bound rose to its place among the K best; returns how many there
    are.
    """
    i = found
    if chosen_N[document] == scale[BASE]:
        i = 0
        while top[i] != document:
            i += 1
    elif found < top.size:
        found += 1
    else:
        i = found - 1
        if not _above(document, gained, np.int64(top[i]), low_K[i], reads, ranks_NC, scale):
            return found
        chosen_N[top[i]] = -1
    chosen_N[document] = scale[BASE]
    while i > 0 and _above(
        document, gained, np.int64(top[i - 1]), low_K[i - 1], reads, ranks_NC, scale
    ):
        top[i], low_K[i] = top[i - 1], low_K[i - 1]
        i -= 1
    top[i], low_K[i] = document, gained
    return found
