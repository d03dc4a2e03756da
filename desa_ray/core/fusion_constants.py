"""Weights and kappa of a fusion: read exactly, refused out of range (method.md section 6, S2)."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from desa_ray.core.identifiers import rational, told
from desa_ray.errors import DesaError


def checked_kappa(value: object, where: str = "kappa") -> Fraction:
    """Kappa, above -1.

    Raises:
        DesaError: no such number.
    """
    kappa = rational(value, "kappa")
    if kappa <= -1:
        what = f"kappa is {kappa}, expected a number above -1"
        raise DesaError(what, where=where, hint="use one such as 60")
    return kappa


def check_count(
    weights: Sequence[object], count: int, of: str = "channel", where: str = ""
) -> None:
    """Raises DesaError unless each of `count` lists has a weight; see `checked_weights`."""
    if len(weights) != count:
        what = f"{count} {of}s but {len(weights)} weights"
        raise DesaError(what, where=where, hint=f"give one weight per {of}")


def _has_order(values: object) -> bool:
    return isinstance(values, Sequence | np.ndarray) and not isinstance(values, str | bytes)


def checked_weights(
    values: Sequence[object],
    count: int,
    *,
    of: str = "channel",
    where: str = "",
    zero: bool = False,
) -> list[Fraction]:
    """A weight above 0 for each of some lists.

    Args:
        values: numbers, or how they are written.
        count: how many lists there are.
        of: what a list is called.
        where: where weights are given, if at one place.
        zero: whether 0 is allowed too.

    Raises:
        DesaError: no list, another number of weights, what is no number, or one out of range.
    """
    if not _has_order(values):
        what = f"{told(values)} is not a list"  # a set would give each list any of the weights
        raise DesaError(what, where=where or "weights", hint=f"give one weight per {of}")
    weights = [rational(value, "weight") for value in values]
    check_count(weights, count, of, where)
    for number, weight in enumerate(weights):
        if weight < 0 or (weight == 0 and not zero):
            fault, hint = (
                ("negative", "use 0 or more") if zero else ("not above 0", f"leave the {of} out")
            )
            raise DesaError(
                f"weight {weight} is {fault}", where=where or f"{of} {number}", hint=hint
            )
    return weights
