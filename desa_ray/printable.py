"""Text from elsewhere, made safe to show: characters that move a cursor, hide or reorder letters
are escaped.

Ids, names, reasons, answers of servers and messages of libraries come from files and hosts that
nobody vouches for. A terminal, a log viewer or an editor obeys some of their characters (ESC and
the other control characters, bidirectional marks, zero-width letters), and lone surrogates cannot
be written at all. Each of those is shown as Python would spell it, `\\x1b` or `\\u202e`; everything
that has a shape of its own stays as it is. What is spelled out once stays the same when it is
spelled out again, so that every door can do it. Data files keep ids untouched.
"""

import unicodedata

# Letters by category, but without a shape: joiners, fillers, variation selectors (Unicode's
# Default_Ignorable).
_SHAPELESS = (
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
    *range(0xE0000, 0xE1000),
)
# Control, format, surrogate, private, unassigned; the separators of lines and paragraphs.
_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


class _Spelling(dict[int, str | int]):
    """Code point -> itself, or how it is spelled; filled as code points are met."""

    def __missing__(self, point: int) -> str | int:
        letter = chr(point)
        odd = unicodedata.category(letter) in _CATEGORIES or point in _SHAPELESS
        self[point] = letter.encode("unicode_escape").decode() if odd else point
        return self[point]


_spelling = _Spelling()


def printable(text: object) -> str:
    """`str(text)` on one line, with every character spelled out that has no shape of its own;
    backslashes stay.
    """
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_spelling)


def printable_lines(text: object) -> str:
    """As `printable`, but line feeds stay: for text of our own that holds other people's."""
    return "\n".join(map(printable, str(text).split("\n")))
