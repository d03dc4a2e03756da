"""Learned sparse weights as integers: how they are quantised, and how the weights of several texts
become one query (method.md section 4.3).

Legend: a bag maps a term to its weight; a missing term weighs 0.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from desa_ray.core.query_text import QUERY2DOC_COPIES, mugi_repeats
from desa_ray.errors import DesaError
from desa_ray.lines import has_lone_surrogate, shown, shown_value

LARGEST = 1 << 20  # of one quantised weight
EXACT = 1 << 53  # scores below are whole numbers in float64, too
SCALE = 100.0  # where no setting says otherwise
MAX_TERM_BYTES = 32_766  # Lucene's limit

Bag = Mapping[str, int]


def checked_weights(vector: Mapping[str, Any]) -> Mapping[str, float]:
    """The same, if they are terms and numbers, as JSON may hold others; raises DesaError."""
    for term, weight in vector.items():
        if not term or has_lone_surrogate(term) or len(term.encode()) > MAX_TERM_BYTES:
            raise DesaError(f"{shown(term)} is no term of 1 to {MAX_TERM_BYTES} bytes of UTF-8")
        if type(weight) not in (int, float):
            raise DesaError(f"term {shown(term)} has the weight {shown_value(weight)}")
        if isinstance(weight, int) and abs(weight) > 1 << 62:
            raise DesaError(f"term {shown(term)} has a weight above 2^62")
    return vector


def quantised(weights: Mapping[str, float], scale: float) -> dict[str, int]:
    """rint(weight x scale), halves to even; terms whose weight becomes 0 are left out.

    Raises:
        DesaError: a weight is negative, not finite, or larger than `LARGEST` once quantised.
    """
    found: dict[str, int] = {}
    for term, weight in weights.items():
        value = float(weight) * scale
        if not math.isfinite(value) or value < 0:
            what = f"term {shown(term)} has the weight {weight}, expected a number from 0 up"
            raise DesaError(what, hint="export weights after the activation of the model")
        if value > LARGEST:
            what = f"term {shown(term)} has the weight {weight}, above {LARGEST} / {scale}"
            raise DesaError(what, hint="lower the scale")
        if whole := round(value):
            found[term] = whole
    return found


def copies_of_query(template: str, query: str, references: Sequence[str], least: int = 0) -> int:
    """How often the query counts in a text source of `desa_ray.core.query_text.SPARSE_TEXTS`."""
    if template == "mugi":
        return max(mugi_repeats(query, references), least)
    return {"references": 0, "query2doc": QUERY2DOC_COPIES}.get(template, 1)


def summed(copies: int, query: Bag, references: Sequence[Bag]) -> dict[str, int]:
    """`copies` times the query's weights plus those of every reference."""
    found: dict[str, int] = {}
    for times, bag in ((copies, query), *((1, bag) for bag in references)):
        for term, weight in bag.items():
            if times:
                found[term] = found.get(term, 0) + times * weight
    return found


def largest(copies: int, query: Bag, references: Sequence[Bag]) -> dict[str, int]:
    """The largest of `copies` times the query's weights and those of each reference."""
    found: dict[str, int] = {}
    for times, bag in ((copies, query), *((1, bag) for bag in references)):
        for term, weight in bag.items():
            if times:
                found[term] = max(found.get(term, 0), times * weight)
    return found


COMBINED = {"sum": summed, "max": largest}


def least_repeats(options: Mapping[str, Fraction | str]) -> int:
    """MuGI's option `min_repeats`."""
    return int(options.get("min_repeats", 0))
