"""Terminal output: consoles, tables and trees that show text literally, without interpreting it.

rich reads markup (`[red]`), emoji codes (`:bear:`) and control characters in every string that it
is given. Here every string is text and nothing else: it is made printable, and its secrets are
hidden. All other code builds its tables with these.
"""

from typing import Any

import rich.table
import rich.tree
from rich.console import Console, RenderableType
from rich.text import Text

from desa_ray.printable import printable, printable_lines
from desa_ray.redaction import redacted


def shown(text: object, style: str = "") -> Text:
    """Any text for rich, printable and without secrets; line feeds stay."""
    return Text(redacted(printable_lines(text)), style)


def screen(width: int | None = None, *, stderr: bool = False) -> Console:
    """A console that reads no markup; `width` is for where there is no terminal."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if width is not None and not console.is_terminal:
        console.width = width
    return console


class PlainTable(rich.table.Table):
    """rich's table; strings in its title, headings, cells and caption are shown as they are."""

    def __init__(
        self, *, title: str = "", title_style: str = "italic", caption: str = "", **options: Any
    ):
        super().__init__(
            title=shown(printable(title), title_style),
            caption=shown(caption, "dim italic"),
            **options,
        )

    def add_column(self, header: RenderableType = "", *rest: Any, **options: Any) -> None:
        super().add_column(_shown(header), *rest, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(_shown, cells), **options)


class PlainTree(rich.tree.Tree):
    """rich's tree; labels are shown as they are."""

    def __init__(self, label: RenderableType):
        super().__init__(_shown(label))

    def add(self, label: RenderableType, **_: Any) -> "PlainTree":
        node = PlainTree(label)
        self.children.append(node)
        return node


def _shown(cell: Any) -> Any:
    """A cell in one line; text that has lines comes as what `shown` makes of it."""
    return shown(printable(cell)) if isinstance(cell, str) else cell
