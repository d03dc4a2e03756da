"""The same cells as text, Markdown, LaTeX, CSV and HTML: escapes, marks, signs, and nothing from
elsewhere.
"""

import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import polars as pl
import pytest
from rich.console import Console

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.build import build_report, write_report
from desa_ray.report.latex import latex_table
from desa_ray.report.render import markdown_table, rich_table
from desa_ray.report.study import Study
from desa_ray.report.svg import Scale, compact
from desa_ray.report.table import Column, Row, Table
from tests.report.latex_check import check
from tests.report.made_up import everything

pytestmark = pytest.mark.long

TABLE = Table(
    "odd",
    "A & B_C: 100 % <of> it",
    (
        Column("name", "name|pipe"),
        Column("up", "L_D", "{:.2f}", "high"),
        Column("down", "d_z", "{:+.1f}", "low"),
        Column("ci", "95 % CI", "{:.3f}"),
    ),
    [
        Row({"name": "a|b & [c]", "up": 1.0, "down": -2.0, "ci": (-0.5, 0.25)}),
        Row({"name": "Touché_κ", "up": 3.0, "down": -0.04, "ci": None}),
        Row({"name": "<script>", "up": 3.0, "down": None, "ci": (0.0, 1.0)}),
        Row({"name": "none", "up": float("nan"), "down": 5.0, "ci": (1, 2)}),
    ],
    ["a note of 5 %"],
)


def test_numbers_have_real_minus_signs_no_negative_zero():
    """Numbers have real minus signs no negative zero and a dash for nothing."""
    assert TABLE.shown()[0] == ["a|b & [c]", "1.00", "−2.0", "[−0.500, 0.250]"]
    assert TABLE.shown()[1] == ["Touché_κ", "3.00", "0.0", "–"]
    assert TABLE.shown()[3] == ["none", "–", "+5.0", "[1.000, 2.000]"]


def test_best_and_second_are_marked_by_value_with_ties():
    assert [row[1] for row in TABLE.marks()] == ["second", "best", "best", ""]
    assert [row[2] for row in TABLE.marks()] == ["best", "second", "", ""]
    flat = Table("t", "t", (Column("x", "x", "{}", "high"),), [Row({"x": 1}), Row({"x": 1})])
    assert flat.marks() == [[""], [""]]


def test_markdown_escapes_pipes_and_aligns_numbers_right():
    lines = markdown_table(TABLE).splitlines()
    assert lines[2] == "| name\\|pipe | L_D | d_z | 95 % CI |"
    assert lines[3] == "| :-- | --: | --: | --: |"
    assert lines[4] == "| a\\|b & [c] | _1.00_ | **−2.0** | [−0.500, 0.250] |"
    assert lines[-1] == "- a note of 5 %"


def test_latex_is_balanced_escaped_and_uses_booktabs():
    text = latex_table(TABLE)
    assert r"A \& B\_C: 100 \% $<$of$>$ it" in text
    assert r"$L_D$" in text
    assert r"\textbf{$-$2.0}" in text
    assert r"Touché\_$\kappa$" in text
    assert text.count(r"\begin") == text.count(r"\end") == 2
    rules = re.findall(r"\\(toprule|midrule|bottomrule)", text)
    assert rules == ["toprule", "midrule", "bottomrule"]
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert all(len(re.findall(r"(?<!\\)&", line)) == 3 and line.endswith(r"\\") for line in body)


def test_terminal_tables_show_brackets_that_are_no_markup():
    stream = io.StringIO()
    Console(file=stream, width=120).print(rich_table(TABLE))
    assert "a|b & [c]" in stream.getvalue()
    assert "[−0.500, 0.250]" in stream.getvalue()


def test_frames_keep_unrounded_numbers_and_split_intervals(tmp_path):
    frame = TABLE.frame()
    assert frame.columns == ["name", "up", "down", "ci_low", "ci_high"]
    assert frame["down"].to_list() == [-2.0, -0.04, None, 5.0]
    assert frame["ci_low"].to_list() == [-0.5, None, 0.0, 1.0]
    frame.write_csv(tmp_path / "t.csv")
    assert pl.read_csv(tmp_path / "t.csv")["ci_high"].to_list() == [0.25, None, 1.0, 2.0]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    report = build_report(Study(everything()), Sampling(200))
    return report, folder, write_report(report, folder, ["svg"])


class _Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.targets += [
            value
            for name, value in attrs
            if name in ("src", "href", "action", "xlink:href") and value
        ]
        self.ids += [value for name, value in attrs if name == "id" and value]


def test_the_page_needs_nothing_from_elsewhere_and_its_links(written):
    """The page needs nothing from elsewhere and its links lead somewhere."""
    _, folder, _ = written
    text = (folder / "index.html").read_text(encoding="utf-8")
    links = _Links()
    links.feed(text)
    assert len(links.ids) == len(set(links.ids))
    assert {target for target in links.targets if not target.startswith("#")} == {"data:,"}
    assert {target[1:] for target in links.targets if target.startswith("#")} <= set(links.ids)
    outside = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert outside <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert "@import" not in text
    assert "url(" not in text


def test_every_table_and_figure_the_issue_asks_for_is_written(written):
    report, folder, files = written
    assert {table.name for table in report.all_tables()} == {
        *(
            "main",
            "primary_tests",
            "channel_evidence",
            "external",
            "qudar_effects",
            "qudar_weights",
        ),
        *(
            "operator_controls",
            "operator_effects",
            "ablations",
            "cutoffs",
            "transitions",
            "mechanism",
        ),
        *("mechanism_quartiles", "correlations", "robustness", "per_dataset"),
        *("mechanism_quartiles_by_dataset", "correlations_by_dataset"),
        *("cutoffs_by_method", "mechanism_by_method", "robustness_by_method", "grid"),
        *("tests_by_dataset", "depths", "depths_by_dataset", "draws", "leave_one_out"),
        "order_encoder",
    }
    assert {figure.name for figure in report.figures} == {
        *(
            "pareto",
            "depths",
            "differences_original",
            "differences_shared",
            "transitions",
            "mechanism",
            "kappa",
            "curve_n_refs",
            "corpus_size",
        ),
    }
    assert all(file.is_file() for file in files)
    for table in report.all_tables():
        csv = pl.read_csv(folder / "tables" / f"{table.name}.csv")
        assert csv.shape == pl.read_parquet(folder / "tables" / f"{table.name}.parquet").shape
        for columns in (1, 2):
            assert check(latex_table(table, report.about, columns))
        assert (folder / "tables" / f"{table.name}.tex").read_text().count(r"\toprule")
    for figure in report.figures:
        assert pl.read_csv(folder / "figures" / f"{figure.name}.csv").height
        assert (folder / "figures" / f"{figure.name}.svg").is_file()
    assert (folder / "report.tex").read_text().count(r"\input") == len(report.all_tables())


def test_figures_are_well_formed_and_carry_their_numbers(written):
    report, _, _ = written
    for figure in report.figures:
        root = ElementTree.fromstring(figure.svg.render(standalone=True))
        text = ElementTree.tostring(root, encoding="unicode")
        assert "nan" not in text
        tips = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
        assert tips, figure.name
        assert all(re.search(r"\d", tip or "") for tip in tips)
        width, height = float(root.get("width")), float(root.get("height"))
        for node in root.iter():
            for name, limit in (("x", width), ("cx", width), ("y", height), ("cy", height)):
                assert -1 <= float(node.get(name, 0)) <= limit + 1, (figure.name, node.attrib)


def test_equal_records_give_equal_files(written, tmp_path):
    _, folder, files = written
    shuffled = everything().sample(fraction=1, shuffle=True, seed=5)
    again = write_report(build_report(Study(shuffled), Sampling(200)), tmp_path, ["svg"])
    assert [f.relative_to(folder) for f in files] == [f.relative_to(tmp_path) for f in again]
    for one, two in zip(files, again, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name


def test_ticks_are_round_and_inside():
    assert Scale(0, 1, 0, 100).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert Scale(0.3, 0.31, 0, 100).ticks() == pytest.approx(
        [0.3, 0.302, 0.304, 0.306, 0.308, 0.31]
    )
    assert Scale(20, 3000, 0, 100, log=True).ticks() == [20, 50, 100, 200, 500, 1000, 2000]
    assert Scale(5, 5, 0, 100)(5) == 0
    assert [compact(v) for v in (1200000, 25000, 1000, 0.0025, -3)] == [
        "1.2M",
        "25k",
        "1000",
        "0.0025",
        "−3",
    ]
