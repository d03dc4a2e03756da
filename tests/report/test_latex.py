"""LaTeX tables that fit a page: what is grouped, split and said, and that TeX takes them."""

import re
import shutil
import subprocess

import pytest

from desa_ray.report.drawings import Boxes
from desa_ray.report.latex import latex_document, latex_table
from desa_ray.report.printing import write_figures
from desa_ray.report.table import Column, Row, Table
from tests.report.latex_check import check

TEX = next((name for name in ("pdflatex", "tectonic") if shutil.which(name)), None)
ABOUT = "encoder e5; κ 60; SciFact: 5,183 documents, 300 queries"


def table(numbers: int, rows: int = 4, **more) -> Table:
    """Rows named by data set and method, and so many numbers, two under a common heading."""
    columns = [Column("dataset", "data set"), Column("method", "method")]
    for n in range(numbers):
        better = "high" if n % 2 else "low"
        group = f"outcome {n // 2}" if n > 1 else ""
        title = f"nDCG@10 of {n} gains"
        columns.append(
            Column(f"c{n}", title, "{:.4f}", better, group=group, short="mean" if group else "")
        )
    made = []
    for row in range(rows):
        values = {"dataset": f"Touché {row // 2}", "method": f"50 % of_{row % 2}"}
        made.append(Row({**values, **{f"c{n}": row / 7 + n for n in range(numbers)}}))
    return Table("made", "Made & up", columns, made, ["a note"], **more)


def test_a_narrow_table_takes_one_column():
    text = latex_table(table(2), ABOUT)
    assert check(text) == ["table"]
    assert text.count(r"$\uparrow$") == text.count(r"$\downarrow$") == 1
    assert r"\caption{Made \& up. encoder e5; $\kappa$ 60; SciFact: 5,183" in text
    assert text.count("Touché 0") == 1
    assert r"\addlinespace" in text


def test_a_wide_table_takes_two_and_a_wider_one_parts():
    """Each part repeats the columns that name rows; no number is lost, and groups stay whole."""
    assert check(latex_table(table(6), ABOUT)) == ["table*"]
    text = latex_table(table(40), ABOUT)
    assert set(check(text)) == {"table*"}
    assert f"part 1 of {text.count('begin{table')}" in text
    assert sorted(re.findall(r"outcome (\d+)\}", text), key=int) == [str(n) for n in range(1, 20)]
    assert text.count(r"\midrule") == text.count("Touché 0")


def test_one_column_is_enough_where_it_is_asked_for():
    assert set(check(latex_table(table(12), ABOUT, columns=1))) == {"table"}


def test_long_tables_and_long_texts_are_broken():
    assert len(check(latex_table(table(2, rows=200)))) == 5
    columns = [Column("a", "a"), Column("text", "text")]
    text = latex_table(Table("t", "T", columns, [Row({"a": "x", "text": "word " * 60})]))
    assert check(text) == ["table"]
    assert r"\raggedright\arraybackslash}p{" in text


@pytest.mark.skipif(TEX is None, reason="no TeX found")
def test_tex_takes_tables_and_figures_without_a_complaint(tmp_path):
    """Also hostile names; without shell escape; no line wider than its place."""
    assert TEX
    hostile = [Row({"a": r"\input{x} $x$ %&#_^~<>|", "n": 1.0}), Row({"a": "[1in]*", "n": 2.0})]
    odd = Table("odd", "Odd", [Column("a", "a"), Column("n", "n", "{:.1f}", "high")], hostile)
    tables = [table(2), table(6), table(40), table(2, 100), odd]
    tables = [Table(f"t{n}", *_rest(own)) for n, own in enumerate(tables)]
    (tmp_path / "tables").mkdir()
    (tmp_path / "figures").mkdir()
    for own in tables:
        (tmp_path / "tables" / f"{own.name}.tex").write_text(latex_table(own, ABOUT), "utf-8")
    box = Boxes({"angle": {"SciFact": (0, 1, 2, 3, 4)}})
    write_figures({"box": box}, tmp_path / "figures", ["pdf"], 1)
    document = latex_document(tables, [("box", "Angle & more. 100 %")], 1)
    (tmp_path / "report.tex").write_text(document, "utf-8")
    options = ["-no-shell-escape", "-interaction=nonstopmode"] if TEX == "pdflatex" else []
    command = [TEX, *options, "report.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    log = done.stdout.decode("latin-1")
    assert done.returncode == 0, log[-3000:]
    assert not re.findall(r"^(?:!|Overfull|LaTeX Error|Too many).*", log, re.MULTILINE)
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def _rest(own: Table) -> tuple:
    return own.title, own.columns, own.rows, own.notes
