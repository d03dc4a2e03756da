"""docs/method.md: what the code cites is there, its examples are what the code computes, its tables
are the code's.
"""

import doctest
import re
import subprocess

import pytest
import yaml

from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS
from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "method.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
HEADINGS = re.findall(r"^(#{2,3}) (.+)$", TEXT, re.MULTILINE)
SECTIONS = {found[0] for _, title in HEADINGS if (found := re.match(r"\d+(\.\d+)?", title))}
CITATION = re.compile(
    r"method\.md[\s#]*,?\s+sections?\s+(\d+(?:\.\d+)?)(?:\s+(to|and)\s+(\d+(?:\.\d+)?))?"
)


def tracked(*patterns: str) -> list[str]:
    """Files of the repository that git knows or could add, by name."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no git checkout")
    return [name for name in done.stdout.split("\n") if name and (REPOSITORY / name).is_file()]


def cited(text: str) -> list[str]:
    """Section numbers that a text cites; a range counts whole."""
    found: list[str] = []
    for first, joint, last in CITATION.findall(text):
        found.append(first)
        if joint == "to":
            found += [str(number) for number in range(int(first) + 1, int(last) + 1)]
        elif joint:
            found.append(last)
    return found


def test_citations_are_read_in_every_form():
    text = (
        "method.md section 6, method.md\n  section 5's, (method.md sections 2 to 4), method.md"
        " sections 3 and 11, 6.8"
    )
    assert cited(text) == ["6", "5", "2", "3", "4", "3", "11"]
    assert cited("see method.md section 6.8 there") == ["6.8"]


def test_every_cited_section_exists():
    """At least as many citations as when the page replaced the draft that the code cited before."""
    count, missing = 0, []
    for name in tracked("*.py", "*.yaml", "*.md"):
        for section in cited((REPOSITORY / name).read_text(encoding="utf-8")):
            count += 1
            if section not in SECTIONS:
                missing.append(f"{name}: section {section}")
    assert missing == []
    assert count >= 48


def test_the_code_cites_no_draft():
    lost = re.compile(r"\bSPEC(?:\.md)? (?:sections? )?\d")
    names = tracked("*.py", "*.yaml", "*.md", "*.sh", "Makefile")
    assert [
        name for name in names if lost.search((REPOSITORY / name).read_text(encoding="utf-8"))
    ] == []


def test_sections_one_to_twelve_keep_their_numbers():
    titles = {
        title.split()[0]: title for level, title in HEADINGS if level == "##" and title[0].isdigit()
    }
    named = {
        "1": "Collections",
        "3": "Dense",
        "4": "Sparse",
        "6": "Fusion",
        "9": "Mechanism",
        "10": "Statistics",
    }
    assert list(titles) == [str(number) for number in range(1, len(titles) + 1)]
    assert all(word in titles[number] for number, word in named.items())
    assert (
        next(title for _, title in HEADINGS if title.startswith("6.")) == "6.1 Certification depth"
    )


def test_links_and_code_paths_lead_somewhere():
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for _, title in HEADINGS}
    links = re.findall(r"\]\(#([^)]+)\)", TEXT)
    assert links
    assert set(links) <= slugs
    paths = re.findall(r"`((?:desa_ray|conf|tests)/[\w./]+)`", TEXT)
    assert len(paths) > 30
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


def test_examples_print_what_the_page_says():
    blocks = [body for language, body in FENCED.findall(TEXT) if language == "python"]
    assert len(blocks) >= 12
    found = doctest.DocTestParser().get_doctest("\n\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    assert len(found.examples) > 40
    told: list[str] = []
    result = doctest.DocTestRunner().run(found, out=told.append)
    assert result.failed == 0, "".join(told)


def test_mathematics_survives_markdown():
    """Markdown eats a backslash before punctuation and ends a table cell at a bar; displays stand
    in math fences.
    """
    prose = FENCED.sub("", TEXT)
    assert [line for line in prose.split("\n") if line.count("$") % 2] == []
    for span in re.findall(r"\$([^$]+)\$", prose):
        assert not re.search(r"\\[^A-Za-z]", span), span
        assert span.count("{") == span.count("}"), span
    for rows in re.findall(r"(?:^\|.*\|\n)+", prose, re.MULTILINE):
        assert len({row.count("|") for row in rows.splitlines()}) == 1, rows
    for language, body in FENCED.findall(TEXT):
        if language == "math":
            assert body.count("{") == body.count("}"), body
            assert body.count(r"\left") == body.count(r"\right"), body


def table(heading: str) -> list[list[str]]:
    """Cells of the first table below a heading, without its head."""
    below = TEXT.split(f"\n{heading}\n", 1)[1]
    rows = re.findall(r"^\|(.*)\|$", below.split("\n#", 1)[0], re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def test_the_table_of_methods_is_what_the_files_say():
    written = {}
    for path in sorted((REPOSITORY / "conf" / "method").glob("*.yaml")):
        method = yaml.safe_load(path.read_text(encoding="utf-8"))
        channels = method["channels"]
        prompts = [method.get("prompt"), *(channel.get("prompt") for channel in channels)]
        weights = (
            "confidence"
            if method.get("weighting") == "confidence"
            else str(channels[0].get("weight", 1))
        )
        fusions = {"exp4fuse": ", Exp4Fuse's fusion", "score": ", score fusion"}
        weights += fusions.get(method.get("fusion"), "")
        weights += f", on prefixes of {method['prefix']:,}" if method.get("prefix") else ""
        written[method["name"]] = [
            *(
                ", ".join(c["operator"] for c in channels if c["kind"] == kind)
                for kind in ("dense", "sparse")
            ),
            weights,
            ", ".join(prompt for prompt in prompts if prompt),
        ]
    assert {name: cells for name, *cells in table("## 5 Methods")} == written


def test_the_tables_of_operators_name_all_of_them():
    dense, sparse = (
        {
            name
            for row in table(heading)
            for name in row[0].replace("*", "").split(" (")[0].split(", ")
        }
        for heading in ("### 3.2 Operators", "### 4.2 Operators")
    )
    assert dense == DENSE_OPERATORS.keys() - {"residual"}  # which has the equations above the table
    assert sparse == SPARSE_OPERATORS.keys()
