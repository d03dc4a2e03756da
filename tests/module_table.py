"""The list of modules in docs/modules.md, made from the first sentence of each module's docstring.

`python -m tests.module_table` writes it again; `tests/test_conf.py` says when it is out of date.
"""

import ast
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TABLE = REPOSITORY / "docs" / "modules.md"
FOLDERS = ("jobs", "hydra_plugins", "desa_ray")
HEAD = """# One line about every module

The first sentence of each module's docstring. `python -m tests.module_table` writes this page.

| module | what it is |
|---|---|
"""


def first_paragraph(path: Path) -> str:
    """The first paragraph of a module's docstring, as the text of a table cell."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split()).replace("|", "\\|")


def table() -> str:
    """The whole page."""
    rows: list[str] = []
    for folder in FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if path.name != "__init__.py" or path.parent == REPOSITORY / "desa_ray":
                rows.append(f"| `{path.relative_to(REPOSITORY)}` | {first_paragraph(path)} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(), encoding="utf-8")
