"""Exp4Fuse's score and the certification rules for it, item by item in rationals: the oracle of its
fusion.
"""

from collections.abc import Sequence
from fractions import Fraction

Channels = Sequence[Sequence[int]]
TENTH = Fraction(1, 10)


def score(
    document: int | None,
    channels: Sequence[Sequence[int | None]],
    weights: Sequence[Fraction],
    kappa: Fraction,
) -> Fraction:
    """(1 + n/10) * sum of w / (kappa + rank), over the n channels that hold the document."""
    shares = [
        w / (kappa + c.index(document) + 1)
        for w, c in zip(weights, channels, strict=True)
        if document in c
    ]
    return (1 + len(shares) * TENTH) * sum(shares, Fraction(0))


def fused(channels: Channels, weights: Sequence[Fraction], kappa: Fraction) -> list[int]:
    """All documents, best first."""
    union = {document for channel in channels for document in channel}
    return sorted(
        union, key=lambda document: (-score(document, channels, weights, kappa), document)
    )


def depths(channels: Channels, weights: Sequence[Fraction], kappa: Fraction, k: int) -> list[int]:
    """Items read of each channel when the ordered top k is certain for the first time, checked
    after every read.
    """
    read = [0] * len(channels)
    while not _certain(channels, weights, kappa, k, read):
        bounds = _next(channels, weights, kappa, read)
        open_channels = [c for c in range(len(channels)) if read[c] < len(channels[c])]
        read[max(open_channels, key=lambda c: (bounds[c], -c))] += 1
    return read


def _next(channels, weights, kappa, read) -> list[Fraction]:
    state = zip(weights, read, channels, strict=True)
    return [w / (kappa + n + 1) if n < len(channel) else Fraction(0) for w, n, channel in state]


def _certain(channels, weights, kappa, k, read) -> bool:
    if k == 0:
        return True
    seen = [list(channel[:n]) for channel, n in zip(channels, read, strict=True)]
    everything = all(n == len(channel) for n, channel in zip(read, channels, strict=True))
    ordered = fused(seen, weights, kappa)
    if len(ordered) < k:
        return everything

    def low(document: int) -> Fraction:
        return score(document, seen, weights, kappa)

    def high(document: int | None) -> Fraction:
        """As if the document came next wherever it may still come."""
        extended = []
        for own, channel in zip(seen, channels, strict=True):
            extends = document not in own and len(own) < len(channel)
            extended.append([*own, document] if extends else own)
        return score(document, extended, weights, kappa)

    def surely_precedes(x: int, y: int) -> bool:
        return low(x) > high(y) or (low(x) == high(y) and x < y)

    last = ordered[k - 1]
    return (
        (everything or low(last) > high(None))
        and all(surely_precedes(ordered[i], ordered[i + 1]) for i in range(k - 1))
        and all(surely_precedes(last, other) for other in ordered[k:])
    )
