"""The reference of Python functions in docs/api.md, made from signatures and docstrings.

`make docs` writes it; `tests/test_conf.py` says when it is out of date.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "api.md"
# Module -> its public names on the page; empty: all of them.
MODULES: dict[str, tuple[str, ...]] = {
    "desa_ray": ("fuse", "Fused"),
    "desa_ray.rules": ("fuse_rule", "RuleFused"),
    "desa_ray.certified": ("certified_search", "Certified"),
    "desa_ray.certified_channels": ("Channel", "CountingChannel", "ScoringChannel"),
    "desa_ray.engine_channels": (
        *("ListChannel", "SqliteChannel", "PagedChannel", "Page"),
        "search_after",
    ),
    "desa_ray.local_channels": (
        *("ScoredChannel", "tantivy_search", "qdrant_search", "edge_search", "QdrantList"),
    ),
    "desa_ray.notebook": ("plan", "run", "Plan", "Results", "Progress"),
    "desa_ray.report.load": ("load_records",),
    "desa_ray.errors": ("DesaError", "Problems"),
    "desa_ray.core.dense": (),
    "desa_ray.core.sparse": (),
    "desa_ray.core.fusion.depth": (),
    "desa_ray.core.fusion.rrf": (),
    "desa_ray.core.rules.registry": ("rule_of", "Rule", "ScoredList"),
    "desa_ray.core.rules.certify": ("certify", "refusal", "Certificate"),
    "desa_ray.core.evaluation": (),
}
HEAD = """# Python reference

From the docstrings; `make docs` writes this page. The first nine parts are what `import desa_ray`
offers; the parts below `desa_ray.core` are the equations of [method.md](method.md).
[python.md](python.md) shows how to use them.
"""
Definition = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """The whole page."""
    return "".join([HEAD, *map(_module, MODULES)])


def _module(name: str) -> str:
    path = REPOSITORY.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = MODULES[name]
    there = {d.name: d for d in tree.body if isinstance(d, Definition)}
    chosen = [there[own] for own in wanted] if wanted else _public(there.values())
    parts = [f"\n## {name}\n\n{_text(ast.get_docstring(tree) or '')}\n"]
    for definition in chosen:
        parts.append(_entry(definition))
        if isinstance(definition, ast.ClassDef):
            methods = [d for d in definition.body if isinstance(d, ast.FunctionDef)]
            parts += [_entry(method, f"{definition.name}.") for method in _public(methods)]
    return "".join(parts)


def _public(definitions) -> Iterator[Definition]:
    for definition in definitions:
        if not definition.name.startswith("_") and ast.get_docstring(definition):
            yield definition


def _entry(definition: Definition, owner: str = "") -> str:
    level = "####" if owner else "###"
    head = f"\n{level} {owner}{definition.name}\n\n"
    return f"{head}```text\n{_signature(definition)}\n```\n\n{_text(_doc(definition))}\n"


def _doc(definition: Definition) -> str:
    return ast.get_docstring(definition) or ""


def _signature(definition: Definition) -> str:
    """As it is written; of a class its fields."""
    if isinstance(definition, ast.ClassDef):
        fields = [ast.unparse(own) for own in definition.body if isinstance(own, ast.AnnAssign)]
        bases = f"({', '.join(map(ast.unparse, definition.bases))})" if definition.bases else ""
        return "\n    ".join([f"class {definition.name}{bases}:", *fields]).removesuffix(":")
    decorators = {ast.unparse(decorator) for decorator in definition.decorator_list}
    if decorators & {"property", "cached_property"}:
        return f"{definition.name}: {ast.unparse(definition.returns) if definition.returns else ''}"
    returned = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    return f"{definition.name}({ast.unparse(definition.args)}){returned}"


def _text(doc: str) -> str:
    """A docstring as Markdown: its sections become lists; names in backticks stay."""
    lines: list[str] = []
    section = False
    for line in re.sub(r"[*<]", r"\\\g<0>", doc).splitlines():
        if head := re.fullmatch(r"(Args|Attributes|Returns|Raises|Yields):", line.strip()):
            section = True
            lines += [f"**{head[1]}**", ""]
        elif section and line and not line.startswith(" "):
            section = False
            lines.append(line)
        elif section and re.match(r"    \S", line):
            name, colon, rest = line.strip().partition(": ")
            named = colon and re.fullmatch(r"[\w., ]+", name)
            lines.append(f"- `{name}`: {rest}" if named else f"- {line.strip()}")
        else:
            lines.append(f"  {line.strip()}" if section and line.strip() else line.rstrip())
    return "\n".join(lines).strip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
