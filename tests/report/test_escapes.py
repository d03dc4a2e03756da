"""Hostile names in each format that is written: whoever reads the file finds the text, and nothing
that acts.

Each format is read by a parser of that language (Python's csv, markdown-it, HTMLParser, expat), or,
for LaTeX, by its rules of special characters.
"""

import csv
import re
import shlex
from html.parser import HTMLParser
from xml.etree import ElementTree

import polars as pl
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from markdown_it import MarkdownIt
from omegaconf import OmegaConf

from desa_ray.printable import printable
from desa_ray.report.escapes import LATEX_SIGNS, html, latex, markdown, override
from desa_ray.report.figures import Figure
from desa_ray.report.latex import latex_table
from desa_ray.report.page import page
from desa_ray.report.render import markdown_table
from desa_ray.report.spreadsheet import write_csv
from desa_ray.report.svg import Svg
from desa_ray.report.table import Column, Row, Table
from tests.hostile import STRINGS

TEXTS = {
    **STRINGS,
    "code fence": "```sh",
    "heading": "# a",
    "list": "1. a",
    "setext": "===",
    "entity": "&lt;b&gt; &#x41;",
    "bare address": "www.example.com https://example.com a@example.com",
    "reference": "[a]: http://example.com",
    "autolink": "<http://example.com>",
    "dollars": "$x$ and $$y$$",
    "LaTeX comment": "a%b",
    "LaTeX primitive": r"\csname input\endcsname ^^5cinput",
    "LaTeX ligatures": "`` '' -- --- ?` !` <<",
    "LaTeX star": "*[1in] (a)",
    "CDATA": "]]><![CDATA[x",
    "style end": "</style></script><svg onload=alert(1)>",
    "comment": "<!-- x --> --!>",
    "plus formula": "+1+cmd|' /C calc'!A0",
    "minus formula": "-1-1",
    "formula after blanks": "  =1+1",
    "full-width formula": "＝1+1",
    "quote and formula": '","=1+1',
    "semicolon": ";=1+1",
}
hostile = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
ENCODABLE = {name: text for name, text in TEXTS.items() if "\ud800" not in text}


def made_table(text: str) -> Table:
    columns = (Column("name", f"{text}H"), Column("value", text, "{:.1f}", "high"))
    rows = [Row({"name": cell, "value": 1.0}) for cell in (text, f"{text}R", f"x {text}")]
    return Table("table", text, columns, rows, [text])


# CSV


def formula(cell: str) -> bool:
    """Whether a spreadsheet would run it; numbers are none."""
    if re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", cell):
        return False
    return cell.lstrip(" \t\r\n\x0b\x0c\xa0").startswith(tuple("=+-@＝＋－＠")) or cell.startswith(
        ("\t", "\r", "\n")
    )


@pytest.mark.parametrize("text", ENCODABLE.values(), ids=ENCODABLE)
def test_csv_cells_and_headings_are_text(text, tmp_path):
    """A cell is the text or an apostrophe and the text; equal in String, Categorical and Enum."""
    texts = [text, "plain", "-1.5"]
    frame = pl.DataFrame(
        {
            text: texts,
            "categorical": pl.Series(texts, dtype=pl.Categorical),
            "enum": pl.Series(texts, dtype=pl.Enum(texts)),
            "number": [-1.5, 2.0, None],
        }
    )
    write_csv(frame, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        (heading, *_), first, second, third = csv.reader(file)
    assert heading in (text, f"'{text}")
    assert first[0] in (text, f"'{text}")
    assert first[:3] == [first[0]] * 3
    assert not any(map(formula, [heading, *first, *second, *third]))
    assert second == ["plain", "plain", "plain", "2.0"]
    assert third == ["-1.5", "-1.5", "-1.5", ""]
    assert float(first[3]) == -1.5


def test_csv_headings_stay_different(tmp_path):
    names = ["=a", "'=a", "''=a", "a", "+b", "@c"]
    write_csv(pl.DataFrame([[1, 2, 3, 4, 5, 6]], schema=names, orient="row"), tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        headings, values = csv.reader(file)
    assert headings == ["'''=a", "'=a", "''=a", "a", "'+b", "'@c"]
    assert values == ["1", "2", "3", "4", "5", "6"]


# Markdown

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PLAIN_TOKENS = {
    *("heading", "table", "thead", "tbody", "tr", "th", "td", "bullet_list", "list_item"),
    *("paragraph", "inline", "text", "em", "strong", "text_special"),
}


def markdown_texts(written: str) -> list[str]:
    """The text of every inline piece; fails on any other token than a table's."""
    found = []
    for token in PARSER.parse(written):
        assert re.sub("_(open|close)$", "", token.type) in PLAIN_TOKENS, token
        for child in token.children or ():
            assert re.sub("_(open|close)$", "", child.type) in PLAIN_TOKENS, child
        if token.type == "inline":
            found.append("".join(child.content for child in token.children or ()))
    return found


@hostile
def test_markdown_shows_the_text(text):
    shown = printable(text).strip()
    title, first, second, *cells, note = markdown_texts(markdown_table(made_table(text)))
    assert (title, first, second, note) == (shown, f"{printable(text)}H".strip(), shown, shown)
    assert cells[::2] == [shown, f"{printable(text)}R".strip(), f"x {printable(text)}".strip()]


@hostile
def test_markdown_of_github_has_no_address_or_mathematics(text):
    """What GitHub adds to CommonMark: addresses become links by themselves, dollars mathematics."""
    written = markdown(text)
    assert not re.search(r"(?i)(https?|ftp|mailto|xmpp):", written)
    assert not re.search(r"(?i)\bwww\.", written)
    assert not re.search(r"(?<!\\)\$", written)


# LaTeX

COMMANDS = {
    *("begin", "end", "centering", "footnotesize", "toprule", "midrule", "bottomrule", "caption"),
    *("label", "textbf", "underline", "textbackslash", "textasciitilde", "textasciicircum"),
    *("symbol", "textbar", "times", "circ", "kappa", "uparrow", "shortstack", "fontsize"),
    *("selectfont", "setlength", "tabcolsep", "raggedright", "arraybackslash"),
}


@hostile
def test_latex_runs_no_command_of_the_text(text):
    written = latex_table(made_table(text))
    assert set(re.findall(r"\\([a-zA-Z]+)", written)) <= COMMANDS
    assert not set(re.findall(r"\\([^a-zA-Z])", written)) - set("&%$#_{}\\")
    lone = re.sub(r"\\[^a-zA-Z]", "", written)
    assert not set("~%#") & set(lone)
    assert lone.replace("$^\\circ$", "").count("^") == 0
    assert lone.count("{") == lone.count("}")
    assert lone.count("$") % 2 == 0
    assert not re.search(r"\\\\\s*[\[*(]", written), "read as an argument of the line's end"
    assert not re.search(r"[^\x20-\x7e\n]", written) or not text.isascii()


@hostile
def test_latex_reads_as_the_text(text):
    """Read back sign by sign as TeX would."""
    signs = {spelled: sign for sign, spelled in LATEX_SIGNS.items()}
    longest = sorted(signs, key=len, reverse=True)
    back = re.sub("|".join(map(re.escape, longest)), lambda found: signs[found[0]], latex(text))
    assert re.sub("([-',]){}(?=\\1)", r"\1", back) == printable(text)


def test_latex_joins_no_signs_of_the_text():
    """Two hyphens of a name are no dash, two apostrophes no quote."""
    assert latex("a--b---c ''d'' ,,e") == "a-{}-b-{}-{}-c '{}'d'{}' ,{},e"
    assert latex("1–2") == "1--2"


# HTML and SVG


class _Read(HTMLParser):
    """The texts and the elements with their attributes."""

    def __init__(self):
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.odd: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        self.odd.append(data)

    def unknown_decl(self, data):
        self.odd.append(data)

    def handle_pi(self, data):
        self.odd.append(data)


def drawing(text: str) -> Svg:
    svg = Svg(100, 50, text)
    svg.rect(1, 1, 5, 5, "bar", text)
    svg.text(1, 1, text)
    return svg


def whole_page(text: str) -> str:
    table = made_table(text)
    figure = Figure("figure", text, text, drawing(text))
    return page(text, {text: text}, [text], [(table, table)], [figure], table)


@hostile
def test_html_has_the_elements_of_a_harmless_name_and_the_text(text):
    read, harmless = _Read(), _Read()
    read.feed(whole_page(text))
    harmless.feed(whole_page("name"))
    assert read.tags == harmless.tags
    assert read.odd == harmless.odd == []
    assert read.texts.count(printable(text)) == harmless.texts.count("name") > 5


@hostile
def test_html_ends_no_attribute(text):
    read = _Read()
    read.feed(f'<p title="{html(text)}"></p>')
    assert read.tags == [("p", ("title",))]


@hostile
def test_svg_is_well_formed_and_holds_the_text(text):
    root = ElementTree.fromstring(drawing(text).render(standalone=True))
    assert root.get("aria-label") == printable(text)
    tags = [node.tag.rpartition("}")[2] for node in root.iter()]
    assert tags == ["svg", "style", "rect", "rect", "title", "text"]
    title, shown = (node.text for node in list(root.iter())[-2:])
    assert title == shown == printable(text)


SIGNS = ("x; touch owned", "$(touch owned)", "007", "1_0", "1e5", "true", "NaN", "it's", 'a"b', "")
SIGNS += ("a\\", '\\"', "\\${x}", "${oc.env:HOME}", "-x", " a ", "a,b", "[x]", "é", "12", "q-1")


@pytest.mark.parametrize(
    "value", [*(text for text in STRINGS.values() if "\ud800" not in text), *SIGNS]
)
def test_overrides_that_people_copy_are_the_text_itself(value):
    """For a shell one word, which Hydra reads as that text."""
    parser = OverridesParser.create()
    for given in (value, [value, "other"]):
        (word,) = shlex.split(override("query", given))
        config = OmegaConf.create({"query": parser.parse_override(word).value()})
        found = OmegaConf.to_container(config, resolve=True)["query"]
        assert ([*map(str, found)] if isinstance(given, list) else str(found)) == given
    assert override("query", "q1") == "query=q1"
