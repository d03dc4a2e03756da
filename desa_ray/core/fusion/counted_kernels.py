"""The kernel of counted replays: the first certain step at or after a given one, from the ranks of
the documents that can affect the result (method.md section 6.14).

Legend as in `desa_ray.core.fusion.exact`; W documents by ascending number, so that their places
break ties as their numbers do.
"""

import numpy as np
from numba import njit

from desa_ray.core.arrays import Int32s, Int64s, Integer
from desa_ray.core.fusion.condition_kernels import copy, read_state
from desa_ray.core.fusion.exact import precedes


@njit(cache=True, nogil=True)
def first_certain(
    top: Int32s, ranks_WC: Int32s, lengths: Int32s, scale: Int64s, seen: Int32s
) -> None:
    """Moves `seen` to the first step from there on at which each of `top` surely precedes the next,
    and the last one every other of the W documents.
    """
    chosen = np.zeros(ranks_WC.shape[0], np.bool_)
    for place in top:
        chosen[place] = True
    last = np.int64(top[top.size - 1])
    for i in range(top.size - 1):
        _await(np.int64(top[i]), np.int64(top[i + 1]), ranks_WC, lengths, scale, seen)
    for other in range(ranks_WC.shape[0]):
        if not chosen[other]:
            _await(last, np.int64(other), ranks_WC, lengths, scale, seen)


@njit(cache=True, nogil=True)
def _await(
    x: Integer, y: Integer, ranks_WC: Int32s, lengths: Int32s, scale: Int64s, seen: Int32s
) -> None:
    """Moves `seen` to the first step from there on at which x surely precedes y. Once true that
    stays true (S12), and when everything is read it is.
    """
    if precedes(x, y, seen, lengths, ranks_WC, scale):
        return
    state, best = np.empty_like(seen), lengths.copy()
    for c in range(seen.size):  # the first such step ends with an item of some channel c
        false_at, true_at = seen[c], best[c] + 1
        while true_at - false_at > 1:
            middle = (false_at + true_at) >> 1
            read_state(c, middle, lengths, scale, state)
            if precedes(x, y, state, lengths, ranks_WC, scale):
                true_at = middle
            else:
                false_at = middle
        if true_at <= best[c]:
            read_state(c, true_at, lengths, scale, best)
    copy(best, seen)
