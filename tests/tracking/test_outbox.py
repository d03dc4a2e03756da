"""The log of a sweep reaches MLflow once and whole, whatever dies on the way. A real SQLite store
each.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from desa_ray.tracking.delivery import Delivery
from desa_ray.tracking.left_behind import left_behind, resend
from desa_ray.tracking.outbox import Outbox
from desa_ray.tracking.runs import Tracker
from desa_ray.tracking.sweeps import SweepLog
from tests.tracking.entries_made_up import SWEEP, made_cell, made_sweep, open_log, runs_in


def test_a_sweep_is_a_parent_with_a_child_a_cell(uri, tmp_path):
    log = open_log(uri, tmp_path / "home")
    run_id = log.cell(made_cell(tmp_path / "out", "one"))
    log.cell(made_cell(tmp_path / "out", "two", error="the shard was bad"))
    log.end("FAILED", {"cells": 2.0}, ["the shard was bad"], [])
    runs = runs_in(uri)
    (parent,), (one,), (two,) = runs["a sweep"], runs["one"], runs["two"]
    assert parent.info.status == "FAILED"
    assert parent.data.tags["desa.errors"] == "the shard was bad"
    assert parent.data.params == {"kappa": "2, 60"}
    assert one.info.run_id == run_id
    assert {run.data.tags["mlflow.parentRunId"] for run in (one, two)} == {parent.info.run_id}
    assert (one.info.status, one.info.start_time, one.info.end_time) == ("FINISHED", 1_000, 2_000)
    # What has no finite value is absent.
    assert one.data.metrics == {"ndcg_at_10": 0.5, "draws/ndcg_at_10": 0.75}
    history = MlflowClient(uri).get_metric_history(run_id or "", "draws/ndcg_at_10")
    assert [(point.step, point.value) for point in history] == [(0, 0.25), (1, 0.75)]
    assert (two.info.status, two.data.tags["desa.error"]) == ("FAILED", "the shard was bad")
    text = Path(MlflowClient(uri).download_artifacts(run_id, "one.txt", str(tmp_path))).read_text()
    assert text == "records"
    assert not list((tmp_path / "home" / "outbox").glob("*/*"))


def test_a_resumed_sweep_goes_on_in_its_parent_and_doubles(uri, tmp_path):
    """A resumed sweep goes on in its parent and doubles no child."""
    first = open_log(uri, tmp_path / "home")
    first.cell(made_cell(tmp_path / "out", "one"))
    first.cell(made_cell(tmp_path / "out", "two", error="no memory"))
    first.end("KILLED", {}, [], [])
    second = open_log(uri, tmp_path / "home")
    assert {name: [run.info.status for run in runs] for name, runs in runs_in(uri).items()}[
        "a sweep"
    ] == ["RUNNING"]
    for name in ("one", "two"):
        second.cell(made_cell(tmp_path / "out", name))
    second.end("FINISHED", {}, [], [])
    runs = runs_in(uri)
    assert {name: [run.info.status for run in found] for name, found in runs.items()} == {
        "a sweep": ["FINISHED"],
        "one": ["FINISHED"],
        "two": ["FINISHED"],
    }
    assert "desa.error" not in runs["two"][0].data.tags
    # Code that computes other records for the same cell is another run: both stay.
    third = open_log(uri, tmp_path / "home")
    third.cell(made_cell(tmp_path / "out", "one", text="other records"))
    third.end("FINISHED", {}, [], [])
    assert len(runs_in(uri)["one"]) == 2


def test_what_cannot_be_sent_waits_and_is_sent_in_order_once(uri, tmp_path):
    home, database = tmp_path / "home", Path(uri.removeprefix("sqlite:///"))
    log = open_log(uri, home)
    log.cell(made_cell(tmp_path / "out", "one"))
    away = database.with_name("away.db")
    # The store is gone; a folder in its place keeps MLflow from making a new one
    database.rename(away)
    database.mkdir()
    log.outbox.delivery = None
    assert log.cell(made_cell(tmp_path / "out", "two")) is None
    (tmp_path / "out" / "two.txt").write_text("changed since")
    log.end("FINISHED", {"cells": 2.0}, [], [])
    assert log.unsent == 2
    assert log.outbox.trouble
    database.rmdir()
    away.rename(database)
    before = runs_in(uri)
    assert [run.info.status for run in before["a sweep"]] == ["RUNNING"]
    assert "two" not in before
    for box in left_behind(home / "outbox", uri):
        assert resend(box, lambda: Tracker(uri, home / "mlartifacts"))
    runs = runs_in(uri)
    assert [run.info.status for run in runs["a sweep"]] == ["FINISHED"]
    (two,) = runs["two"]
    text = Path(
        MlflowClient(uri).download_artifacts(two.info.run_id, "two.txt", str(tmp_path))
    ).read_text()
    assert text == "records"  # as it was when it was logged
    assert not list((home / "outbox").glob("*/*"))


def test_what_is_sent_at_once_is_linked_and_what_has_to_wait(uri, tmp_path, monkeypatch):
    """What is sent at once is linked and what has to wait is copied."""
    log = open_log(uri, tmp_path / "home", offline=True)
    file = tmp_path / "run.trec"
    file.write_text("as logged")
    number = log.outbox.put({"kind": "cell", "name": "x"}, [file], linked=True)
    held = log.outbox.folder / f"{number:05d}" / "run.trec"
    assert held.samefile(file)
    log.outbox.keep(number)
    file.write_text("edited")
    assert held.read_text() == "as logged"
    assert [path.name for path in held.parent.iterdir()] == ["run.trec"]

    def none_here(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("pathlib.Path.hardlink_to", none_here)
    number = log.outbox.put({"kind": "cell", "name": "y"}, [file], linked=True)
    held = log.outbox.folder / f"{number:05d}" / "run.trec"
    assert (held.read_text(), held.samefile(file)) == ("edited", False)


def test_offline_sends_nothing_until_sync(uri, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    log = open_log(uri, tmp_path / "home", offline=True)
    assert log.cell(made_cell(tmp_path / "out", "one")) is None
    log.end("FINISHED", {}, [], [])
    assert runs_in(uri) == {}
    from desa_ray.jobs.sync import main

    assert main([]) == 0
    assert "3 log entries sent" in capsys.readouterr().out
    assert {name: len(found) for name, found in runs_in(uri).items()} == {"a sweep": 1, "one": 1}
    assert main([]) == 0
    assert "0 log entries sent" in capsys.readouterr().out


def test_a_second_delivery_changes_nothing(uri, tmp_path):
    """A process killed after MLflow had all of it, before the document was removed."""
    tracker = Tracker(uri, tmp_path / "artifacts")
    document = {
        "kind": "begin",
        "name": "a sweep",
        "params": {"kappa": "2"},
        "tags": {},
        "started_ms": 1_000,
    }
    measured = {
        "kind": "metrics",
        "metrics": [["system/cpu", 5.0, 1_500, 0], ["system/cpu", 7.0, 1_600, 1]],
    }
    for _ in range(2):
        delivery = Delivery(tracker, "tested", SWEEP, "attempt")
        parent = delivery.send(document, tmp_path)
        delivery.send(measured, tmp_path)
    (run,) = runs_in(uri)["a sweep"]
    assert run.info.run_id == parent
    assert [m.value for m in tracker.client.get_metric_history(parent, "system/cpu")] == [5.0, 7.0]


DRIVER = """
import sys, time
from pathlib import Path
from tests.tracking.entries_made_up import made_cell, open_log
log = open_log(sys.argv[1], Path(sys.argv[2]))
log.cell(made_cell(Path(sys.argv[2]) / "out", "one"))
print("logged", flush=True)
time.sleep(300)
"""


@pytest.mark.long
def test_runs_of_a_killed_driver_end_as_killed_without_anybody(uri, tmp_path):
    """Runs of a killed driver end as killed without anybody doing anything."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", DRIVER, uri, str(tmp_path / "home")]
    (tmp_path / "home").mkdir()
    driver = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline().strip() == "logged"
    assert [run.info.status for run in runs_in(uri)["a sweep"]] == ["RUNNING"]
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    deadline = time.monotonic() + 120
    while [run.info.status for run in runs_in(uri)["a sweep"]] == ["RUNNING"]:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert [run.info.status for run in runs_in(uri)["a sweep"]] == ["KILLED"]
    assert [run.info.status for run in runs_in(uri)["one"]] == ["FINISHED"]


def test_a_dead_sweep_whose_watchdog_died_too_is_ended(uri, tmp_path):
    """A dead sweep whose watchdog died too is ended by the next run."""
    home = tmp_path / "home"
    dead = open_log(uri, home)
    assert dead.watchdog is not None
    dead.watchdog.dismiss()
    dead.outbox.put({"kind": "metrics", "metrics": [["system/cpu", 5.0, 1_500, 0]]})
    dead.outbox.lock.release()  # as the kernel does for a dead process
    other = SweepLog(made_sweep("b" * 64), uri=uri, home=home, sample_s=0)
    statuses = sorted(run.info.status for run in runs_in(uri)["a sweep"])
    assert statuses == ["KILLED", "RUNNING"]
    other.end("FINISHED", {}, [], [])
    killed = next(run for run in runs_in(uri)["a sweep"] if run.info.status == "KILLED")
    assert killed.data.metrics["system/cpu"] == 5.0


def test_a_living_sweep_is_left_alone(uri, tmp_path):
    living = open_log(uri, tmp_path / "home")
    assert list(left_behind(tmp_path / "home" / "outbox", uri)) == []
    living.end("FINISHED", {}, [], [])


@pytest.mark.long
def test_many_first_runs_at_once_share_a_new_database(tmp_path):
    """MLflow alone breaks a database that two processes migrate at once."""
    uri, root = f"sqlite:///{tmp_path / 'new.db'}", Path(__file__).parents[2]
    code = (
        "import sys; from pathlib import Path; from tests.tracking.entries_made_up import"
        " made_sweep, made_cell\nfrom desa_ray.tracking.sweeps import SweepLog\nhome, run ="
        " Path(sys.argv[2]), made_sweep(sys.argv[3] * 64)\nlog = SweepLog(run, uri=sys.argv[1],"
        " home=home, sample_s=0)\nlog.cell(made_cell(home / sys.argv[3], 'one'));"
        " log.end('FINISHED', {}, [], [])"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, uri, str(tmp_path / "home"), digit],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for digit in "12"
    ]
    for process in started:
        output, _ = process.communicate(timeout=280)
        assert process.returncode == 0, output
    assert [run.info.status for run in runs_in(uri)["a sweep"]] == ["FINISHED"] * 2
    assert len(runs_in(uri)["one"]) == 2


def test_documents_are_never_half_written(tmp_path):
    """A killed writer leaves a temporary file, which counts for nothing."""
    from desa_ray.tracking.outbox import Target

    box = Outbox.create(tmp_path, Target("sqlite:///x.db", "", "tested", SWEEP, "attempt"))
    box.put({"kind": "end"})
    (box.folder / ".00001.json.77").write_text('{"kind": ')
    assert box.waiting() == [0]
    assert json.loads((box.folder / "00000.json").read_text()) == {"kind": "end"}
    box.close()


def test_mlflow_errors_are_told_apart():
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, PERMISSION_DENIED

    from desa_ray.tracking.outbox import _refused

    assert _refused(MlflowException("bad", INVALID_PARAMETER_VALUE))
    assert not _refused(MlflowException("who are you", PERMISSION_DENIED))
    assert not _refused(MlflowException("API request failed"))  # the server is away
    assert not _refused(OSError("disk full"))
