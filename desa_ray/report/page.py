"""The report as one HTML file: tables that sort, figures with hover values, a light and a dark
theme, nothing loaded from elsewhere.

A content security policy in the page forbids every connection, so that "works offline" is checked
by the browser.
"""

import re
from collections.abc import Mapping, Sequence

from desa_ray.report.escapes import html
from desa_ray.report.figures import Figure
from desa_ray.report.svg import asset
from desa_ray.report.table import Table, Value

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(
    title: str,
    facts: Mapping[str, str],
    notes: Sequence[str],
    tables: Sequence[tuple[Table, Table | None]],
    figures: Sequence[Figure],
    cells: Table,
) -> str:
    """The whole page.

    Args:
        facts: what the report is about, name to value, shown on top.
        notes: what was left out or chosen.
        tables: each with the table of printed numbers that belongs next to it.
        figures: drawn below the tables.
        cells: the table of input cells, at the end.
    """
    entries = [(table.name, table.title) for table, _ in tables]
    entries += [(f"figure-{figure.name}", figure.title) for figure in figures] + [
        (cells.name, cells.title)
    ]
    links = "".join(f'<a href="#{html(name)}">{html(shown)}</a>' for name, shown in entries)
    shown_facts = "".join(
        f"<div><dt>{html(k)}</dt><dd>{html(v)}</dd></div>" for k, v in facts.items()
    )
    shown_notes = "".join(f"<li>{html(note)}</li>" for note in notes)
    body = "".join(_section(table, beside) for table, beside in tables)
    drawn = "".join(_figure(figure) for figure in figures)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{html(title)}</title><style>{asset('figure.css')}{asset('page.css')}</style></head><body>"
        f'<header><h1>{html(title)}</h1><button id="theme" type="button">theme:'
        " auto</button></header>"
        f'<nav aria-label="contents">{links}</nav><main><dl class="facts">{shown_facts}</dl>'
        + (f'<ul class="notes">{shown_notes}</ul>' if shown_notes else "")
        + body
        + drawn
        + _section(cells, None)
        + '</main><div id="tip" role="tooltip"'
        f" hidden></div><script>{asset('page.js')}</script></body></html>\n"
    )


def _section(table: Table, beside: Table | None) -> str:
    extra = ""
    if beside is not None:
        extra = (
            "<details"
            f" open><summary>{html(beside.title)}</summary>{_table(beside, flags=True)}</details>"
        )
    return (
        "<section"
        f' id="{html(table.name)}"><h2>{html(table.title)}</h2>{_table(table)}{extra}</section>'
    )


def _table(table: Table, *, flags: bool = False) -> str:
    head = "".join(
        f'<th scope="col"{" class=number" if column.form else ""}{_tip(column.help)}>'
        f'<button type="button">{_lowered(column.title)}</button></th>'
        for column in table.columns
    )
    lines: dict[bool, list[str]] = {False: [], True: []}
    for row, cells, marks in zip(table.rows, table.shown(), table.marks(), strict=True):
        line = ""
        for column, cell, mark in zip(table.columns, cells, marks, strict=True):
            value = row.values.get(column.key)
            classes = " ".join(
                filter(
                    None,
                    (
                        "number" if column.form else "",
                        mark,
                        _flag(column.key, cell) if flags else "",
                    ),
                )
            )
            css = f' class="{classes}"' if classes else ""
            line += f"<td{css}{_raw(value)}>{_lowered(cell)}</td>"
        lines[bool(row.about.get("pattern") or row.about.get("macro"))].append(f"<tr>{line}</tr>")
    foot = f"<tfoot>{''.join(lines[True])}</tfoot>" if lines[True] else ""
    notes = "".join(f"<p>{html(note)}</p>" for note in table.notes)
    about = f"<p>{html(table.about)}</p>" if table.about else ""
    return (
        f'{about}<div class="scroll" tabindex="0" role="region" aria-label="{html(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines[False])}</tbody>{foot}</table></div>{notes}"
    )


def _lowered(text: str) -> str:
    """Text as HTML, with L_D, L_S and d_z set as symbols."""
    return re.sub(r"\b(L)_([DS])\b|\b(d)_(z)\b", _symbol, html(text))


def _symbol(found: re.Match[str]) -> str:
    base, index = filter(None, found.groups())
    return f"<i>{base}</i><sub>{index}</sub>"


def _flag(key: str, cell: str) -> str:
    """Marks what differs from the paper's setting, in tables that compare with a paper."""
    return (
        "other"
        if key in ("dataset", "encoder", "generator", "protocol") and cell not in ("same", "–")
        else ""
    )


def _raw(value: Value) -> str:
    """The unrounded value, to sort by and to show on hover."""
    if isinstance(value, tuple):
        return f' data-v="{value[0]!r}" data-tip="{value[0]:.10g} to {value[1]:.10g}"'
    if isinstance(value, float):
        return f' data-v="{value!r}" data-tip="{value:.10g}"'
    return f' data-v="{value}"' if isinstance(value, int) else ""


def _tip(text: str) -> str:
    return f' data-tip="{html(text)}"' if text else ""


def _figure(figure: Figure) -> str:
    drawing = figure.svg.render(standalone=False)
    return (
        f'<section id="figure-{html(figure.name)}"><h2>{html(figure.title)}</h2><figure>'
        '<div class="scroll" tabindex="0" role="region"'
        f' aria-label="{html(figure.title)}">{drawing}</div>'
        f"<figcaption>{html(figure.caption)}</figcaption></figure></section>"
    )
