"""Tables in LaTeX (booktabs) that fit one column of a page or both, and a document of all of them.

A table that is wider than a column spans both; one that is wider than these is split into parts,
each with the columns that name its rows. Nothing is scaled. Columns of one kind have a common
heading, arrows show the direction of better, and the caption names data and settings.
"""

from collections.abc import Sequence
from itertools import groupby, pairwise

from desa_ray.report.escapes import latex
from desa_ray.report.latex_layout import POINTS_PER_INCH, Layout, laid_out
from desa_ray.report.table import Row, Table

MARKS = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
ROOM = {1: 3.3 * POINTS_PER_INCH, 2: 7.0 * POINTS_PER_INCH}
PACKAGES = r"\usepackage{array,booktabs}"
PREAMBLE = (
    r"\documentclass[10pt,twocolumn]{article}",
    r"\usepackage[T1]{fontenc}",
    r"\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}",
    PACKAGES,
    r"\usepackage{graphicx}",
    r"\setlength{\textwidth}{7.0in}\setlength{\columnsep}{0.4in}",
    r"\setlength{\textheight}{9.2in}\setlength{\topmargin}{-0.6in}",
    r"\setlength{\oddsidemargin}{-0.25in}\setlength{\parindent}{0pt}",
    r"\begin{document}",
)
AT_ONCE = 6  # floats before LaTeX must place them


def latex_table(table: Table, about: str = "", columns: int = 2) -> str:
    """`table` or `table*` environments that need the packages array and booktabs; best values bold,
    second ones underlined, without the quantiles of means.

    Args:
        table: what is printed.
        about: data and settings, where the table does not name its own.
        columns: of a page with two columns that it may span.
    """
    table = table.narrow()
    layout = laid_out(table, ROOM[1])
    everything = list(range(len(table.columns)))
    wide = columns == 2 and layout.width(everything) > ROOM[1]
    if wide:
        layout = laid_out(table, ROOM[2])
    room = ROOM[2 if wide else 1]
    whole = layout.width(everything) <= room
    sides = [everything] if whole else list(layout.parts(room))
    parts = [(places, rows) for places in sides for rows in layout.row_parts()]
    environment = "table*" if wide else "table"
    printed = []
    for number, (places, rows) in enumerate(parts, 1):
        printed += [
            rf"\begin{{{environment}}}[t]",
            r"\centering\fontsize{8}{9.5}\selectfont\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{_caption(table, about, number, len(parts))}}}",
            rf"\label{{tab:{table.name}{f'-{number}' if number > 1 else ''}}}",
            *_tabular(table, layout, places, rows),
            rf"\end{{{environment}}}",
            "",
        ]
    return "\n".join(printed)


def latex_document(
    tables: Sequence[Table], figures: Sequence[tuple[str, str]], columns: int
) -> str:
    """A document of two columns that reads every `tables/NAME.tex`, and shows figures.

    Args:
        tables: whose files are next to it.
        figures: name and caption of every `figures/NAME.pdf`.
        columns: that figures span.
    """
    floats = [rf"\input{{tables/{table.name}.tex}}" for table in tables]
    environment = "figure*" if columns == 2 else "figure"
    for name, caption in figures:
        shown = rf"\includegraphics{{figures/{name}.pdf}}\caption{{{latex(caption)}}}"
        floats.append(
            rf"\begin{{{environment}}}[t]\centering{shown}\label{{fig:{name}}}\end{{{environment}}}"
        )
    lines: list[str] = []
    for number, own in enumerate(floats, 1):
        lines += [own, *([r"\clearpage"] if number % AT_ONCE == 0 else [])]
    return "\n".join([*PREAMBLE, *lines, r"\end{document}", ""])


def _caption(table: Table, about: str, number: int, count: int) -> str:
    part = f" (part {number} of {count})" if count > 1 else ""
    said = [f"{table.title}{part}"]
    if number == 1:
        said += [table.about or about, *table.notes]
    return "".join(f"{latex(text)}. " for text in said if text).strip()


def _tabular(table: Table, layout: Layout, places: Sequence[int], rows: range) -> list[str]:
    columns = [table.columns[place] for place in places]
    align = []
    for place, column in zip(places, columns, strict=True):
        width = f"p{{{layout.points[place]:.1f}pt}}"
        plain = "r" if column.form else "l"
        align.append(rf">{{\raggedright\arraybackslash}}{width}" if layout.broken[place] else plain)
    return [
        rf"\begin{{tabular}}{{@{{}}{''.join(align)}@{{}}}}",
        r"\toprule",
        *_groups(layout, places),
        _row([_heading(layout.titles[place], bool(table.columns[place].form)) for place in places]),
        r"\midrule",
        *_body(table, layout, places, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _groups(layout: Layout, places: Sequence[int]) -> list[str]:
    """Common headings above columns, with the rules below them."""
    if not any(layout.columns[place].group for place in places):
        return []
    cells, rules, at = [], [], 1
    for group, own in groupby(places, key=lambda place: layout.columns[place].group):
        count = len(list(own))
        if group:
            cells.append(rf"\multicolumn{{{count}}}{{c}}{{{latex(group)}}}")
            rules.append(rf"\cmidrule(lr){{{at}-{at + count - 1}}}")
        else:
            cells += [""] * count
        at += count
    return [_row(cells), "".join(rules)]


def _heading(lines: Sequence[str], right: bool) -> str:
    spelled = [latex(line) for line in lines]
    if len(spelled) == 1:
        return spelled[0]
    parts = r"\\ ".join(f"{_apart(line)}{line}" for line in spelled)
    return rf"\shortstack[{'r' if right else 'l'}]{{{parts}}}"


def _body(table: Table, layout: Layout, places: Sequence[int], rows: range) -> list[str]:
    """Rows; a name that several rows begin with is printed once, with room above it."""
    shown, marks = table.shown(), table.marks()
    grouped = layout.keys > 1
    lines: list[str] = []
    before: str | None = None
    for row in rows:
        cells = []
        for place in places:
            cells.append(MARKS[marks[row][place]].format(latex(shown[row][place])))
        named = shown[row][0]
        if _summary(table.rows[row]) and lines and not _summary(table.rows[row - 1]):
            lines.append(r"\midrule")
        elif grouped and before not in (None, named) and _repeats(shown):
            lines.append(r"\addlinespace")
        if grouped and named == before:
            cells[0] = ""
        before = named
        lines.append(_row(cells))
    return lines


def _repeats(shown: Sequence[Sequence[str]]) -> bool:
    return any(own[0] == other[0] for own, other in pairwise(shown))


def _summary(row: Row) -> bool:
    """Whether a row sums up those above it."""
    return bool(row.about.get("pattern") or row.about.get("macro"))


def _row(cells: Sequence[str]) -> str:
    """One row; a first cell that begins like an argument of the line end or rule before it is kept
    apart from it.
    """
    return f"{_apart(cells[0])}{' & '.join(cells)} " + r"\\"


def _apart(text: str) -> str:
    return "{}" if text.startswith(("[", "*", "(")) else ""
