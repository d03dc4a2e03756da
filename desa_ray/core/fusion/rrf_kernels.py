"""The kernels of the complete fused order: ranks and scores of documents, heads of prefixes, exact
neighbours.

Scores are float64 and only presort; `settle` and `prefix_heads` compare neighbours exactly, by
`precedes`. Legend: C channels, N documents, L cutoffs, K places of a head.
"""

import numpy as np
from numba import njit

from desa_ray.core.arrays import Float64s, Int32s, Int64s, Integer
from desa_ray.core.fusion.exact import NEAR, P, Q, precedes


@njit(cache=True, nogil=True)
def place_ranks(ranks_NC: Int32s, c: Integer, channel: Int32s) -> Integer | None:
    """Writes the ranks of one channel; returns a document that it holds twice, else None."""
    for i in range(channel.size):
        if ranks_NC[channel[i], c] > 0:
            return channel[i]
        ranks_NC[channel[i], c] = i + 1
    return None


@njit(cache=True, nogil=True, error_model="numpy")
def score_heads(
    items: Int32s,
    starts: Int64s,
    sizes: Int32s,
    ranks_NC: Int32s,
    scale: Int64s,
    scores_N: Float64s,
    found: Int32s,
) -> int:
    """Scores each document of the channels' heads; lists them in `found` and returns how many there
    are.
    """
    count = 0
    for first in range(starts.size):
        for i in range(starts[first], starts[first] + sizes[first]):
            document, score, passed = items[i], 0.0, False
            for c in range(starts.size):
                rank = ranks_NC[document, c]
                if rank > 0:
                    passed |= c < first and rank <= sizes[c]
                    score += float(scale[c]) / float(scale[P] + scale[Q] * rank)
            if not passed:
                scores_N[document] = score
                found[count] = document
                count += 1
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def fill_ranks(
    ranks_NC: Int32s, scores_N: Float64s, c: Integer, channel: Int32s, scale: Int64s
) -> Integer | None:
    """Writes the ranks of one channel and adds its shares; returns a document that it holds twice,
    else None.
    """
    weight, denominator, q = float(scale[c]), float(scale[P]), float(scale[Q])
    for i in range(channel.size):
        document = channel[i]
        if ranks_NC[document, c] > 0:
            return document
        ranks_NC[document, c] = i + 1
        denominator += q
        scores_N[document] += weight / denominator
    return None


@njit(cache=True, nogil=True, error_model="numpy")
def prefix_heads(
    items: Int32s,
    starts: Int64s,
    ranks_NC: Int32s,
    lengths_LC: Int32s,
    scale: Int64s,
    tops_LK: Int32s,
) -> None:
    """Fills in the best documents under each cutoff: all that are within it pass by, the best are
    kept sorted.

    `items[starts[c] :]` begins with channel c.
    """
    k, channels = tops_LK.shape[1], starts.size
    longest = 0
    for c in range(channels):
        longest = max(longest, lengths_LC[:, c].max())
    shares = np.empty((channels, longest + 1))
    for c in range(channels):
        denominator = float(scale[P])
        for rank in range(1, longest + 1):
            denominator += scale[Q]
            shares[c, rank] = scale[c] / denominator
    scores = np.zeros(k)
    for cutoff in range(lengths_LC.shape[0]):
        lengths, top = lengths_LC[cutoff], tops_LK[cutoff]
        held = 0
        for first in range(channels):
            for place in range(lengths[first]):
                document = np.int64(items[starts[first] + place])
                score, passed = 0.0, False
                for c in range(channels):
                    rank = ranks_NC[document, c]
                    if 0 < rank <= lengths[c]:
                        if c < first:
                            passed = True
                            break
                        score += shares[c, rank]
                if passed or (held == k and (k == 0 or score < scores[k - 1] * (1 - NEAR))):
                    continue
                j = held
                while j > 0 and score >= scores[j - 1] * (1 - NEAR):
                    if not precedes(
                        document, np.int64(top[j - 1]), lengths, lengths, ranks_NC, scale
                    ):
                        break
                    j -= 1
                if j == k:
                    continue
                held = min(held + 1, k)
                for i in range(held - 1, j, -1):
                    top[i], scores[i] = top[i - 1], scores[i - 1]
                top[j], scores[j] = document, score


@njit(cache=True, nogil=True)
def settle(
    order: Int32s, scores_N: Float64s, lengths: Int32s, ranks_NC: Int32s, scale: Int64s
) -> None:
    """Insertion sort by the exact order; moves only among neighbours whose float scores are within
    1e-12.
    """
    for i in range(1, order.size):
        j = i
        while j > 0:
            before, after = np.int64(order[j - 1]), np.int64(order[j])
            if scores_N[before] > scores_N[after] * (1 + NEAR):
                break
            if precedes(before, after, lengths, lengths, ranks_NC, scale):
                break
            order[j - 1], order[j] = after, before
            j -= 1
