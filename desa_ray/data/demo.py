"""The built-in demo: a collection made at run time from the docstrings of the running Python's own
standard library.

Sources are parsed with `ast`, so nothing is imported and no documentation text lies in this
repository. Needs, graded judgments and recorded texts come from `demo_data/`, written for this
project. Python versions differ in the names they document, so judgments of names that this one
lacks are dropped here, with a count.
"""

import ast
import hashlib
import json
import platform
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

from desa_ray.data.raw import RawCollection
from desa_ray.errors import DesaError

MIN_WORDS = 8
MIN_DOCUMENTS = 2_000
SKIPPED_MODULES = frozenset(
    {"idlelib", "lib2to3", "test", "tests", "tkinter", "turtle", "turtledemo"}
)

Document = tuple[str, str, str]
Judgment = tuple[str, str, int]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def load() -> RawCollection:
    """The demo's documents, needs and judgments; the same rows on every call with the same Python.

    A document's id is its qualified name, its title that name as words followed by the parameters,
    its text the docstring on one line. `counts` holds `source_files`, `source_files_unreadable`,
    `duplicate_texts_dropped`, `judgments_dropped` (their document is not there) and
    `needs_without_relevant` (left without any grade above 0).

    Raises:
        DesaError: this Python does not bring its standard library as readable source.
    """
    documents, counts = read_documents(stdlib_sources())
    if len(documents) < MIN_DOCUMENTS:
        raise DesaError(
            f"only {len(documents)} documents in this Python's standard library, {MIN_DOCUMENTS}"
            " are needed",
            where="dataset=demo",
            hint=(
                "use a Python whose standard library is installed as .py files, or another dataset"
            ),
        )
    data = _demo_data()
    lines = (data / "needs.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [(need["id"], need["text"]) for need in map(json.loads, lines)]
    lines = (data / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    judged: list[tuple[str, str, int]] = []
    for line in lines:
        query, document, grade = line.split("\t")
        judged.append((query, document, int(grade)))
    qrels, dropped = keep_known(judged, {identifier for identifier, _, _ in documents})
    answered = {query for query, _, grade in qrels if grade > 0}
    counts["judgments_dropped"] = dropped
    counts["needs_without_relevant"] = sum(query not in answered for query, _ in queries)
    return RawCollection(documents, queries, qrels, counts)


def fingerprint() -> str:
    """Hex SHA-256 of all that `load` depends on: Python version, library sources, needs, judgments,
    this module.

    Contents are hashed, never times or places. The recorded texts are left out: who reads them
    hashes them.
    """
    digest = hashlib.sha256(platform.python_version().encode())
    data = _demo_data()
    own = [
        (f"own/{path.name}", path)
        for path in (Path(__file__), *sorted(data.glob("*.jsonl")), data / "qrels.tsv")
    ]
    for name, path in own + stdlib_sources():
        try:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            content = "unreadable"
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def generations_folder() -> Path:
    """The folder with the texts recorded for the demo's needs, `<prompt>.jsonl` each."""
    return _demo_data() / "generations"


def stdlib_sources() -> list[tuple[str, Path]]:
    """(module name, source file) of every documented public module, in UTF-8 order of the names."""
    root = Path(sysconfig.get_path("stdlib"))
    return sorted(_modules(root, ())) if root.is_dir() else []


def read_documents(sources: Iterable[tuple[str, Path]]) -> tuple[list[Document], dict[str, int]]:
    """Documents of the given modules in UTF-8 order of their ids, and what was noticed on the way.

    Of several definitions under one name the first in the file counts; of several names with one
    text, the first name.
    """
    counts = {"source_files": 0, "source_files_unreadable": 0, "duplicate_texts_dropped": 0}
    found: dict[str, Document] = {}
    for module, path in sources:
        counts["source_files"] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in other people's sources
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            counts["source_files_unreadable"] += 1
            continue
        for document in _documents(tree, module):
            found.setdefault(document[0], document)
    by_text: dict[str, Document] = {}
    for identifier in sorted(found):
        by_text.setdefault(found[identifier][2], found[identifier])
    counts["duplicate_texts_dropped"] = len(found) - len(by_text)
    return list(by_text.values()), counts


def keep_known(qrels: Iterable[Judgment], known: set[str]) -> tuple[list[Judgment], int]:
    """The judgments whose document is known, in the given order, and how many were dropped."""
    qrels = list(qrels)
    kept = [judgment for judgment in qrels if judgment[1] in known]
    return kept, len(qrels) - len(kept)


def _demo_data() -> Path:
    return Path(str(resources.files("desa_ray.data"))) / "demo_data"


def _modules(folder: Path, package: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Public modules below a folder. Names that are not identifiers, site-packages among them, are
    not importable.
    """
    for path in folder.iterdir():
        name = path.stem if path.suffix == ".py" else path.name
        if name == "__init__" and package:
            yield ".".join(package), path
        elif name.isidentifier() and _public(name) and name not in SKIPPED_MODULES:
            if path.suffix == ".py":
                yield ".".join((*package, name)), path
            elif path.is_dir():
                yield from _modules(path, (*package, name))


def _documents(tree: ast.Module, module: str) -> Iterator[Document]:
    """The documents of one module: itself, its public classes, functions and methods; no local
    functions.
    """
    if text := _text(tree):
        yield module, _words(module), text
    yield from _members(tree.body, module, ())


def _members(body: Iterable[ast.stmt], module: str, path: tuple[str, ...]) -> Iterator[Document]:
    for node in _definitions(body):
        if not _public(node.name):
            continue
        names = (*path, node.name)
        if text := _text(node):
            identifier = ".".join((module, *names))
            parameters = "" if isinstance(node, ast.ClassDef) else _parameters(node)
            yield identifier, _words(identifier) + parameters, text
        if isinstance(node, ast.ClassDef):
            yield from _members(node.body, module, names)


def _definitions(nodes: Iterable[ast.AST]) -> Iterator[Definition]:
    """Definitions in source order, those under `if`, `try` and the like included, but none inside
    another.
    """
    for node in nodes:
        if isinstance(node, Definition):
            yield node
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _definitions(ast.iter_child_nodes(node))


def _text(node: ast.Module | Definition) -> str:
    """The docstring on one line, or nothing where it is shorter than `MIN_WORDS` words."""
    words = (ast.get_docstring(node) or "").encode("utf-8", "replace").decode("utf-8").split()
    return " ".join(words) if len(words) >= MIN_WORDS else ""


def _words(identifier: str) -> str:
    return identifier.replace(".", " ")


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = node.args
    named = [
        *arguments.posonlyargs,
        *arguments.args,
        arguments.vararg,
        *arguments.kwonlyargs,
        arguments.kwarg,
    ]
    return f"({', '.join(a.arg for a in named if a and a.arg not in ('self', 'cls'))})"


def _public(name: str) -> bool:
    return not name.startswith("_")
