"""What LaTeX tables must be, read from their text alone: balanced, equally many cells in a row, and
no wider than a column or a page, by the widths of TeX's own font.
"""

import re
import unicodedata
from functools import cache

from matplotlib import cbook
from matplotlib.ft2font import FT2Font

from desa_ray.report.escapes import LATEX_SIGNS

POINTS = {"table": 3.3 * 72.27, "table*": 7.0 * 72.27}
SIGNS = {spelled: sign for sign, spelled in LATEX_SIGNS.items()} | {r"$L_D$": "LD", r"$L_S$": "LS"}
LONGEST = re.compile("|".join(map(re.escape, sorted(SIGNS, key=len, reverse=True))))


@cache
def _font() -> FT2Font:
    font = FT2Font(str(cbook._get_data_path("fonts/ttf/cmr10.ttf")))
    font.set_size(1000, 72)
    return font


@cache
def _advance(sign: str) -> float:
    """Points at 8 pt: cmr8 is 1.0625 times as wide as a cmr10 of that size."""
    near = {"−": "+", "↑": "0", "↓": "0", "–": "0", "κ": "w", "×": "+", "°": "0", "±": "+"}
    sign = near.get(sign, unicodedata.normalize("NFKD", sign)[0])
    return _font().load_char(ord(sign)).linearHoriAdvance / 65536 * 8 * 1.0625 / 1000


def points(cell: str) -> float:
    """The width of a cell as TeX sets it."""
    if cell.startswith(r"\shortstack"):
        lines = cell.partition("{")[2].removesuffix("}").split(r"\\ ")
        return max(map(points, lines))
    bold = 1.15 if r"\textbf{" in cell else 1.0
    text = re.sub(r"\\(textbf|underline)\{(.*)\}$", r"\2", cell)
    text = LONGEST.sub(lambda found: SIGNS[found[0]], text).replace("{}", "").replace("$", "")
    return bold * sum(map(_advance, text))


def check(text: str) -> list[str]:
    """The environments of floats in order, after all has been checked."""
    _balanced(text)
    found = []
    for name, body in re.findall(r"\\begin\{(table\*?)\}(.*?)\\end\{\1\}", text, re.DOTALL):
        found.append(name)
        (spec, inner), *more = re.findall(
            r"\\begin\{tabular\}\{@\{\}(.*?)@\{\}\}\n(.*?)\n\\end\{tabular\}", body, re.DOTALL
        )
        assert not more
        assert inner.startswith("\\toprule\n")
        assert inner.endswith("\n\\bottomrule")
        assert inner.count("\n\\midrule\n") >= 1
        _fits(spec, inner, POINTS[name])
        assert re.search(r"\\caption\{.+\}\n\\label\{tab:[\w-]+\}", body)
    return found


def _balanced(text: str) -> None:
    plain = re.sub(r"\\[\\{}%&#$_]", "", text)
    assert plain.count("{") == plain.count("}")
    open_ones: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{([^}]*)\}", text):
        if kind == "begin":
            open_ones.append(name)
        else:
            assert open_ones.pop() == name
    assert not open_ones


def _fits(spec: str, inner: str, room: float) -> None:
    columns = re.findall(r"p\{([\d.]+)pt\}|([lr])", re.sub(r">\{.*?\}(?=p)", "", spec))
    widths = [float(fixed) if fixed else 0.0 for fixed, _ in columns]
    groups = []
    rows = [line for line in inner.splitlines() if not re.match(r"\\[a-z]+(\(|$)", line)]
    assert len(rows) > 1
    for row in rows:
        assert row.endswith(r" \\")
        at = 0
        for cell in re.split(r"(?<!\\)&", row.removesuffix(r" \\")):
            own = cell.strip()
            spans = re.fullmatch(r"\\multicolumn\{(\d+)\}\{c\}\{(.*)\}", own)
            if spans:
                groups.append((at, int(spans[1]), points(spans[2])))
            elif not columns[at][0]:
                widths[at] = max(widths[at], points(own))
            at += int(spans[1]) if spans else 1
        assert at == len(columns), row
    for at, count, wide in groups:
        lacking = wide - sum(widths[at : at + count]) - 6 * (count - 1)
        widths[at + count - 1] += max(lacking, 0.0)
    assert sum(widths) + 6 * (len(columns) - 1) <= room, (spec, inner[:300])
