"""Tables as terminal tables and Markdown: the same cells, each in the target's own escapes."""

from collections.abc import Sequence

from desa_ray.printable import printable
from desa_ray.report.escapes import markdown
from desa_ray.report.table import Table
from desa_ray.terminal import PlainTable, shown

RICH = {"best": "bold", "second": "underline", "": ""}
MARKDOWN = {"best": "**{}**", "second": "_{}_", "": "{}"}


def rich_table(table: Table) -> PlainTable:
    """For a terminal: best values bold, second ones underlined, without the quantiles of means."""
    table = table.narrow()
    notes = "\n".join(map(printable, table.notes))
    title = f"{table.title}: {table.about}" if table.about else table.title
    found = PlainTable(title=title, title_justify="left", title_style="bold", caption=notes)
    found.caption_justify = "left"
    for column in table.columns:
        found.add_column(column.title, justify="right" if column.form else "left", overflow="fold")
    for cells, marks in zip(table.shown(), table.marks(), strict=True):
        found.add_row(
            *(shown(printable(cell), RICH[mark]) for cell, mark in zip(cells, marks, strict=True))
        )
    return found


def markdown_table(table: Table) -> str:
    """A GitHub table with its title as heading: best values bold, second ones italic."""
    head = [markdown(column.title) for column in table.columns]
    rule = ["--:" if column.form else ":--" for column in table.columns]
    about = [markdown(table.about), ""] if table.about else []
    lines = [f"## {markdown(table.title)}", "", *about, piped(head), piped(rule)]
    for cells, marks in zip(table.shown(), table.marks(), strict=True):
        lines.append(
            piped([MARKDOWN[m].format(markdown(c)) for c, m in zip(cells, marks, strict=True)])
        )
    return "\n".join([*lines, "", *(f"- {markdown(note)}" for note in table.notes)]).rstrip() + "\n"


def piped(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"
