"""How large a stage is: what it counts, what its time grows with, and what its bytes grow with.

The rule of a kind of stage is `Work.size`. It serves plans and manifests alike: it takes the rows
of the stage's inputs, which a plan works out and a manifest remembers, so that a stage to come can
be measured by one that was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Params = Mapping[str, Any]
Rows = Mapping[str, int]  # role of an input -> its rows


@dataclass(frozen=True)
class Size:
    """`items` as people count them, `work` as time grows, `volume` as bytes grow."""

    items: int
    work: float
    volume: float


def even_size(items: int) -> Size:
    """The size of a stage whose time and bytes grow with what people count."""
    return Size(items, items, items)
