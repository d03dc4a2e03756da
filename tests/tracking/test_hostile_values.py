"""Hostile names in MLflow: every param, tag and name is plain printable text, and no note."""

import posixpath
import re

import pytest
from markdown_it import MarkdownIt
from mlflow.tracking import MlflowClient

from desa_ray.errors import DesaError
from desa_ray.printable import printable
from desa_ray.tracking.entries import PARAM_LIMIT, CellRun, cell_document
from desa_ray.tracking.entry_shapes import ENTRY
from desa_ray.tracking.reports import log_report
from desa_ray.tracking.runs import Tracker
from tests.hostile import STRINGS, odd
from tests.tracking.entries_made_up import open_log, runs_in


def hostile_cell(text: str, place: str = "param") -> CellRun:
    named = {f"{place} {number}": text for number, text in enumerate(STRINGS.values())}
    return CellRun("cell", text, named, {text: 1.0}, [], named, [], 1_000, 2_000, error=text)


@pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS)
def test_entries_hold_printable_text(text):
    document = cell_document(hostile_cell(text))
    for shown in (document["name"], *document["params"].values(), *document["tags"].values()):
        assert odd(shown, allowed="") == []
    assert document["params"]["param 0"] == printable(STRINGS["rich markup"])
    assert document["tags"]["desa.error"] == document["name"] == printable(text)
    for name in (*document["metrics"], *document["params"], *document["tags"]):
        assert name.isascii()
        assert name.isprintable()


@pytest.mark.parametrize("name", ["", ".", "..", "/x", "x/", "a//b", "../x", "a/./b", "a/../b"])
def test_names_of_entries_are_no_other_paths(name):
    """MLflow would refuse the whole entry."""
    (metric,) = cell_document(CellRun("c", "n", {}, {name: 1.0}, [], {}, [], 1, 2))["metrics"]
    assert posixpath.normpath(metric) == metric
    assert not metric.startswith(("/", "."))


def test_a_store_keeps_hostile_names_and_its_note_is_plain(uri, tmp_path):
    """Every string at once, read back from a real store."""
    log = open_log(uri, tmp_path / "home")
    log.cell(hostile_cell("cell\x1b[31m\u202e\ud800"))
    log.cell(hostile_cell("<script src='http://a//b/../c'>"))
    log.end("FINISHED", {}, [], [])
    ((run,),) = (runs_in(uri)[name] for name in runs_in(uri) if name.startswith("cell"))
    assert run.info.run_name == r"cell\x1b[31m\u202e\ud800"
    for number, text in enumerate(STRINGS.values()):
        assert run.data.params[f"param {number}"] == printable(text)
    shown = MarkdownIt("commonmark").enable("table").render(run.data.tags["mlflow.note.content"])
    assert odd(shown, allowed="\n") == []
    assert not re.findall(r"<(?:a|img|script|h\d|em|strong|li)\b", shown)


def test_a_report_of_hostile_names_is_logged_printable(uri, tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("page")
    facts = {f"fact {number}": text for number, text in enumerate(STRINGS.values())}
    facts |= {"a [b]": "x", "data sets": "long name, " * 1000}
    tracker = Tracker(uri, tmp_path / "artifacts")
    run = MlflowClient(uri).get_run(
        log_report(tracker, "report", tmp_path / "report", facts, {})[1]
    )
    assert run.data.params["a _b_"] == "x"
    assert len(run.data.params["data sets"]) == PARAM_LIMIT
    assert all(odd(value, allowed="") == [] for value in run.data.params.values())
    assert not any(name.startswith("mlflow.note") for name in run.data.tags)


def test_a_foreign_entry_sets_no_note():
    """MLflow renders `mlflow.note.content` as Markdown."""
    document = {**cell_document(hostile_cell("text")), "child": False}
    ENTRY.validate_python(document)
    document["tags"]["mlflow.note.content"] = "![x](http://elsewhere/x.png)"
    with pytest.raises(ValueError, match=r"mlflow\.note\.content"):
        ENTRY.validate_python(document)


def test_a_value_that_grows_when_spelled_out_is_measured_spelled_out():
    run = CellRun("cell", "name", {"long": "\x00" * 2000}, {}, [], {}, [], 1, 2)
    with pytest.raises(DesaError, match="8000 characters"):
        cell_document(run)
