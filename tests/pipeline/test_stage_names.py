"""The machinery of stages serves every kind of stage and spells the name of none."""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "desa_ray"
ROLES = {"queries", "documents"}  # names of inputs, which rows are counted by


def names_of_stages() -> set[str]:
    """The second argument of every `Stage(...)`, and the files of stages/."""
    names: set[str] = set()
    for path in (PACKAGE / "stages").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if called and node.func.id == "Stage" and isinstance(node.args[1], ast.Constant):
                names.add(str(node.args[1].value))
    return names


def test_pipeline_spells_no_stage_name():
    """No name of a kind of stage is quoted or spelled out in pipeline/."""
    names = names_of_stages() - ROLES
    assert {"fusion", "generation", "postings", "text_vectors", "vectors"} <= names
    assert len(names) >= 12
    quoted = re.compile(rf"""["'`]({"|".join(sorted(names))})["'`]""")
    compound = re.compile(rf"\b({'|'.join(sorted(name for name in names if '_' in name))})\b")
    found: list[str] = []
    for path in sorted((PACKAGE / "pipeline").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        found += [f"{path.name}: {match[0]}" for match in quoted.finditer(text)]
        found += [f"{path.name}: {match[0]}" for match in compound.finditer(text)]
    assert found == []


def test_pipeline_spells_no_kind_of_worker():
    """The first words of the names of pools, which people read in plans, are not known there."""
    text = (PACKAGE / "experiment" / "pools.py").read_text(encoding="utf-8")
    kinds = set(re.findall(r"""["'](encoder|generator|lucene|scorer|replayer)\b""", text))
    assert len(kinds) == 5
    quoted = re.compile(rf"""["'`]({"|".join(sorted(kinds))})["'`:]""")
    found: list[str] = []
    for path in sorted((PACKAGE / "pipeline").glob("*.py")):
        found += [f"{path.name}: {match[0]}" for match in quoted.finditer(path.read_text())]
    assert found == []
