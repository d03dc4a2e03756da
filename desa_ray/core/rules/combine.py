"""Combinations: one value from the contributions of all lists to a document; None means that a list
lacks it.

Each works on fractions, where it is exact, and on floats. For given lists that hold the document a
larger value never makes the result smaller.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import gcd, lcm

from desa_ray.core.rules.constants import logarithm
from desa_ray.errors import DesaError

Value = Fraction
Values = Sequence[Value | None]
Combine = Callable[[Values], Value]
POWERS = 60  # the largest power of a geometric mean that is compared


def total(values: Values) -> Value:
    """The sum."""
    return sum((x for x in values if x is not None), Fraction(0))


def counted(values: Values) -> Value:
    """The sum times the number of lists that hold the document."""
    return total(values) * _held(values)


def log_counted(values: Values) -> Value:
    """The sum times the logarithm of that number: 0 for a document of one list."""
    return total(values) * logarithm(max(_held(values), 1))


def arithmetic(weights: Sequence[Fraction]) -> Combine:
    """Weighted arithmetic mean over all lists, absent = 0."""
    whole = sum(weights, Fraction(0))

    def mean(values: Values) -> Value:
        there = zip(weights, values, strict=True)
        return sum((w * x for w, x in there if x is not None), Fraction(0)) / whole

    return mean


def harmonic(weights: Sequence[Fraction]) -> Combine:
    """Weighted harmonic mean of the values above 0; 0 without one."""

    def mean(values: Values) -> Value:
        there = [(w, x) for w, x in zip(weights, values, strict=True) if x]
        below = sum((w / x for w, x in there), Fraction(0))
        return sum((w for w, _ in there), Fraction(0)) / below if there else Fraction(0)

    return mean


def geometric(weights: Sequence[Fraction]) -> Combine:
    """Weighted geometric mean of the values above 0, to the power of `power_of(weights)`: a
    rational in the same order.
    """
    power, whole = power_of(weights), lcm(*(w.denominator for w in weights))
    integers = [int(w * whole) for w in weights]

    def mean(values: Values) -> Value:
        there = [(n, x) for n, x in zip(integers, values, strict=True) if x]
        count = sum(n for n, _ in there)
        found = Fraction(1)
        for n, x in there:
            found *= x ** (n * power // count)
        return found if there else Fraction(0)

    return mean


def power_of(weights: Sequence[Fraction]) -> int:
    """The smallest power that makes every weighted geometric mean of some of the lists a rational.

    Raises:
        DesaError: it is above 60.
    """
    whole = lcm(*(w.denominator for w in weights))
    integers = [int(w * whole) for w in weights]
    sums = {0}
    for n in integers:
        sums |= {n + other for other in sums}
    power = 1
    for n in integers:
        for count in sums - {0}:
            power = lcm(power, count // gcd(n, count))
            if power > POWERS:
                what = f"weights {', '.join(map(str, weights))} need powers above {POWERS}"
                raise DesaError(what, where="weights", hint="use small ones, such as 1,2")
    return power


def _held(values: Values) -> int:
    return sum(x is not None for x in values)
