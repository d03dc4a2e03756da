"""Document ids to numbers and back, for rankings that people bring along (method.md sections 1 and 6).

Numbers follow the order of the ids' UTF-8 bytes, so that "ties by identifier" is an integer comparison.
"""

import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.errors import DesaError


def rational(value: object, name: str) -> Fraction:
    """An exact rational from 1, "1/4", "0.25", a Fraction, or a float, which is read through its shortest decimal form.

    Raises:
        DesaError: anything else; `name` says what it was meant for.
    """
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, Fraction):
            return value
        if re.search(r"[eE][+-]?[0-9_]{4}", str(value)):  # would be worked out digit by digit
            raise ValueError
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise DesaError(f"{name} {value!r} is not a number", mend='use one like 60 or "1/4"') from None


def numbered(
    channels: Sequence[Sequence[str]], names: Sequence[str] | None = None
) -> tuple[list[str], list[NDArray[np.int32]]]:
    """The ids of all channels in UTF-8 order, and every channel as int32 document numbers.

    Args:
        channels: lists of ids, best first.
        names: what to call the channels in errors; `channel 0`, ... where left out.

    Raises:
        DesaError: an id that is no string, has no UTF-8 form, or stands twice in one channel.
    """
    names = names or [f"channel {number}" for number in range(len(channels))]
    for name, channel in zip(names, channels, strict=True):
        if isinstance(channel, str | bytes):
            raise DesaError(f"{channel[:40]!r} is no list of document ids", where=name)
        seen: set[str] = set()
        for document in channel:
            if not isinstance(document, str):
                raise DesaError(f"document id {document!r} is not a string", where=name)
            if document in seen:
                raise DesaError(f"document {document[:80]!r} stands there twice", where=name)
            try:
                document.encode()
            except UnicodeEncodeError:
                raise DesaError(f"document id {document[:80]!r} holds a lone surrogate", where=name) from None
            seen.add(document)
    ids = sorted(set().union(*channels))  # Python orders strings by code point, which is the order of UTF-8 bytes
    number = {document: n for n, document in enumerate(ids)}
    return ids, [np.array([number[document] for document in channel], np.int32) for channel in channels]
