"""Ranked lists made to be hard for a replay: small kappas, exact ties, lists that meet where a
window ends.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

KAPPAS = tuple(map(Fraction, ("-99/100", "-9/10", "-1/2", "0", "1/3", "1", "2", "5/2", "8")))
WEIGHTS = tuple(map(Fraction, ("1", "1", "1/4", "2", "3/7", "2699/10000")))


@dataclass(frozen=True)
class Case:
    channels: list[list[int]]
    weights: list[Fraction]
    kappa: Fraction
    k: int


def case(seed: int) -> Case:
    """1 to 4 lists of up to 26 documents, some short, some empty, of four shapes by turns."""
    rng = np.random.default_rng([21, seed])
    count = int(rng.choice([1, 2, 2, 2, 3, 4]))
    equal = rng.random() < 0.5
    weights = [Fraction(1)] * count if equal else [WEIGHTS[i] for i in rng.integers(6, size=count)]
    kappa, k = KAPPAS[rng.integers(len(KAPPAS))], int(rng.integers(1, 7))
    size = int(rng.integers(1, 27))
    shape = seed % 4
    if shape == 0:  # independent
        channels = [rng.permutation(size).tolist() for _ in range(count)]
    elif shape == 1:  # agreeing up to noise
        common = np.arange(size)
        noise = rng.choice([0.5, 2, 6])
        channels = [np.argsort(common + noise * rng.normal(size=size)).tolist() for _ in weights]
    elif shape == 2:  # opposed
        one = rng.permutation(size).tolist()
        channels = [one if c % 2 == 0 else one[::-1] for c in range(count)]
    else:
        channels, weights = _meeting(rng, weights[:2] * (2 // min(2, count)), kappa, k)
    if rng.random() < 0.4:
        channels[-1] = channels[-1][: int(rng.integers(0, len(channels[-1]) + 1))]
    return Case(channels, weights, kappa, k)


def _meeting(rng, weights, kappa, k):
    """Two lists whose heads differ and that both hold one document at the last rank from which it
    can still be among the first k: kappa + 2k for equal weights.
    """
    meet = int(sum(weights) * (kappa + k) / max(weights) - kappa) + int(rng.integers(-1, 2))
    meet = min(max(meet, 1), 13)
    extra = int(rng.integers(0, 4))
    names = rng.permutation(2 * meet + 2 * extra).tolist()
    shared, rest = names[0], names[1:]
    one = [*rest[: meet - 1], shared, *rest[2 * meet - 2 : 2 * meet - 2 + extra]]
    other = [*rest[meet - 1 : 2 * meet - 2], shared, *rest[2 * meet - 2 + extra :][:extra]]
    return [one, other], weights
