"""The built-in demo is a judged collection made from whatever standard library runs, with texts in
Prompt 1's form.
"""

import json
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from desa_ray.config import DatasetConfig
from desa_ray.core.references import check_items, check_texts
from desa_ray.data import demo, load_collection
from desa_ray.data.raw import RawCollection
from desa_ray.engines.prompts import load_prompt
from desa_ray.errors import DesaError

CPU_SECONDS = 8.0  # 2 measured
PER_ROW = {"hyde": 8, "query2doc": 1, "mugi": 5, "lexical_rewrite": 1, "semantic_rewrite": 1}


@pytest.fixture(scope="module")
def raw() -> RawCollection:
    return demo.load()


def rows(prompt: str) -> list[dict]:
    path = demo.generations_folder() / f"{prompt}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def written(folder: Path, **modules: str) -> list[tuple[str, Path]]:
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return [(name, folder / f"{name}.py") for name in modules]


def doc(text: str) -> str:
    return f'"""{text}: one two three four five six seven."""'


def test_documents_are_many_distinct_public_and_in_utf8_order(raw):
    ids = [identifier for identifier, _, _ in raw.documents]
    texts = [text for _, _, text in raw.documents]
    assert len(ids) >= 2_000
    assert ids == sorted(set(ids))
    assert len(set(texts)) == len(texts)
    assert all(len(text.split()) >= 8 and "\n" not in text for text in texts)
    assert not any(part.startswith("_") for identifier in ids for part in identifier.split("."))
    assert not {"test", "idlelib", "tkinter", "turtle", "site-packages"} & {
        name.partition(".")[0] for name in ids
    }
    assert {"shutil.copytree", "json", "queue.Queue.put", "asyncio.tasks.wait_for"} <= set(ids)
    assert raw.counts["source_files_unreadable"] == 0


def test_two_loads_are_equal_and_quick(raw):
    start = time.process_time()
    assert demo.load() == raw
    assert time.process_time() - start < CPU_SECONDS


def test_every_need_has_graded_judgments_of_documents(raw):
    """Every need has graded judgments of documents that are there."""
    ids = {identifier for identifier, _, _ in raw.documents}
    needs = [need for need, _ in raw.queries]
    relevant = Counter(need for need, _, grade in raw.qrels if grade > 0)
    answers = {need for need, _, grade in raw.qrels if grade == 2}
    assert len(needs) == len(set(needs)) >= 24
    assert set(relevant) == answers == set(needs)
    assert max(relevant.values()) <= 15
    assert {document for _, document, _ in raw.qrels} <= ids
    assert {grade for _, _, grade in raw.qrels} == {0, 1, 2}
    assert len({(need, document) for need, document, _ in raw.qrels}) == len(raw.qrels)
    assert raw.counts["needs_without_relevant"] == 0
    assert raw.counts["judgments_dropped"] < 0.1 * len(raw.qrels)


def test_judgments_of_names_that_this_python_lacks_are_dropped(raw, monkeypatch):
    """Judgments of names that this python lacks are dropped and counted."""
    sources = [
        source for source in demo.stdlib_sources() if source[0] not in ("shelve", "textwrap")
    ]
    monkeypatch.setattr(demo, "stdlib_sources", lambda: sources)
    less = demo.load()
    gone = [
        judgment
        for judgment in raw.qrels
        if judgment[1].partition(".")[0] in ("shelve", "textwrap")
    ]
    assert len(gone) > 10
    assert less.qrels == [judgment for judgment in raw.qrels if judgment not in gone]
    assert less.counts["judgments_dropped"] == raw.counts["judgments_dropped"] + len(gone)
    assert less.counts["needs_without_relevant"] == 1  # breaking paragraphs into lines


def test_keep_known_keeps_order_and_counts():
    qrels = [("q", "b", 1), ("q", "x", 2), ("r", "a", 0)]
    assert demo.keep_known(qrels, {"a", "b"}) == ([("q", "b", 1), ("r", "a", 0)], 1)


def test_a_python_without_its_sources_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda name: str(tmp_path / "absent"))
    with pytest.raises(DesaError, match="only 0 documents"):
        demo.load()


def test_documents_are_docstrings_of_public_definitions_wherever(tmp_path):
    """Documents are docstrings of public definitions wherever they stand."""
    source = f"""{doc("module")}
import sys
if sys.platform == "win32":
    def here(a, /, b, *c, d=1, **e): {doc("windows")}
else:
    def here(a): {doc("posix")}
try:
    class Outer:
        {doc("outer")}
        async def method(self, x):
            {doc("method")}
            def local(): {doc("local")}
        def _hidden(self): {doc("hidden")}
        def __init__(self): {doc("dunder")}
        def short(self): "Too short to be a document."
except ImportError:
    pass
"""
    documents, counts = demo.read_documents(written(tmp_path, mod=source))
    assert [
        (identifier, title, text.partition(":")[0]) for identifier, title, text in documents
    ] == [
        ("mod", "mod", "module"),
        ("mod.Outer", "mod Outer", "outer"),
        ("mod.Outer.method", "mod Outer method(x)", "method"),
        ("mod.here", "mod here(a, b, c, d, e)", "windows"),
    ]
    assert counts == {"source_files": 1, "source_files_unreadable": 0, "duplicate_texts_dropped": 0}


def test_equal_texts_stay_once_under_the_first_name_and_odd(tmp_path):
    """Equal texts stay once under the first name and odd sources are counted."""
    same = 'def {}():\n    """The very same text\n\n    with eight words here."""\n'
    sources = written(
        tmp_path, b=same.format("f") + same.format("Z"), a="def broken(:", c="x = 1\0"
    )
    sources.append(("d", tmp_path / "absent.py"))
    surrogate = f'def g(): "one two three four five six seven {chr(92)}ud800"\n'
    documents, counts = demo.read_documents(sources + written(tmp_path, e=surrogate))
    assert [(identifier, text) for identifier, _, text in documents] == [
        ("b.Z", "The very same text with eight words here."),
        ("e.g", "one two three four five six seven ?"),
    ]
    assert counts == {"source_files": 5, "source_files_unreadable": 3, "duplicate_texts_dropped": 1}


def test_fingerprint_depends_on_contents_only_and_is_quick(monkeypatch, tmp_path):
    start = time.process_time()
    first = demo.fingerprint()
    assert time.process_time() - start < 1
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert demo.fingerprint() == first
    (source,) = written(tmp_path, shelve="x = 1\n")
    sources = demo.stdlib_sources()
    monkeypatch.setattr(demo, "stdlib_sources", lambda: [*sources, source])
    with_another = demo.fingerprint()
    source[1].write_text("x = 2\n")
    assert len({first, with_another, demo.fingerprint()}) == 3


def test_references_satisfy_prompt_1_for_every_need_and_draw(raw):
    system_prompt = load_prompt("references").system
    references = rows("references")
    assert [(row["query_id"], row["draw"]) for row in references] == [
        (need, draw) for need, _ in raw.queries for draw in range(3)
    ]
    for row in references:
        assert row["prompt"] == "references"
        verdict = check_items(row["texts"], system_prompt=system_prompt)
        assert verdict.valid, (row["query_id"], verdict.reason)
        assert all(len(text.split()) <= 25 and text == text.strip() for text in row["texts"])
    texts = [text.casefold() for row in references for text in row["texts"]]
    assert len(set(texts)) == len(texts) == 15 * len(raw.queries)  # no draw repeats another


@pytest.mark.parametrize("prompt", PER_ROW)
def test_texts_of_the_other_prompts_come_for_eight_needs(raw, prompt):
    found = rows(prompt)
    needs = sorted({row["query_id"] for row in found})
    assert len(needs) == 8
    assert set(needs) <= {need for need, _ in raw.queries}
    assert [(row["query_id"], row["draw"]) for row in found] == [
        (need, draw) for need in needs for draw in range(3)
    ]
    for row in found:
        assert row["prompt"] == prompt
        assert check_texts(row["texts"], PER_ROW[prompt]).valid
        assert len({text.casefold() for text in row["texts"]}) == len(row["texts"])
        assert all(len(text.split()) <= 120 for text in row["texts"])


def test_no_docstring_is_copied_into_the_texts(raw):
    def runs(text: str, length: int = 10) -> set[tuple[str, ...]]:
        words = re.findall(r"\w+", text.casefold())
        return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}

    documented = set().union(*(runs(text) for _, _, text in raw.documents))
    ours = [
        text for prompt in ("references", *PER_ROW) for row in rows(prompt) for text in row["texts"]
    ]
    assert [
        text for text in [*ours, *(text for _, text in raw.queries)] if runs(text) & documented
    ] == []


def test_the_demo_passes_the_validation_of_every_collection(raw, monkeypatch, tmp_path):
    # Read once already
    monkeypatch.setattr(demo, "load", lambda: replace(raw, documents=list(raw.documents)))
    collection = load_collection(DatasetConfig(name="demo", kind="demo"), data_home=tmp_path)
    assert collection.documents["id"].to_list() == [
        identifier for identifier, _, _ in raw.documents
    ]
    assert collection.queries.height == len(raw.queries)
    assert collection.qrels.height == len(raw.qrels)
    assert collection.counts["judgments_dropped"] == raw.counts["judgments_dropped"]
