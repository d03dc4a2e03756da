"""Spoilt input from good input: bytes changed anywhere, values of another type in documents, odd
words in lines. The same seed gives the same input.
"""

import copy
import json
import math
import random
import re
from typing import Any, Literal

from tests.hostile import STRINGS

Form = Literal["bytes", "lines", "json", "jsonl"]
WORDS = [
    *STRINGS.values(),
    *("", " ", "0", "-0", "-1", "1.0", "1.5", "+1", "1e5", "1e400", "-1e400", "nan", "inf", "NULL"),
    *(
        "1_000",
        "٣",
        "0x10",
        "9" * 30,
        "9" * 5000,
        "x" * 3000,
        "../x",
        "/etc/passwd",
        "é",
        "e\u0301",
    ),
    *("null", "true", "q1", "d0", "_id", "Q0", "1/0", "1/3", "${oc.env:HOME}", "%41", "\ufeff"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**63), 10**30, 10**400),
    *(0.5, -0.0, 1e300, math.nan, math.inf, -math.inf),
    *([], [[]], [None], [1], ["a"], [["a"]], {}, {"a": 1}, {"": {}}, [{}], {"a": [{"a": None}]}),
    *WORDS,
]


def spoilt(data: bytes, form: Form, draw: random.Random) -> bytes:
    """The data changed by its form, or as bytes alone in one of four cases."""
    if form == "bytes" or draw.randrange(4) == 0:
        return bytes_changed(data, draw)
    if form == "lines":
        return words_changed(data, draw)
    if form == "json":
        return _written(document_changed(json.loads(data), draw))
    lines = data.splitlines()
    place = draw.randrange(len(lines))
    lines[place] = _written(document_changed(json.loads(lines[place]), draw))
    return b"\n".join(lines) + b"\n"


def _written(document: Any) -> bytes:
    return json.dumps(document).encode()


def bytes_changed(data: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or appended."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        place = draw.randrange(len(changed) or 1)
        how = draw.randrange(4)
        if how == 0 and changed:
            changed[place % len(changed)] = draw.choice(
                (0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256))
            )
        elif how == 1:
            del changed[place : place + draw.choice((1, 2, 4, 40))]
        elif how == 2:
            changed[place:place] = changed[place : place + draw.choice((1, 4, 30))]
        else:
            changed += draw.randbytes(draw.choice((1, 22)))
    return bytes(changed)


def words_changed(data: bytes, draw: random.Random) -> bytes:
    """Some words or blanks replaced by odd ones; lines doubled, left out or in another order."""
    pieces = re.split(rb"([\s,:=]+)", data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange(len(pieces))
        word = draw.choice(WORDS).encode(errors="surrogatepass")
        pieces[place] = word if place % 2 == 0 else draw.choice((b"\n", b"\t", b" ", b"", word))
    lines = b"".join(pieces).split(b"\n")
    how = draw.randrange(6)
    if how == 0:
        draw.shuffle(lines)
    elif how == 1:
        lines.insert(draw.randrange(len(lines)), draw.choice(lines))
    elif how == 2:
        del lines[draw.randrange(len(lines))]
    return b"\n".join(lines)


def places(document: Any, at: tuple = ()) -> list[tuple]:
    """Every place in a document."""
    if isinstance(document, dict):
        inner = list(document.items())
    else:
        inner = list(enumerate(document)) if isinstance(document, list) else []
    found = [at]
    for name, value in inner:
        found += places(value, (*at, name))
    return found


def _value(draw: random.Random) -> Any:
    return copy.deepcopy(draw.choice(VALUES))


def document_changed(document: Any, draw: random.Random) -> Any:
    """A copy with values of another type, without something, or with something further."""
    changed = copy.deepcopy(document)
    for _ in range(draw.choice((1, 1, 2, 4))):
        *path, last = draw.choice(places(changed)) or (None,)
        if last is None:
            if draw.randrange(10) == 0:
                return _value(draw)
            continue
        holder = changed
        for name in path:
            holder = holder[name]
        how = draw.randrange(5)
        if how == 0:
            del holder[last]
        elif how == 1 and isinstance(holder, dict):
            holder[draw.choice(WORDS)] = _value(draw)
        elif how == 2 and isinstance(holder, list):
            holder.insert(last, copy.deepcopy(holder[last]))
        else:
            holder[last] = _value(draw)
    return changed
