"""CITATION.cff names the paper that README and the method page name; pages keep to the word list of
docs/style.md.
"""

import ast
import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from desa_ray.config import RunConfig
from desa_ray.config_check import leaves
from desa_ray.jobs import VERBS, compare, depth, fuse
from desa_ray.jobs.cli.flags import accepted
from desa_ray.jobs.cli.report_config import ReportConfig
from desa_ray.jobs.report import plainly_named
from desa_ray.jobs.submit import SubmitConfig
from tests.conftest import REPOSITORY
from tests.reference import REFERENCE

CITATION = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
STYLE = (REPOSITORY / "docs" / "style.md").read_text(encoding="utf-8")
KINDS = re.findall(r"^\| \| (.+) \|\n\|---\|---\|\n((?:\|.*\|\n)+)", STYLE, re.MULTILINE)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_citation_file_has_what_its_format_asks_for():
    """The required fields of CFF 1.2.0, for the software and for the paper."""
    assert CITATION["cff-version"] == "1.2.0"
    for entry in (CITATION, CITATION["preferred-citation"], *CITATION["references"]):
        assert entry["title"]
        assert entry["type"] in {"software", "article"}
        assert all(
            "name" in author or {"family-names", "given-names"} <= author.keys()
            for author in entry["authors"]
        )
    assert CITATION["message"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (CITATION["version"], CITATION["license"]) == (project["version"], project["license"])


@pytest.mark.parametrize("page", ["README.md", "docs/method.md"])
def test_pages_name_the_paper(page):
    text = flat((REPOSITORY / page).read_text(encoding="utf-8"))
    paper = CITATION["preferred-citation"]
    (author,) = paper["authors"]
    assert paper["title"] in text
    assert f"{author['given-names']} {author['family-names']}" in text


def test_the_citation_is_the_papers_own():
    source = (REFERENCE / "paper.tex").read_text(encoding="utf-8")
    paper = CITATION["preferred-citation"]
    (author,) = paper["authors"]
    assert f"\\title{{{paper['title']}}}" in source
    assert f"{author['given-names']} {author['family-names']}" in source
    assert all(
        part in flat(source).replace(" \\\\", ",") for part in author["affiliation"].split(", ")
    )


def test_every_kind_of_wording_has_good_and_bad_examples():
    assert len(KINDS) >= 8
    for kind, rows in KINDS:
        marks = [row.split("|")[1].strip() for row in rows.splitlines()]
        assert marks == ["good", "good", "bad", "bad"], kind


def test_good_messages_have_the_three_parts():
    """`where: what (hint)`, as a `DesaError` prints."""
    (rows,) = [rows for kind, rows in KINDS if kind == "whole message"]
    good = re.findall(r"^\| good \| `(.+)` \|$", rows, re.MULTILINE)
    assert len(good) == 2
    assert all(re.fullmatch(r"[\w./ ]+: [^()]*\d?[^()]* \(.+\)", message) for message in good)


def test_the_pages_keep_to_the_word_list():
    """Phrases that the list replaces, looked for in every page but the one that lists them."""
    rows = STYLE.split("## Word list", 1)[1].split("In code:", 1)[0]
    replaced = {
        phrase
        for row in re.findall(r"^\| (.+?) \|", rows, re.MULTILINE)[2:]
        for phrase in row.split(", ")
    }
    phrases = [phrase for phrase in replaced if " " in phrase]
    assert len(phrases) > 8
    pages = [
        page
        for page in (REPOSITORY / "docs").rglob("*.md")
        if page.name not in ("style.md", "modules.md")
    ]
    assert pages
    found = [
        f"{page.name}: {p}"
        for page in pages
        for p in phrases
        if p in flat(page.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_readme_fits_on_a_few_screens():
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / "infra").rglob("*.md"),
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [
        target
        for target in targets
        if target and "://" not in target and not target.startswith("mailto:")
    ]
    assert [target for target in local if not (page.parent / target).exists()] == []


def _anchors(page: Path) -> set[str]:
    """The addresses of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_into_pages_lead_to_headings(page):
    links = re.findall(r"\]\(([\w./-]*\.md)?#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    wrong = [
        f"{target}#{anchor}"
        for target, anchor in links
        if anchor not in _anchors(page.parent / target if target else page)
    ]
    assert wrong == []


def _functions(text: str) -> dict[str, str]:
    """The code of a module's functions and methods, by their names; docstrings left out."""
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = _code(node)
        elif isinstance(node, ast.ClassDef):
            own = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            found |= {f"{node.name}.{part.name}": _code(part) for part in own}
    return found


def _code(function: ast.FunctionDef) -> str:
    documented = ast.get_docstring(function) is not None
    return "\n".join(map(ast.unparse, function.body[1:] if documented else function.body))


def _naming(text: str, setting: str) -> set[str]:
    """The functions whose code names a setting, or a constant of the module that does."""
    constants = [
        target.id
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and setting in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    words = re.compile(rf"{setting}|\b({'|'.join(constants) or setting})\b")
    return {name for name, code in _functions(text).items() if words.search(code)}


NOT_GIVEN = {"desa_ray/experiment/records.py:records_schema"}  # names a column, has no value
MOST_STOPS = 44  # half of what was counted first


def test_the_page_follows_a_setting():
    """Each listed function exists, and code of the listed files calls it or passes it on; Hydra
    calls the launcher. Whatever names the setting where cells are composed, made, written and
    logged is listed, and the page says how many functions those are.
    """
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## The path of a setting")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]*\| `(\S+\.py)` \| (.+) \|$", section, re.MULTILINE)
    texts = {file: (REPOSITORY / file).read_text(encoding="utf-8") for file, _ in rows}
    way: set[str] = set()
    for file, names in rows:
        own = re.findall(r"`(\S+?)`", names)
        assert set(own) <= set(_functions(texts[file])), file
        way |= {f"{file}:{name}" for name in own}
    assert f"visits {len(way)} functions" in section
    assert len(way) <= MOST_STOPS
    called = "".join(re.sub(r"\bdef \w+", "", text) for text in texts.values())
    for name in {one.partition(":")[2].rpartition(".")[2] for one in way} - {"launch", "__init__"}:
        assert re.search(rf"\b{name}\b", called), name
    rooms = [REPOSITORY / "desa_ray" / name for name in ("experiment", "tracking")]
    files = {path.relative_to(REPOSITORY).as_posix() for room in rooms for path in room.glob("*")}
    named = {
        f"{file}:{name}"
        for file in {own for own in files if own.endswith(".py")} | texts.keys()
        if not file.startswith(("desa_ray/core/", "desa_ray/stages/"))
        for name in _naming((REPOSITORY / file).read_text(encoding="utf-8"), "kappa")
    }
    assert named - way == NOT_GIVEN


PARSERS = {"compare": compare._parser, "depth": depth._parser, "fuse": fuse._parser}
FURTHER = {
    "run": ("objective", "trials"),
    "plan": ("view", "detail", "explain"),
    "generate": ("prompts", "export"),
    "verify": (),
    "report": (),
    "submit": tuple(f"submit.{own.name}" for own in fields(SubmitConfig)),
}
OWN = {"mine", "eight", "half_sparse"}  # files that the pages themselves show


def _commands() -> list[str]:
    """The `desa` commands of the pages: lines of blocks, and what the text sets."""
    found: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL)
        found += [line for block in blocks for line in block.splitlines()]
        found += re.findall(r"`(desa \w+ [^`]+=[^`]+)`", text)
    commands = {" ".join(line.split()) for line in found if re.match(r"(\.venv/bin/)?desa ", line)}
    return sorted(line for line in commands if not re.search(r"\.\.\.|\bKEY=|VERB", line))


def _wrong(verb: str, override: str, known: list[str]) -> bool:
    """Whether an override sets no setting of the verb, or names a choice that does not exist."""
    name, _, value = override.lstrip("+~").partition("=")
    group = REPOSITORY / "conf" / name
    if group.is_dir() and (verb != "report" or name in ("compare", "parity")):
        names = {path.stem for path in group.glob("*.yaml")} | OWN
        return not all(choice in names or choice.isupper() for choice in value.split(","))
    return not any(name == key or name.startswith(f"{key}.") for key in known)


def test_commands_in_pages_name_what_exists():
    """Verbs, flags, settings and choices of every command that a page shows."""
    schema = {"report": leaves(ReportConfig)}
    settings = [*leaves(RunConfig), "hydra"]
    commands = _commands()
    assert len(commands) > 60
    wrong: list[str] = []
    for command in commands:
        _, verb, *arguments = shlex.split(command, comments=True)
        assert verb in VERBS, command
        if verb in PARSERS:
            PARSERS[verb]().parse_args(arguments)
        elif verb in FURTHER:
            known = schema.get(verb, [*settings, *FURTHER[verb]])
            given = plainly_named(accepted(verb, verb, arguments).overrides)
            wrong += [f"{command}: {text}" for text in given if _wrong(verb, text, known)]
    assert wrong == []
