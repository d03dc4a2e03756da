"""The page in a real browser, where there is one: it runs, sorts, shows values and never writes to
the console.
"""

import re
import shutil
import subprocess

import pytest

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.build import build_report, write_report
from desa_ray.report.study import Study
from tests.report.made_up import study_records

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium found")

# Runs after the page's own script; what it finds stands in the dumped document's title.
PROBE = """<script>(() => {
const column = (table, n) => [...table.tBodies[0].rows].map((row) => row.cells[n].textContent);
const main = document.querySelector("#main table"), heads = main.tHead.rows[0].cells;
const found = {};
found.before = column(main, 2);
heads[2].querySelector("button").click(); found.up = column(main, 2);
heads[2].querySelector("button").click(); found.down = column(main, 2);
found.sorted = heads[2].getAttribute("aria-sort");
const gain = [...heads].findIndex((head) => head.textContent.includes("gain"));
heads[gain].querySelector("button").click(); found.missing = column(main, gain);
heads[0].querySelector("button").click(); found.names = column(main, 0);
const mark = document.querySelector("svg [data-tip]");
mark.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 40, clientY: 40 }));
found.tip = document.getElementById("tip").textContent;
found.titles = document.querySelectorAll("svg title").length;
const paper = () => getComputedStyle(document.body).backgroundColor;
const theme = document.getElementById("theme");
found.themes = [paper()];
for (let i = 0; i < 3; i++) { theme.click(); found.themes.push(paper()); }
found.wide = document.documentElement.scrollWidth <= window.innerWidth;
document.title = JSON.stringify(found);
})();</script></body>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    methods = ("original", "shared", "dense_only", "sparse_only", "desa", "query2doc")
    write_report(build_report(Study(study_records(methods=methods)), Sampling(100)), folder)
    index = folder / "index.html"
    probed = folder / "probed.html"
    probed.write_text(index.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    return probed


def dumped(page, folder, size: str) -> dict:
    import html
    import json

    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    command += [
        f"--window-size={size}",
        "--enable-logging=stderr",
        "--v=0",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title
    return json.loads(html.unescape(title[1]))


@pytest.mark.parametrize("size", ["1280,900", "500,900"])
def test_the_page_works_wide_and_narrow_without_a_word(page, tmp_path, size):
    """The page works wide and narrow without a word on the console."""
    found = dumped(page, tmp_path, size)
    numbers = [float(text) for text in found["before"]]
    assert [float(text) for text in found["up"]] == sorted(numbers)
    assert [float(text) for text in found["down"]] == sorted(numbers, reverse=True)
    assert found["sorted"] == "descending"
    assert found["missing"][-1] == "–"  # Original has no gain over itself: last in any order
    assert found["names"] == sorted(found["names"], key=str.casefold)
    assert re.search(r"nDCG@10 \d", found["tip"])
    assert found["titles"] == 0
    auto, light, dark, again = found["themes"]
    assert light != dark
    assert auto == again
    assert found["wide"], "the page scrolls sideways"
