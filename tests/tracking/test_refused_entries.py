"""Log entries that MLflow refuses, or that the disk cannot hold: told, kept, and blamed on nobody
else.
"""

import errno
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from desa_ray.errors import DesaError
from desa_ray.tracking.entries import CellRun
from tests.tracking.entries_made_up import made_cell, open_log, runs_in


def _odd(uri: str, folder: Path, run_id: str) -> CellRun:
    """A cell that MLflow refuses for ever: it has another value for a param that is
    logged already.
    """
    client = MlflowClient(uri)
    client.set_tag(run_id, "sha256.records.parquet", "two")
    client.set_terminated(run_id, "FAILED")
    return CellRun(**{**made_cell(folder, "one", text="two").__dict__, "params": {"kappa": 61}})


def test_a_refused_value_fails_its_cell_alone_and_is_kept(uri, tmp_path, monkeypatch, capsys):
    log = open_log(uri, tmp_path / "home")
    run_id = log.cell(made_cell(tmp_path / "out", "one"))
    assert run_id
    odd = _odd(uri, tmp_path / "out", run_id)
    with pytest.raises(DesaError, match="log of one: "):
        log.cell(odd)
    assert log.cell(made_cell(tmp_path / "out", "two"))
    log.end("FAILED", {}, ["refused"], [])
    assert len(list((tmp_path / "home" / "outbox").glob("*/*/*.refused"))) == 1
    with pytest.raises(DesaError, match="does not fit an MLflow param"):
        open_log(uri, tmp_path / "home2").cell(
            CellRun(**{**odd.__dict__, "params": {"long": "x" * 6001}})
        )
    # It stays in sight until somebody removes it.
    from desa_ray.jobs.sync import main

    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    with pytest.raises(
        DesaError, match=r"00002.refused: refused by .*log of one: .*remove this file"
    ) as told:
        main([])
    assert "0 log entries sent" in capsys.readouterr().out
    Path(str(told.value).partition(": ")[0]).unlink()
    assert main([]) == 0
    assert not list((tmp_path / "home" / "outbox").glob("*/*"))


def test_the_refusal_of_an_entry_that_waited_is_not_blamed(uri, tmp_path):
    """The refusal of an entry that waited is not blamed on the cell that sends it."""
    log = open_log(uri, tmp_path / "home")
    run_id = log.cell(made_cell(tmp_path / "out", "one"))
    assert run_id
    log.offline = True  # as if the server were away
    log.cell(_odd(uri, tmp_path / "out", run_id))
    assert log.unsent == 1
    log.offline = False
    assert log.cell(made_cell(tmp_path / "out", "two"))
    with pytest.raises(DesaError, match="log of one: "):
        log.end("FINISHED", {}, [], [])
    assert {name: found[0].info.status for name, found in runs_in(uri).items()} == {
        "a sweep": "FINISHED",
        "one": "RUNNING",
        "two": "FINISHED",
    }


def test_a_full_disk_is_an_error_and_leaves_nothing_half_written(uri, tmp_path, monkeypatch):
    log = open_log(uri, tmp_path / "home")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", full)
        # What is sent at once needs no copies where there are links
        patch.setattr("pathlib.Path.hardlink_to", full)
        with pytest.raises(DesaError, match=r"No space left on device \(free that disk"):
            log.cell(made_cell(tmp_path / "out", "one"))
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(DesaError, match="No space left on device"):
            log.cell(made_cell(tmp_path / "out", "one"))
    assert {path.name for path in (tmp_path / "home" / "outbox").glob("*/*/*")} == {
        "lock",
        "target.json",
    }
    assert log.cell(made_cell(tmp_path / "out", "two"))
    log.end("FINISHED", {}, [], [])
    (tmp_path / "home2").write_text("a file where a folder should be")
    with pytest.raises(DesaError, match="a log entry cannot be written: File exists"):
        open_log(uri, tmp_path / "home2")


def test_a_fault_that_is_not_the_servers_goes_by_its_name(uri, tmp_path, monkeypatch):
    log = open_log(uri, tmp_path / "home")

    def broken(*_):
        raise KeyError("kind")

    monkeypatch.setattr("desa_ray.tracking.delivery.Delivery.send", broken)
    assert log.cell(made_cell(tmp_path / "out", "one")) is None
    assert log.outbox.trouble == "KeyError: 'kind'"
    log.end("FINISHED", {}, [], [])
