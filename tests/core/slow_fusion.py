"""Rules S1-S10 of method.md section 6, one sentence per line, in rationals, checked after every
read: the oracle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Channels = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Stop:
    topk: list[int]
    depths: list[int]
    exhausted: list[bool]
    steps: int


def fused(
    channels: Channels, weights: Sequence[Fraction], kappa: Fraction
) -> list[tuple[int, Fraction]]:
    """All documents with their exact scores, best first."""
    union = sorted({document for channel in channels for document in channel})
    score = {
        document: sum(
            (
                w / (kappa + c.index(document) + 1)
                for w, c in zip(weights, channels, strict=True)
                if document in c
            ),
            Fraction(0),
        )
        for document in union
    }
    return sorted(score.items(), key=lambda item: (-item[1], item[0]))


def replayed(channels: Channels, weights: Sequence[Fraction], kappa: Fraction, k: int) -> Stop:
    """Reads item by item; asks before the first read and after every one whether the ordered top k
    is certain.
    """
    read = [0] * len(channels)
    steps = 0
    while not (k == 0 or certain(channels, weights, kappa, k, read)):
        bounds = _bounds(channels, weights, kappa, read)
        open_channels = [c for c in range(len(channels)) if read[c] < len(channels[c])]
        read[max(open_channels, key=lambda c: (bounds[c], -c))] += 1
        steps += 1
    candidates = [document for document, _ in _seen(channels, weights, kappa, read)][:k]
    return Stop(
        candidates,
        read,
        [n == len(channel) for n, channel in zip(read, channels, strict=True)],
        steps,
    )


def _bounds(channels, weights, kappa, read) -> list[Fraction]:
    state = zip(weights, read, channels, strict=True)
    return [w / (kappa + n + 1) if n < len(channel) else Fraction(0) for w, n, channel in state]


def _seen(channels, weights, kappa, read) -> list[tuple[int, Fraction]]:
    return fused([channel[:n] for channel, n in zip(channels, read, strict=True)], weights, kappa)


def certain(channels, weights, kappa, k, read) -> bool:
    bounds = _bounds(channels, weights, kappa, read)
    everything = all(n == len(channel) for n, channel in zip(read, channels, strict=True))
    seen = _seen(channels, weights, kappa, read)
    if len(seen) < k:
        return everything
    low = dict(seen)
    high = {
        document: (
            score
            + sum(
                u for u, c, n in zip(bounds, channels, read, strict=True) if document not in c[:n]
            )
        )
        for document, score in seen
    }

    def surely_precedes(x: int, y: int) -> bool:
        return low[x] > high[y] or (low[x] == high[y] and x < y)

    ordered = [document for document, _ in seen]
    last = ordered[k - 1]
    return (
        all(surely_precedes(ordered[i], ordered[i + 1]) for i in range(k - 1))
        and all(surely_precedes(last, other) for other in ordered[k:])
        and (everything or low[last] > sum(bounds))
    )
