"""Executes the cells of a notebook in order, as Jupyter does, without Jupyter.

`python -m tests.notebooks docs/tutorial.ipynb` renews the stored outputs in place; it computes the
built-in demo, in `$DESA_HOME`.
"""

import ast
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any


def execute(path: Path, replace: Mapping[str, str] | None = None) -> tuple[dict, dict[str, Any]]:
    """The notebook with its outputs, and the variables that it leaves.

    Args:
        replace: a text of the notebook's code -> what is executed instead.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    seen: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        source = "".join(cell["source"])
        for text, instead in (replace or {}).items():
            source = source.replace(text, instead)
        shown = run_cell(source, f"cell {number}", seen)
        output = {"data": {"text/plain": shown.splitlines(keepends=True)}, "metadata": {}}
        output |= {"output_type": "execute_result", "execution_count": number}
        cell["execution_count"], cell["outputs"] = number, [output] if shown else []
    return notebook, seen


def run_cell(source: str, name: str, seen: dict[str, Any]) -> str:
    """Execute one cell; returns what it prints, and its last expression if that is not None."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(StringIO()) as printed:
        exec(compile(tree, name, "exec"), seen)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), seen)
    return printed.getvalue() + ("" if value is None else f"{value!r}\n")


if __name__ == "__main__":
    page = Path(sys.argv[1])
    text = json.dumps(execute(page)[0], indent=1, ensure_ascii=False) + "\n"
    page.write_text(text, encoding="utf-8")
