"""A collection as a source delivers it: plain rows in file order, not yet validated, numbered or
sorted.
"""

import re
from dataclasses import dataclass, field

MAX_GRADE = 10_000  # trec_eval makes a table of all grades up to the highest

BLANKS = " \t\r\n\v\f"


def grade_of(text: str) -> int | None:
    """The grade that a text means, ignoring spaces around it; None for anything but a whole number
    of at most nine digits.
    """
    digits = text.strip(BLANKS)
    return int(digits) if re.fullmatch("[+-]?[0-9]{1,9}", digits) else None


@dataclass
class RawCollection:
    """Rows of one source, before validation.

    Attributes:
        documents: (id, title, text); the title is "" where the source has none.
        queries: (id, text).
        qrels: (query id, document id, grade).
        broken: whether lines of the corpus could not be read.
        counts: what the source itself noticed while reading (e.g. judgments it dropped); goes to
            the manifest.
    """

    documents: list[tuple[str, str, str]]
    queries: list[tuple[str, str]]
    qrels: list[tuple[str, str, int]]
    counts: dict[str, int] = field(default_factory=dict[str, int])
    broken: bool = False
