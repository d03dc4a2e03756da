"""Figures for print: equal files whenever they are drawn, the right size, readable by anybody."""

import itertools
import os
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from PIL import Image

from desa_ray.report.drawings import Boxes, Changes, Curve, Curves, HeatMaps, Points, marked
from desa_ray.report.painters import COLOURS
from desa_ray.report.printing import drawn, styled, write_figures

ENDS = [(0.1, 0.3), (0.2, 0.4), (0.3, 0.5)]
COSTS = {"DESA": (10.0, 0.6, (0.5, 0.7)), "a $x$ _b": (20.0, 0.5, (0.4, 0.6))}
DRAWINGS = {
    "curves": Curves("κ", {"gain": [Curve("DESA", [2, 60, 100], [0.2, 0.3, 0.4], ENDS)]}),
    "points": Points("nDCG@10", {"tokens": marked(COSTS)}),
    "changes": Changes("change", {"SciFact": [("q1", 0.1, 0.5), ("q2", 0.5, 0.2)]}),
    "maps": HeatMaps(("gain", "loss"), "at 50", "complete", {"nDCG": np.array([[60, 5], [5, 30]])}),
    "boxes": Boxes({"angle": {"SciFact": (0, 1, 2, 3, 4)}}),
}
HOSTILE = ("<script>x()</script>", "]]><svg onload=x>", "--> <a href='x'>", "$\\frac{1}{2}$", "_a")
HOSTILE += ("\x1b[31m\nb", "&amp;#38;", "\ud800", "漢字")
COLOUR_BLIND = (  # protanopia and deuteranopia
    "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998",
    "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.01182 0.04294 0.968881",
)
AGAIN = """
import sys
from pathlib import Path
import matplotlib
matplotlib.rcParams["lines.linewidth"] = 9
matplotlib.rcParams["font.size"] = 30
from tests.report.test_printing import DRAWINGS
from desa_ray.report.printing import write_figures
write_figures({"points": DRAWINGS["points"]}, Path(sys.argv[1]), ["svg", "pdf", "png"], 1)
assert matplotlib.rcParams["font.size"] == 30
assert "matplotlib.pyplot" not in sys.modules
"""


def test_equal_drawings_give_equal_bytes_in_any_process(tmp_path):
    """Also after a user changed matplotlib's settings, which are theirs again afterwards."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    own = {"points": DRAWINGS["points"]}
    files = write_figures(own, tmp_path / "a", ["svg", "pdf", "png"], 1)
    command = [sys.executable, "-c", AGAIN, str(tmp_path / "b")]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "TZ": "Asia/Tokyo"}
    subprocess.run(command, check=True, env=environment)
    for file in files:
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name
    pdf = (tmp_path / "a" / "points.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # TrueType, embedded: type 42
    assert b"/Type3" not in pdf
    assert b"Date" not in pdf
    svg = (tmp_path / "a" / "points.svg").read_text()
    assert "<dc:date>" not in svg
    assert "<text" not in svg


@pytest.mark.parametrize(
    ("name", "columns"), [*((name, 1) for name in DRAWINGS), ("curves", 2), ("points", 2)]
)
def test_a_figure_is_as_wide_as_its_columns(name, columns, tmp_path):
    """In print, and nothing reaches its edges."""
    inches = {1: 3.3, 2: 7.0}[columns]
    (file,) = write_figures({name: DRAWINGS[name]}, tmp_path, ["png"], columns)
    with Image.open(file) as picture:
        assert picture.width == round(300 * inches)
        rows = np.asarray(picture.convert("L"))
    assert rows[:, 0].min() == rows[:, -1].min() == 255  # nothing is cut at the sides
    assert rows[0].min() == rows[-1].min() == 255


def test_text_is_readable_and_does_not_overlap():
    with styled():
        for name, drawing in DRAWINGS.items():
            figure = drawn(drawing, 1)
            figure.draw_without_rendering()
            for axes in figure.axes:
                labels = [tick for tick in axes.get_xticklabels() if tick.get_text()]
                boxes = sorted((own.get_window_extent() for own in labels), key=lambda b: b.x0)
                gaps = [after.x0 - before.x1 for before, after in itertools.pairwise(boxes)]
                assert all(gap > 0 for gap in gaps), name
                assert all(own.get_fontsize() >= 6 for own in labels)


def test_colours_differ_for_colour_blind_readers():
    """Machado et al. (2009), deuteranopia and protanopia at full severity, in linear RGB."""
    srgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    for matrix in COLOUR_BLIND:
        seen = np.clip(linear @ np.reshape([float(v) for v in matrix.split()], (3, 3)).T, 0, 1) ** (
            1 / 2.2
        )
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2) + 9 * np.eye(len(seen))
        assert apart.min() > 0.12


def test_csv_has_what_a_figure_draws():
    frame = DRAWINGS["points"].frame()
    assert frame.rows()[0] == ("tokens", "DESA", 10.0, 0.6, 0.5, 0.7, True)
    assert DRAWINGS["changes"].frame()["change"].to_list() == pytest.approx([0.4, -0.3])
    assert DRAWINGS["curves"].frame().columns[2:5] == ["axis", "at", "value"]
    assert DRAWINGS["maps"].frame()["percent"].sum() == 100
    assert DRAWINGS["boxes"].frame().schema["median"] in (pl.Int64, pl.Float64)


def test_the_front_is_what_nothing_beats():
    """By hand: b is beaten by a, d by nothing as it is cheapest, e ties a."""
    points = {"a": (2, 5), "b": (3, 4), "c": (4, 6), "d": (1, 1), "e": (2, 5), "f": (2, 4)}
    found = marked({name: (*own, (0.0, 1.0)) for name, own in points.items()})
    assert [mark.name for mark in found if mark.front] == ["a", "c", "d", "e"]


def test_hostile_names_stay_text_in_a_figure(tmp_path):
    """No element, attribute or mathematics comes of them; control signs are spelled."""
    marks = marked({text: (n + 1.0, 0.5, (0.4, 0.6)) for n, text in enumerate(HOSTILE)})
    hostile = {"points": Points("y $x$", {"_cost \\frac": marks})}
    (svg,) = write_figures(hostile, tmp_path, ["svg"], 2)
    nodes = list(ElementTree.parse(svg).getroot().iter())
    names = {node.tag.rpartition("}")[2] for node in nodes}
    assert not names & {"script", "a", "image", "foreignObject", "text"}
    for node in nodes:
        assert not any(name.startswith("on") for name in node.attrib)
        links = (value for name, value in node.attrib.items() if name.endswith("href"))
        assert all(link.startswith("#") for link in links)
