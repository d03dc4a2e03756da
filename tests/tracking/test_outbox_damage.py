"""Files of an outbox that make no sense: told by name, never a traceback, and nothing else is held
up by them.
"""

import json
import os
import time
from pathlib import Path

import pytest

from desa_ray.errors import DesaError
from desa_ray.jobs.sync import main as sync
from desa_ray.tracking.last import FILE, last_uri
from desa_ray.tracking.left_behind import left_behind
from tests.tracking.entries_made_up import made_cell, open_log, runs_in

NOT_JSON = {
    "empty": b"",
    "cut": b'{"kind": "cell", ',
    "not UTF-8": b'{"kind": "\xff"}',
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "too long a number": b'{"kind": ' + b"1" * 5000 + b"}",
}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def waiting(uri, tmp_path, home) -> Path:
    """The folder of an ended sweep whose three entries were not sent."""
    log = open_log(uri, home, offline=True)
    log.cell(made_cell(tmp_path / "out", "one"))
    log.end("FINISHED", {}, [], [])
    assert sorted(path.name for path in log.outbox.folder.glob("*.json")) == [
        "00000.json",
        "00001.json",
        "00002.json",
        "target.json",
    ]
    return log.outbox.folder


WRONG = ("cell", "kind", "params", "metrics", "infinite", "time", "elsewhere", "above", "missing")


def wrong_cells(document: dict) -> dict[str, dict]:
    """The entry of a cell with one thing wrong."""
    return {
        "cell": {name: value for name, value in document.items() if name != "cell"},
        "kind": document | {"kind": "other"},
        "params": document | {"params": []},
        "metrics": document | {"metrics": {"a": "1"}},
        "infinite": document | {"metrics": {"a": float("inf")}},
        "time": document | {"ended_ms": 10**30},
        "elsewhere": document | {"artifacts": ["../../../out/one.txt"]},
        "above": document | {"artifacts": [".."]},
        "missing": document | {"artifacts": ["absent.txt"]},
    }


def see_it_set_aside(folder: Path, uri: str, capsys) -> None:
    """`desa sync` names it; the entries before and after it are sent."""
    with pytest.raises(DesaError, match="is damaged") as told:
        sync([])
    assert str(folder / "00001.refused") in str(told.value)
    assert "2 log entries sent" in capsys.readouterr().out
    assert {name: [run.info.status for run in runs] for name, runs in runs_in(uri).items()} == {
        "a sweep": ["FINISHED"]
    }
    assert next(left_behind(folder.parents[1], uri)).waiting() == []


@pytest.mark.long
@pytest.mark.parametrize("data", NOT_JSON.values(), ids=NOT_JSON)
def test_an_entry_that_is_no_document_is_set_aside(waiting, uri, capsys, data):
    (waiting / "00001.json").write_bytes(data)
    see_it_set_aside(waiting, uri, capsys)
    assert (waiting / "00001.refused").read_bytes() == data


@pytest.mark.parametrize("name", WRONG)
def test_an_entry_of_wrong_shape_is_set_aside(waiting, uri, capsys, name):
    file = waiting / "00001.json"
    file.write_text(json.dumps(wrong_cells(json.loads(file.read_text()))[name]))
    see_it_set_aside(waiting, uri, capsys)


@pytest.mark.parametrize(
    "data", [*NOT_JSON.values(), b"{}", b'{"uri": 1}'], ids=[*NOT_JSON, "no fields", "a number"]
)
def test_a_target_that_makes_no_sense_is_told_after_all_others(waiting, uri, home, capsys, data):
    damaged = waiting.with_name("damaged")
    damaged.mkdir()
    (damaged / "00000.json").write_text("{}")
    (damaged / "target.json").write_bytes(data)
    os.utime(damaged, (0, 0))  # the oldest comes first
    with pytest.raises(DesaError, match="is damaged") as told:
        sync([])
    assert told.value.where == str(damaged / "target.json")
    assert "1 log entries" in told.value.what
    assert f"move {damaged} elsewhere" in told.value.hint
    assert not waiting.exists()  # it was sent
    with pytest.raises(DesaError, match="is damaged"):  # a run says it too, before any work
        open_log(uri, home)


def test_a_folder_that_never_got_its_target_is_removed_when_old(waiting, uri, home):
    unborn = waiting.with_name("unborn")
    unborn.mkdir()
    (unborn / "lock").write_text("")
    assert [box.folder for box in left_behind(home / "outbox", uri)] == [waiting]
    assert unborn.exists()  # a run may be making it now
    os.utime(unborn, (time.time() - 2 * 86_400,) * 2)
    list(left_behind(home / "outbox", uri))
    assert not unborn.exists()


def test_an_outbox_that_goes_while_others_are_looked_at(waiting, uri, home):
    """Two runs start at once, and one sends what both have listed."""
    other = waiting.with_name("other")
    other.mkdir()
    (other / "target.json").write_bytes((waiting / "target.json").read_bytes())
    boxes = left_behind(home / "outbox", uri)
    first = next(boxes)
    gone = other if first.folder == waiting else waiting
    for path in gone.rglob("*"):
        if path.is_file():
            path.unlink()
    for path in gone.iterdir():
        path.rmdir()
    gone.rmdir()
    assert list(boxes) == []
    assert not gone.exists()


@pytest.mark.parametrize(
    "data",
    [*NOT_JSON.values(), b"{}", b'{"uri": 1}', b'{"uri": null}'],
    ids=[*NOT_JSON, "none", "a number", "null"],
)
def test_a_note_of_the_last_run_that_makes_no_sense_is_told(home, data):
    home.mkdir()
    (home / FILE).write_bytes(data)
    with pytest.raises(DesaError, match="is damaged") as told:
        last_uri(home)
    assert told.value.where == str(home / FILE)
    assert "delete it" in told.value.hint
