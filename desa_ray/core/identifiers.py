"""Document ids to numbers and back, for rankings of the user's own (method.md sections 1 and
6).

Numbers follow the order of the ids' UTF-8 bytes, so that "ties by identifier" is an integer
comparison.
"""

import math
import operator
import re
from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    Set,
    Sized,
    ValuesView,
)
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from desa_ray.errors import DesaError

LARGEST = Fraction(10) ** 100  # of weights and constants; their inverses are the smallest


def rational(value: object, name: str) -> Fraction:
    """An exact rational from 1, "1/4", "0.25", a Fraction, or a float, which is read through its
    shortest decimal form.

    Raises:
        DesaError: anything else, and what is beyond 1e100 or nearer to 0 than 1e-100; `name` says
            what it is for.
    """
    try:
        if isinstance(value, bool):
            raise ValueError
        if re.search(r"[^\x00-\x7f]|_|[eE][+-]?[0-9]{4}", str(value)):
            raise ValueError  # other digits; a power that would be worked out digit by digit
        found = value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise DesaError(
            f"{name} {told(value)} is not a number", hint='use one like 60 or "1/4"'
        ) from None
    if found and not 1 / LARGEST <= abs(found) <= LARGEST:
        what = f"{name} {str(value)[:80]} is out of range"
        raise DesaError(what, hint="use 0, or a size from 1e-100 to 1e100")
    return found


def ordered(channel: object, name: str) -> list[str]:
    """A channel's document ids, best first; of a dict from ids to scores by score descending, ties
    by id.

    Raises:
        DesaError: what has no order of its own (sets, views of a dict), gives its items once
            (generators), or is a single string; an id that is not a string, has no UTF-8 form, or
            is listed twice; a score that is not a finite number.
    """
    if isinstance(channel, Mapping):
        return _by_score(cast(Mapping[Any, Any], channel), name)
    if isinstance(channel, str | bytes | bytearray):
        raise DesaError(
            f"{channel[:40]!r} is not a list of document ids",
            where=name,
            hint="give a list of ids, or the path of an existing TREC run",
        )
    if isinstance(channel, Set | KeysView | ItemsView | ValuesView):
        what = f"a {_type_name(cast(object, channel))} has no order"
        raise DesaError(
            what, where=name, hint="give a list, best first, or a dict from ids to scores"
        )
    if isinstance(channel, Iterator) or not isinstance(channel, Iterable):
        what = f"a {_type_name(cast(object, channel))} is not a list of document ids"
        raise DesaError(
            what, where=name, hint="give a list, best first, or a dict from ids to scores"
        )
    documents: list[str] = []
    seen: set[str] = set()
    for item in cast(Iterable[object], channel):
        document = _checked_id(item, name)
        if document in seen:
            raise DesaError(
                f"document {document[:80]!r} is listed twice",
                where=name,
                hint="keep only its best rank",
            )
        seen.add(document)
        documents.append(document)
    return documents


def _type_name(value: object) -> str:
    return type(value).__name__


def _checked_id(document: object, name: str) -> str:
    if not isinstance(document, str):
        shown = repr(document)[:80]
        scored = isinstance(document, tuple | list) and len(cast(Sized, document)) == 2
        hint = "give pairs of ids and scores as a dict" if scored else "write ids as strings"
        raise DesaError(f"document id {shown} is not a string", where=name, hint=hint)
    try:
        document.encode()
    except UnicodeEncodeError:
        hint = "write valid Unicode: half of a surrogate pair is not a character"
        raise DesaError(
            f"document id {document[:80]!r} holds a lone surrogate", where=name, hint=hint
        ) from None
    return document


def _by_score(scores: Mapping[Any, Any], name: str) -> list[str]:
    for document, score in scores.items():
        _checked_id(document, name)
        if not _is_finite(score):
            what = f"score {told(score)} of document {document[:80]!r} is not a finite number"
            raise DesaError(
                what,
                where=name,
                hint="give each document a finite score, the highest to the best document",
            )
    by_id = sorted(scores)
    # stable: equal scores stay in the order of the ids
    try:
        return sorted(by_id, key=scores.__getitem__, reverse=True)
    except TypeError:  # some kinds of numbers cannot be compared as they are
        return sorted(by_id, key=lambda own: exact_score(scores[own]), reverse=True)


def exact_score(score: Any) -> Fraction:
    """A score as it is; NumPy's numbers as Python's."""
    number: Any = cast(Any, score).item() if isinstance(score, np.generic) else score
    return Fraction(number)


def _is_finite(score: object) -> bool:
    """Whether a score is a number that float64 holds."""
    if not isinstance(score, Real | Decimal) or isinstance(score, bool | np.bool_):
        return False
    try:
        return math.isfinite(score)
    except OverflowError:
        return False


def told(value: object) -> str:
    """A value for a message: bounded, whatever it is."""
    try:
        return repr(value)[:80]
    except ValueError:  # an integer of thousands of digits
        return f"a huge {type(value).__name__}"


def whole_number(value: object, name: str, least: int) -> int:
    """A count out of a caller's hands.

    Raises:
        DesaError: what is no integer, or below the least; `name` says what it is for.
    """
    try:
        found = operator.index(cast(Any, value))
    except TypeError:
        hint = "use one like 20"
        raise DesaError(f"{name} {told(value)} is not a whole number", hint=hint) from None
    if found < least:
        raise DesaError(f"{name} is {told(value)}", where=name, hint=f"use {least} or more")
    return found


def numbered(
    channels: Sequence[Sequence[str] | Mapping[str, float]], names: Sequence[str] | None = None
) -> tuple[list[str], list[NDArray[np.int32]]]:
    """The ids of all channels in UTF-8 order, and every channel as int32 document numbers.

    Args:
        channels: lists of ids, best first, or dicts from ids to scores.
        names: what to call the channels in errors; `channel 0`, ... where left out.

    Raises:
        DesaError: as `ordered`.
    """
    names = names or [f"channel {number}" for number in range(len(channels))]
    lists = [ordered(channel, name) for name, channel in zip(names, channels, strict=True)]
    # Python orders strings by code point, which is the order of UTF-8 bytes
    ids = sorted(set[str]().union(*lists))
    number = {document: n for n, document in enumerate(ids)}
    numbered: list[NDArray[np.int32]] = []
    for documents in lists:
        numbered.append(np.array([number[document] for document in documents], np.int32))
    return ids, numbered
