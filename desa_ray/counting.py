"""Progress of a long loop: one line on stderr, which a terminal keeps replacing."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from desa_ray.output import print_text
from desa_ray.printable import printable_lines

Item = TypeVar("Item")
AFTER_S = 1.0  # what takes less is not told
TERMINAL_S, ELSEWHERE_S = 0.2, 5.0  # between two lines


def counting(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yields the items; from the first second on, `WHAT: 120 of 1,890 (6 %)` on stderr.

    On a terminal the line replaces itself and goes away at the end; elsewhere there is one now and
    then.
    """
    terminal = sys.stderr.isatty()
    every = TERMINAL_S if terminal else ELSEWHERE_S
    told = time.monotonic() + AFTER_S - every
    shown = False
    try:
        for number, item in enumerate(items):
            now = time.monotonic()
            if now - told >= every:
                told, shown = now, True
                share = f"{100 * number // len(items)} %"
                _tell(f"{what}: {number:,} of {len(items):,} ({share})", terminal)
            yield item
    finally:
        if shown and terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _tell(line: str, terminal: bool) -> None:
    if terminal:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.write(printable_lines(line))
        sys.stderr.flush()
    else:
        print_text(line, stderr=True)
