"""Locks: one order, a limit for every wait, a holder by name, and no file system without them taken
for one with.
"""

import ast
import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from desa_ray import locks
from desa_ray.errors import DesaError
from desa_ray.locks import (
    KERNELS,
    ORDER,
    SAMPLES,
    STAGE,
    TRACKING,
    Kind,
    held,
    holder,
    inside,
    tried,
)

REPOSITORY = Path(__file__).resolve().parents[1]
HOLDER = """
import sys, time
from pathlib import Path
from desa_ray.locks import STAGE, held
with held(STAGE, Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lock `x.lock`."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "x.lock")]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def report_in(error: DesaError, home: Path) -> str:
    """The crash report that the hint names: a private file in the home."""
    (file,) = (home / "crashes").iterdir()
    assert str(file) in error.hint
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return file.read_text()


def test_a_wait_ends_at_its_limit_and_names_the_holder(tmp_path, home, other):
    with pytest.raises(DesaError) as told, held(STAGE, tmp_path / "x.lock", 0.2):
        pytest.fail("it is held by another")
    assert told.value.where == str(tmp_path / "x.lock")
    assert f"process {other.pid} on {os.uname().nodename}" in told.value.what
    assert STAGE.what in told.value.what
    text = report_in(told.value, home)
    assert "test_a_wait_ends_at_its_limit" in text  # where this thread stood
    assert "thread MainThread (this one)" in text


def test_a_killed_holder_leaves_the_lock_free(tmp_path, home, other):
    assert tried(STAGE, tmp_path / "x.lock") is None
    other.kill()
    other.wait()
    with held(STAGE, tmp_path / "x.lock", 60):
        assert holder(tmp_path / "x.lock") == f"process {os.getpid()} on {os.uname().nodename}"


def test_a_wait_between_threads_ends_at_its_limit(home):
    lock, go_on = threading.RLock(), threading.Event()

    def hold() -> None:
        with inside(SAMPLES, lock):
            go_on.wait(60)

    thread = threading.Thread(target=hold, name="the-holder")
    thread.start()
    try:
        with pytest.raises(DesaError, match=SAMPLES.what) as told, inside(SAMPLES, lock, 0.1):
            pytest.fail("it is held by another")
    finally:
        go_on.set()
        thread.join()
    assert "thread the-holder" in report_in(told.value, home)
    with inside(SAMPLES, lock, 0.1):
        pass


def test_locks_are_taken_in_their_order(tmp_path):
    """The suite runs with this check, here and in every process that it starts."""
    lock = threading.RLock()
    with held(TRACKING, tmp_path / "t.lock"), inside(SAMPLES, lock):
        pass
    with held(TRACKING, tmp_path / "t.lock"):
        for kind in (TRACKING, STAGE):
            with pytest.raises(AssertionError, match=kind.what), held(kind, tmp_path / "u.lock"):
                pass
    with held(STAGE, tmp_path / "u.lock"):  # what was refused is not held
        pass


@pytest.mark.parametrize("number", locks.NO_LOCKS)
def test_a_file_system_without_locks_is_told_in_one_line(tmp_path, monkeypatch, number):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for take in (
        lambda: tried(KERNELS, tmp_path / "x.lock"),
        lambda: held(KERNELS, tmp_path / "x.lock").__enter__(),
    ):
        with pytest.raises(DesaError, match="does not support locks") as told:
            take()
        assert told.value.where == str(tmp_path)
        assert os.strerror(number) in told.value.what
        assert KERNELS.setting in told.value.hint
        assert "\n" not in str(told.value)


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "x.lock").symlink_to(tmp_path / "target")
    with (
        pytest.raises(DesaError, match="cannot be taken") as told,
        held(STAGE, tmp_path / "x.lock"),
    ):
        pass
    assert told.value.where == str(tmp_path / "x.lock")
    assert (tmp_path / "target").read_text() == "kept"


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"{",
        b"[]",
        b'{"pid": "x"}',
        b'{"pid": 1, "host": "a\\u001b[2J"}',
        b'{"pid": true, "host": "a"}',
        b"\xff" * 9,
    ],
)
def test_a_note_that_makes_no_sense_names_nobody(tmp_path, note):
    (tmp_path / "x.lock").write_bytes(note)
    assert holder(tmp_path / "x.lock") == "another process"


def test_a_lock_that_is_a_pipe_does_not_block_who_asks(tmp_path):
    """A lock that is a pipe does not block who asks for its holder."""
    os.mkfifo(tmp_path / "x.lock")
    assert holder(tmp_path / "x.lock") == "another process"


BARE = {
    "Lock",
    "Condition",
    "Semaphore",
    "BoundedSemaphore",
    "FileLock",
    "SoftFileLock",
    "flock",
    "lockf",
}
# The report of a stuck lock takes its own, last of all; locks of temporary folders are tried once,
# never waited for.
EXEMPT = ("locks.py", "crash.py", "temporary.py")


def bare_locks(path: Path) -> list[str]:
    """Where a file makes or waits for a lock by itself: such a wait has no limit."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            on = ast.unparse(node.func)
            if name in BARE or (name == "acquire" and "lock" in on.lower()):
                found.append(f"{path}:{node.lineno} {on}")
        if isinstance(node, ast.With):
            entered = [ast.unparse(item.context_expr) for item in node.items]
            found += [
                f"{path}:{node.lineno} with {it}"
                for it in entered
                if "lock" in it.lower() and "(" not in it
            ]
    return found


def test_every_lock_of_the_code_is_one_of_these():
    files = [
        path
        for folder in ("desa_ray", "jobs", "hydra_plugins")
        for path in (REPOSITORY / folder).rglob("*.py")
    ]
    assert [line for path in files if path.name not in EXEMPT for line in bare_locks(path)] == []


def test_every_lock_has_a_place_a_limit_and_a_line():
    """Every lock has a place a limit and a line for contributors."""
    kinds = [value for value in vars(locks).values() if isinstance(value, Kind)]
    assert list(ORDER) == kinds
    assert all(kind.limit_s > 0 for kind in ORDER[3:])
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Order of locks")[2].partition("\n## ")[0]
    places = [section.find(kind.what) for kind in ORDER]
    assert -1 not in places
    assert places == sorted(places)


def test_the_note_of_a_lock_is_small_and_plain(tmp_path):
    with held(STAGE, tmp_path / "x.lock"):
        note = json.loads((tmp_path / "x.lock").read_text())
    assert set(note) == {"pid", "host", "since"}
    assert errno.ENOLCK in locks.NO_LOCKS
