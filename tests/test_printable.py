"""Foreign text is escaped wherever it is rendered: errors, terminal tables, trees, progress and
lines.
"""

import ast
import io
import pickle
import re
from pathlib import Path

import pytest
from rich.console import Console

from desa_ray.errors import DesaError, Problems
from desa_ray.jobs.cli.console import cells_table
from desa_ray.output import print_text
from desa_ray.printable import printable, printable_lines
from desa_ray.report.render import rich_table
from desa_ray.report.table import Column, Row, Table
from desa_ray.terminal import PlainTable, PlainTree, screen, shown
from tests.hostile import STRINGS, odd

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = [
    path
    for folder in ("desa_ray", "jobs", "hydra_plugins")
    for path in (REPOSITORY / folder).rglob("*.py")
]

hostile = pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS)


@hostile
def test_escaped_text_is_printable_and_stays_so(text):
    once = printable(text)
    assert odd(once, allowed="") == []
    assert once.encode() is not None
    assert printable(once) == once
    assert odd(printable_lines(text)) == []


def test_escapes_are_those_of_python():
    assert (
        printable("\x1b[0m\u202e\U000e0041\ud800\n\x9b") == r"\x1b[0m\u202e\U000e0041\ud800\n\x9b"
    )


@pytest.mark.parametrize(
    "text", ["", "q1", "a b", "née Ångström", "日本語", "é", "−0.5 – κ → ✓", "a\\b", "a\u00a0b"]
)
def test_text_with_a_shape_stays_as_it_is(text):
    assert printable(text) == text


def test_every_code_point_is_shown_or_escaped():
    """No code point is left that a terminal would obey."""
    points = [
        chr(point) for point in (*range(0x3000), *range(0xD800, 0xE000), *range(0xE0000, 0xE0200))
    ]
    assert odd(printable("".join(points)), allowed="") == []


@hostile
@pytest.mark.parametrize("field", ["what", "where", "hint"])
def test_errors_are_one_printable_line(text, field):
    fields = {"what": "is wrong", "where": "here", "hint": "do it"} | {field: f"<{text}>"}
    error = DesaError(fields["what"], where=fields["where"], hint=fields["hint"])
    for rendered in (error, pickle.loads(pickle.dumps(error))):
        assert odd(str(rendered), allowed="") == []
        assert f"<{printable(text)}>" in str(rendered)
    assert len(str(Problems([error, DesaError("second")])).splitlines()) == 2


@hostile
def test_printed_lines_hold_every_letter_and_nothing_else(text, capsys):
    print_text(f"<{text}>")
    print_text(f"<{text}>", stderr=True)
    out, err = capsys.readouterr()
    assert out == err == f"<{printable_lines(text)}>\n"
    assert odd(out) == []


def _rendered(renderable) -> str:
    """What a terminal would get, its colours left out."""
    console = screen(400)
    console.file = stream = io.StringIO()
    console.print(renderable, soft_wrap=True)
    return stream.getvalue()


def _table(text: str) -> PlainTable:
    table = PlainTable(title=f"T{text}", caption=f"C{text}")
    table.add_column(f"H{text}", overflow="fold")
    table.add_row(f"R{text}")
    return table


def _tree(text: str) -> PlainTree:
    tree = PlainTree(f"T{text}")
    tree.add(f"B{text}").add(f"L{text}")
    return tree


def _report_table(text: str) -> Table:
    columns = (Column("name", f"H{text}"), Column("value", "value", "{:.1f}", "high"))
    rows = [Row({"name": f"R{text}", "value": float(value)}) for value in (1, 2)]
    return Table("name", f"T{text}", columns, rows, notes=(f"C{text}",))


CELL = {
    "encoder": "e",
    "generator": "g",
    "kappa": "60",
    "n_refs": 5,
    "corpus_docs": 3,
    "n_queries": 2,
    "metrics": {},
}


@hostile
@pytest.mark.parametrize(
    ("build", "marks"),
    [
        (_table, "THRC"),
        (_tree, "TBL"),
        (lambda text: rich_table(_report_table(text)), "THRC"),
        (lambda text: shown(f"T{text}"), "T"),
        (lambda text: cells_table([{**CELL, "dataset": f"T{text}", "method": f"R{text}"}]), "TR"),
    ],
    ids=["table", "tree", "report table", "line", "cells"],
)
def test_terminal_views_show_names_as_they_are(build, marks, text):
    found = _rendered(build(text))
    assert odd(found) == []
    for mark in marks:
        lines = [
            f"{mark}{printable(text)}",
            *(f"{mark}{line}" for line in printable_lines(text).split("\n")[:1]),
        ]
        assert any(line in found for line in lines), (mark, found)


@hostile
def test_tables_are_safe_on_any_console(text):
    """A notebook prints tables with a console of its own, which reads markup and emoji codes."""
    stream = io.StringIO()
    Console(file=stream, width=400, force_terminal=False).print(rich_table(_report_table(text)))
    assert odd(stream.getvalue()) == []
    assert f"R{printable(text)}" in stream.getvalue()


@hostile
def test_progress_titles_are_escaped(text, capsys):
    from desa_ray.jobs.cli.console import ConsoleListener
    from desa_ray.pipeline.stage import Stage

    progress = ConsoleListener()
    stage = Stage(None, "ranking", 1, {}, None, label=f"<{text}>")  # pyright: ignore[reportArgumentType]
    progress.begin(stage, 1, 0)
    progress.advance(stage)
    progress.end(stage, 5.0)
    progress.close()
    told = capsys.readouterr().err
    assert odd(told) == []
    assert f"<{printable(text)}>" in told


def test_progress_bars_read_no_markup(monkeypatch):
    from rich.progress import TextColumn

    from desa_ray.jobs.cli import console
    from desa_ray.jobs.cli.console import ConsoleListener
    from desa_ray.pipeline.stage import Stage

    terminal = Console(
        file=io.StringIO(), force_terminal=True, width=200, markup=False, emoji=False
    )
    monkeypatch.setattr(console, "screen", lambda **_: terminal)
    progress = ConsoleListener()
    progress.begin(Stage(None, "ranking", 1, {}, None, label="[/b]\x1b[5m:bear:"), 1, 0)  # pyright: ignore[reportArgumentType]
    progress.close()
    assert progress.bars is not None
    assert all(
        not column.markup for column in progress.bars.bars.columns if isinstance(column, TextColumn)
    )
    assert r"[/b]\x1b[5m:bear:" in terminal.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


# Where text leaves the program

PRINTERS = {"output.py", "terminal.py"}
RICH = {
    "rich.table",
    "rich.tree",
    "rich.console",
    "rich.text",
    "rich.markup",
    "rich.panel",
    "rich.columns",
    "rich",
}


def _offences(path: Path) -> list[str]:
    """Calls and imports that print or render without escaping."""
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" and path.name not in PRINTERS:
                found.append("print")
            if called == "argparse.ArgumentParser":
                found.append(called)
            if called == "TextColumn" and "markup=False" not in ast.unparse(node):
                found.append("TextColumn with markup")
            if re.fullmatch(r"sys\.std(out|err)\.write", called):
                argument = ast.unparse(node.args[0])
                ours = isinstance(node.args[0], ast.Constant)
                if not ours and not re.match(r"printable_lines\(|f'error: \{line\}", argument):
                    found.append(f"{called}({argument})")
            # TREC runs keep ids as they are; no spreadsheet opens them.
            if called.endswith(".write_csv") and path.name not in (
                "spreadsheet.py",
                "trec_writing.py",
            ):
                found.append(called)
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if path.name != "terminal.py":
            found += [f"import {name}" for name in names if name in RICH]
    return found


def test_nothing_prints_past_the_escapes():
    assert len(SOURCES) > 100
    found = {str(path.relative_to(REPOSITORY)): own for path in SOURCES if (own := _offences(path))}
    assert found == {}


def test_output_in_an_encoding_without_the_letters_is_escaped(desa, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = desa("κ", check=False)
    assert done.returncode == 2
    assert r"'\u03ba'" in done.stderr
