"""Irrational constants of a list, rounded to the nearest float64 and then used as exact fractions.

Every machine therefore works with the same number, whatever its C library does.
"""

import math
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache

DIGITS = 60  # of a decimal expansion; a float64 has 17


def root(value: Fraction) -> Fraction:
    """The float64 nearest to the square root of a rational >= 0, as a fraction."""
    if not value:
        return Fraction(0)
    context = Context(prec=DIGITS)
    expansion = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    near = float(context.sqrt(expansion))
    while True:
        below, above = (math.nextafter(near, to) for to in (-math.inf, math.inf))
        if _midpoint(below, near) ** 2 > value:
            near = below
        elif _midpoint(near, above) ** 2 < value:
            near = above
        else:
            return Fraction(near)


def _midpoint(low: float, high: float) -> Fraction:
    return (Fraction(low) + Fraction(high)) / 2


@cache
def logarithm(number: int) -> Fraction:
    """The float64 nearest to the natural logarithm of a number >= 1, as a fraction."""
    return Fraction(float(Context(prec=DIGITS).ln(Decimal(number))))
