"""Exact comparison of fused scores: floats decide clear cases, wide integers decide close ones.

F(d) = sum of w_c / (kappa + rank_c(d)), method.md section 6. Times a common factor this is a sum of
W_c / (p + q rank) with integers W, p, q, which `RrfConstants` finds. Two such sums can be equal, or
differ by less than float64 resolves, so `precedes` compares in float64 first and, within a relative
1e-12, by long division in base 2^32 with as many digits as the smallest possible nonzero difference
asks for. Every integer here stays below 2^63 because `RrfConstants` refuses denominators of 2^31
and more, and weights whose product with a denominator could reach 2^63; such channels go to
`desa_ray.core.fusion.reference`.

Legend: C channels, N documents; `ranks_NC[d, c]` less `scale[BASE]` is the rank of document d in
channel c from 1, and 0 or less means not there or not read yet; `seen[c]` items of channel c count
as read.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np
from numba import njit
from numpy.typing import NDArray

from desa_ray.core.arrays import Int32s, Int64s, Integer, Truth
from desa_ray.core.fusion_constants import check_count, checked_kappa, checked_weights
from desa_ray.errors import DesaError

NEAR = 1e-12  # float sums of up to MAX_CHANNELS terms err by far less
BITS = 31  # of a denominator that the kernels take
WEIGHT_BITS = 52  # of a weight: exact as a float64
PRODUCT_BITS = 63  # of a weight and a denominator together: their product fits into an int64
MAX_CHANNELS = 64
KEPT = 1 << 20  # numbers in the largest table of shares that is kept
BASE, P, Q, DIGITS = -4, -3, -2, -1  # places in the array that `RrfConstants.scale` returns


class RrfConstants:
    """Weights and a kappa that can be fused with: their integers W, p and q, and what follows from
    those.

    Arrays that are given out are shared and not to be written to.
    """

    def __init__(self, weights: tuple[Fraction, ...], kappa: Fraction) -> None:
        self.weights = tuple(checked_weights(weights, len(weights)))
        self.kappa = checked_kappa(kappa)
        common = lcm(*(weight.denominator for weight in weights))
        integers = [int(weight * common) for weight in weights]
        divisor = gcd(*integers)
        self._integers, self._p, self._q = (
            [n // divisor for n in integers],
            kappa.numerator,
            kappa.denominator,
        )
        self._scales: dict[int, NDArray[np.int64] | None] = {}
        self._shares_CR = np.zeros((len(weights), 0), np.float64)

    def scale(self, longest: int) -> NDArray[np.int64] | None:
        """The kernels' integers for channels of at most `longest` items; None where they are too
        wide.

        Returns:
            int64 [C + 4]: weights W, a base of 0, p and q, such that w_c / (kappa + rank) is
            proportional to W_c / (p + q rank), and how many base-2^32 digits after the point tell
            any two different sums apart.
        """
        bits = (self._p + self._q * (longest + 1)).bit_length()
        if bits not in self._scales:
            self._scales[bits] = self._scale(bits)
        return self._scales[bits]

    def shares(self, ranks: int) -> NDArray[np.float64]:
        """float64 [C, R > `ranks`]: W_c / (p + q rank), up to rounding; 0 for rank 0."""
        shares_CR = self._shares_CR
        if shares_CR.shape[1] <= ranks:
            denominators = self._p + self._q * np.arange(ranks + 1, dtype=np.float64)
            denominators[0] = np.inf
            shares_CR = np.array(self._integers, np.float64)[:, None] / denominators
            if shares_CR.size <= KEPT:
                self._shares_CR = shares_CR
        return shares_CR

    def _scale(self, bits: int) -> NDArray[np.int64] | None:
        channels = len(self._integers)
        wide = max(self._integers).bit_length()
        if (
            max(bits, self._q.bit_length(), abs(self._p).bit_length()) > BITS
            or wide > WEIGHT_BITS
            or wide + bits > PRODUCT_BITS
            or channels > MAX_CHANNELS
        ):
            return None
        # 2C fractions of denominators < 2^b: different sums differ by at least 2^-2Cb, and cutting
        # 2C expansions moves the difference by less than 2C units of the last digit.
        digits = (2 * channels * bits + (8 * channels).bit_length()) // 32 + 1
        return np.array([*self._integers, 0, self._p, self._q, digits], np.int64)


_last: RrfConstants | None = None  # those of the last call: query after query has the same


def constants_of(weights: Sequence[Fraction], kappa: Fraction) -> RrfConstants:
    """The terms, after refusing what S2 of method.md section 6 excludes."""
    global _last
    terms, weights = _last, tuple(weights)
    if terms is None or terms.weights != weights or terms.kappa != kappa:
        terms = _last = RrfConstants(weights, kappa)
    return terms


def checked(
    channels: Sequence[NDArray[np.int32]], weights: Sequence[Fraction], kappa: Fraction
) -> RrfConstants:
    """Refuses what S1 and S2 of method.md section 6 exclude (repeated documents are noticed while
    reading).
    """
    if not channels:
        raise DesaError("there are no channels", hint="give one or more")
    check_count(weights, len(channels))
    assert all(channel.dtype == np.int32 and channel.ndim == 1 for channel in channels)
    return constants_of(weights, kappa)


@njit(cache=True, nogil=True)
def _denominators(
    c: Integer,
    x: Integer,
    y: Integer,
    seen: Int32s,
    lengths: Int32s,
    ranks_NC: Int32s,
    scale: Int64s,
) -> tuple[Integer, Integer]:
    """Denominators of x's lower and y's upper bound in channel c; 0 = contributes nothing."""
    p, q, base = scale[P], scale[Q], scale[BASE]
    mine = ranks_NC[x, c] - base
    theirs = ranks_NC[y, c] - base if y >= 0 else 0
    low = p + q * mine if 0 < mine <= seen[c] else 0
    if 0 < theirs <= seen[c]:
        return low, p + q * theirs
    if seen[c] < lengths[c]:
        return low, p + q * (seen[c] + 1)
    return low, 0


@njit(cache=True, nogil=True)
def _exact_sign(
    x: Integer, y: Integer, seen: Int32s, lengths: Int32s, ranks_NC: Int32s, scale: Int64s
) -> int:
    """Sign of x's lower minus y's upper bound, by long division of every term into digits of 32
    bits.
    """
    digits = scale[DIGITS]
    total = np.zeros(digits + 1, np.int64)
    for c in range(seen.size):
        low, high = _denominators(c, x, y, seen, lengths, ranks_NC, scale)
        if low == high:
            continue
        for sign, denominator in ((1, low), (-1, high)):
            if denominator > 0:
                rest = scale[c]
                for j in range(digits + 1):
                    total[j] += sign * (rest // denominator)
                    rest = (rest % denominator) << 32
    slack = 2 * seen.size
    total[digits] += slack  # an exact zero now lies in [0, 2 slack], everything else far outside
    for j in range(digits, 0, -1):
        carry = total[j] >> 32
        total[j] -= carry << 32
        total[j - 1] += carry
    if total[0] < 0:
        return -1
    for j in range(digits):
        if total[j] > 0:
            return 1
    return 1 if total[digits] > 2 * slack else 0


@njit(cache=True, nogil=True, error_model="numpy")
def precedes(
    x: Integer, y: Integer, seen: Int32s, lengths: Int32s, ranks_NC: Int32s, scale: Int64s
) -> Truth:
    """Whether document x surely precedes y (S8) when `seen` items are read of channels with
    `lengths` items.

    y = -1 stands for a wholly unread document, which x must beat strictly unless everything is read
    (S9). With `lengths` = `seen` nothing is left to read and this is the order of the lower bounds
    themselves.
    """
    low = 0.0
    high = 0.0
    for c in range(seen.size):
        a, b = _denominators(c, x, y, seen, lengths, ranks_NC, scale)
        if a > 0:
            low += scale[c] / a
        if b > 0:
            high += scale[c] / b
    if high == 0.0 and y < 0:
        return True
    if low > high * (1 + NEAR):
        return True
    if low < high * (1 - NEAR):
        return False
    sign = _exact_sign(x, y, seen, lengths, ranks_NC, scale)
    return sign > 0 or (sign == 0 and y >= 0 and x < y)
