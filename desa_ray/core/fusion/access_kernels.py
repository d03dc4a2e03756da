"""The kernel of least depths: the staircase of certifying pairs (method.md section 6.15).

Legend as in `desa_ray.core.fusion.exact`. `nearest[c, n]` is the first document of channel c that
is neither in the top nor among the first n of the other channel, -1 for none: of the documents read
in c alone it has the highest upper bound.
"""

import numpy as np
from numba import njit

from desa_ray.core.arrays import Int32s, Int64s, Truth
from desa_ray.core.fusion.exact import P, Q, precedes

ROUNDING = 1e-9  # rivals are sorted by floats that err by far less


@njit(cache=True, nogil=True)
def staircase(
    top: Int32s,
    rivals: Int32s,
    nearest: Int32s,
    ranks_NC: Int32s,
    lengths: Int32s,
    scale: Int64s,
    found: Int64s,
) -> None:
    """Fills in the minimal pair of least sum, the smaller first depth among equals, and how many
    minimal pairs there are.
    """
    seen = lengths.copy()
    low, high = np.int32(0), lengths[1]
    while low < high:  # the least second depth with the first list read whole
        seen[1] = (low + high) >> 1
        if _certain(top, rivals, nearest, ranks_NC, lengths, scale, seen):
            high = seen[1]
        else:
            low = seen[1] + 1
    seen[1] = low
    best = np.int64(lengths[0]) + lengths[1] + 1
    while True:
        # down in the first list as far as the second depth allows: a minimal pair
        low, high = np.int32(0), seen[0]
        while low < high:
            seen[0] = (low + high) >> 1
            if _certain(top, rivals, nearest, ranks_NC, lengths, scale, seen):
                high = seen[0]
            else:
                low = seen[0] + 1
        seen[0] = low
        found[2] += 1
        if np.int64(seen[0]) + seen[1] <= best:
            best = np.int64(seen[0]) + seen[1]
            found[0], found[1] = seen[0], seen[1]
        if seen[0] == 0:
            return
        seen[0] -= 1
        # up in the second list until the pair certifies again
        low, high = seen[1] + 1, lengths[1] + 1
        while low < high:
            seen[1] = (low + high) >> 1
            if _certain(top, rivals, nearest, ranks_NC, lengths, scale, seen):
                high = seen[1]
            else:
                low = seen[1] + 1
        if low > lengths[1]:
            return
        seen[1] = low


@njit(cache=True, nogil=True, error_model="numpy")
def _certain(
    top: Int32s,
    rivals: Int32s,
    nearest: Int32s,
    ranks_NC: Int32s,
    lengths: Int32s,
    scale: Int64s,
    seen: Int32s,
) -> Truth:
    """Whether the pair of depths `seen` certifies the top: S8 to S10 for any state."""
    last = np.int64(top[top.size - 1])
    if not precedes(last, np.int64(-1), seen, lengths, ranks_NC, scale):
        return False
    for i in range(top.size - 1):
        if not precedes(np.int64(top[i]), np.int64(top[i + 1]), seen, lengths, ranks_NC, scale):
            return False
    for c in range(2):
        alone = np.int64(nearest[c, seen[1 - c]])
        read = alone >= 0 and 0 < ranks_NC[alone, c] <= seen[c]
        if read and not precedes(last, alone, seen, lengths, ranks_NC, scale):
            return False
    gained, known = 0.0, True
    for c in range(2):
        rank = ranks_NC[last, c]
        known &= rank <= seen[c]
        if 0 < rank <= seen[c]:
            gained += scale[c] / (scale[P] + scale[Q] * rank)
    if known:  # its score is above that of every document read in both
        return True
    for rival in rivals:
        score = 0.0
        for c in range(2):
            if ranks_NC[rival, c] > 0:
                score += scale[c] / (scale[P] + scale[Q] * ranks_NC[rival, c])
        if score < gained * (1 - ROUNDING):
            return True
        if not precedes(last, np.int64(rival), seen, lengths, ranks_NC, scale):
            return False
    return True
