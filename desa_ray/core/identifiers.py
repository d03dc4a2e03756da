"""Document ids to numbers and back, for rankings of the user's own (method.md sections 1 and
6).

Numbers follow the order of the ids' UTF-8 bytes, so that "ties by identifier" is an integer
comparison.
"""

import math
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


def rational(value: object, name: str) -> Fraction:
    """An exact rational from 1, "1/4", "0.25", a Fraction, or a float, which is read through its
    shortest decimal form.

    Raises:
        DesaError: anything else; `name` says what it is for.
    """
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, Fraction):
            return value
        if re.search(r"[^\x00-\x7f]|_|[eE][+-]?[0-9]{4}", str(value)):
            raise ValueError  # other digits; a power that would be worked out digit by digit
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise DesaError(
            f"{name} {repr(value)[:80]} is not a number", hint='use one like 60 or "1/4"'
        ) from None


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
        number = isinstance(score, Real | Decimal) and not isinstance(score, bool | np.bool_)
        if not number or not math.isfinite(score):
            what = f"score {repr(score)[:80]} of document {document[:80]!r} is not a finite number"
            raise DesaError(
                what,
                where=name,
                hint="give each document a finite score, the highest to the best document",
            )
    by_id = sorted(scores)
    # Stable: equal scores stay in the order of the ids
    return sorted(by_id, key=scores.__getitem__, reverse=True)


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
