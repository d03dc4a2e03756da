"""Code stays easy to read: no assignment inside an expression but a test, no comprehension inside
another one, no class name that means two things, no comment behind a closing bracket.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FLAT = ("desa_ray", "hydra_plugins", "jobs")


def _sources(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def nested(tree: ast.AST) -> set[int]:
    """The lines of comprehensions that lie inside another one."""
    lines: set[int] = set()
    for outer in ast.walk(tree):
        if isinstance(outer, COMPREHENSIONS):
            inner = [node for node in ast.walk(outer) if node is not outer]
            lines |= {node.lineno for node in inner if isinstance(node, COMPREHENSIONS)}
    return lines


def stray_walruses(tree: ast.AST) -> set[int]:
    """The lines of `:=` outside the test of an `if` or a `while`, or inside a comprehension."""
    tested: set[int] = set()
    enclosed: set[int] = set()
    walruses: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.NamedExpr):
            walruses[id(node)] = node.lineno
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            tested |= {id(part) for part in ast.walk(node.test)}
        elif isinstance(node, COMPREHENSIONS):
            enclosed |= {id(part) for part in ast.walk(node)}
    return {line for key, line in walruses.items() if key not in tested or key in enclosed}


def test_no_comprehension_inside_another():
    """A loop or a named list says the same in two steps."""
    found = [f"{name}:{line}" for name, tree in _sources(*FLAT) for line in sorted(nested(tree))]
    assert found == []


def test_assignment_expressions_only_in_tests():
    """`:=` stands only in the test of an `if` or a `while`."""
    found: list[str] = []
    for name, tree in _sources("desa_ray", "hydra_plugins", "jobs"):
        found += [f"{name}:{line}" for line in sorted(stray_walruses(tree))]
    assert found == []


def test_a_class_name_is_used_once():
    """Two public classes of one name would have to be told apart by their packages."""
    names: Counter[str] = Counter()
    for _, tree in _sources(*FLAT):
        names.update(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    assert names["Cell"] == 1
    assert [name for name, n in names.items() if n > 1 and not name.startswith("_")] == []


def test_no_comment_hangs_behind_a_closing_bracket():
    """It stands above what it explains: the formatter splits a line that it makes too long."""
    hanging = re.compile(r"^\s*[)\]}][^#]*  # (?!fmt:|pyright:|noqa)")
    found: list[str] = []
    for folder in (*FLAT, "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            name = path.relative_to(ROOT)
            found += [f"{name}:{number}" for number, line in lines if hanging.match(line)]
    assert found == []


@pytest.mark.parametrize(
    ("check", "code", "lines"),
    [
        (nested, "a = [x for x in y]", set()),
        (nested, "a = [\n[x for x in row] for row in y]", {2}),
        (nested, "a = {k: 1 for k in sorted(v for v in y)}", {1}),
        (stray_walruses, "if (a := f()) and a > 1: pass", set()),
        (stray_walruses, "while a := f(): pass", set()),
        (stray_walruses, "b = (a := f())", {1}),
        (stray_walruses, "if any((a := x) for x in y): pass", {1}),
    ],
)
def test_checks_find_what_they_name(check, code: str, lines: set[int]):
    """Both checks on small programs, with and without a finding."""
    assert check(ast.parse(code)) == lines
