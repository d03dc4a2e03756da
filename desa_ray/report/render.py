"""Tables as terminal tables, Markdown and LaTeX (booktabs): the same cells, each in the target's own escapes."""

import re
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table as RichTable

from desa_ray.report.table import Table

RICH = {"best": "[bold]{}[/bold]", "second": "[underline]{}[/underline]", "": "{}"}
MARKDOWN = {"best": "**{}**", "second": "_{}_", "": "{}"}
LATEX = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
LATEX_SIGNS = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
    "°": r"$^\circ$",
    "κ": r"$\kappa$",
    "<": "$<$",
    ">": "$>$",
}


def rich_table(table: Table) -> RichTable:
    """For a terminal: best values bold, second ones underlined."""
    shown = RichTable(title=table.title, title_justify="left", title_style="bold", caption="\n".join(table.notes))
    shown.caption_justify = "left"
    for column in table.columns:
        shown.add_column(escape(column.title), justify="right" if column.form else "left", overflow="fold")
    for cells, marks in zip(table.shown(), table.marks(), strict=True):
        shown.add_row(*(RICH[mark].format(escape(cell)) for cell, mark in zip(cells, marks, strict=True)))
    return shown


def markdown_table(table: Table) -> str:
    """A GitHub table with its title as heading: best values bold, second ones italic."""
    head = [column.title.replace("|", "\\|") for column in table.columns]
    rule = ["--:" if column.form else ":--" for column in table.columns]
    lines = [f"## {table.title}", "", piped(head), piped(rule)]
    for cells, marks in zip(table.shown(), table.marks(), strict=True):
        lines.append(piped([MARKDOWN[m].format(c.replace("|", "\\|")) for c, m in zip(cells, marks, strict=True)]))
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]).rstrip() + "\n"


def piped(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def latex_table(table: Table) -> str:
    """A `table` environment that needs the package booktabs; best values bold, second ones underlined."""
    align = "".join("r" if column.form else "l" for column in table.columns)
    head = " & ".join(latex(column.title) for column in table.columns)
    body = [
        " & ".join(LATEX[mark].format(latex(cell)) for cell, mark in zip(cells, marks, strict=True)) + r" \\"
        for cells, marks in zip(table.shown(), table.marks(), strict=True)
    ]
    caption = ". ".join(latex(part) for part in (table.title, *table.notes))
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering\footnotesize",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{caption}.}}",
            rf"\label{{tab:{table.name}}}",
            r"\end{table}",
            "",
        ]
    )


def latex(text: str) -> str:
    """Text for LaTeX; L_D, L_S and d_z become mathematics."""
    parts = re.split(r"\b(L_[DS]|d_z)\b", text)
    return "".join(
        f"${part}$" if place % 2 else "".join(LATEX_SIGNS.get(sign, sign) for sign in part)
        for place, part in enumerate(parts)
    )
