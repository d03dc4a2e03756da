"""Copies of remote files on a node: fetched once for all its processes, bounded, and gone with
them.
"""

import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from desa_ray.errors import CorruptArtifact
from desa_ray.store import copies
from desa_ray.store.copies import COPIES, Copies, drop_copies
from desa_ray.store.files import Files

# Fetches a file as a worker does; waits in the middle, notes that it fetched, then lives on for a
# while or dies where it stands.
WORKER = """
import os, sys, time
from pathlib import Path
from desa_ray.store.copies import Copies

def fetch(path):
    with open(sys.argv[1], "a") as log:
        log.write("fetched\\n")
    if sys.argv[2] == "dies":
        os._exit(9)
    time.sleep(0.5)
    Path(path).write_bytes(b"x" * 1000)

own = Copies()
copy = own.get("part.bin", "a" * 64, fetch)
print(copy.read_bytes() == b"x" * 1000, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    drop_copies()  # of this process, which may have a folder elsewhere
    return folder


def worker(log: Path, what: str) -> subprocess.Popen:
    command = [sys.executable, "-c", WORKER, str(log), what]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_of_a_node_fetch_a_file_once(temporary, tmp_path):
    """Those that want it at once wait, a later one links it, and the last to end removes it."""
    log = tmp_path / "log"
    workers = [worker(log, "lives") for _ in range(4)]
    told = [one.stdout.readline() for one in workers]
    workers.append(worker(log, "lives"))
    told.append(workers[-1].stdout.readline())
    assert told == ["True\n"] * 5
    assert log.read_text() == "fetched\n"
    held = {file.stat().st_ino for file in temporary.glob(f"{COPIES}*/*/part.bin")}
    assert len(held) == 1
    for one in workers:
        one.communicate("")
        assert one.returncode == 0
    assert list(temporary.iterdir()) == []


def test_a_process_that_dies_while_it_fetches_is_replaced(temporary, tmp_path):
    log = tmp_path / "log"
    dead = worker(log, "dies")
    while not log.exists():
        time.sleep(0.01)
    other = worker(log, "lives")
    assert other.stdout.readline() == "True\n"
    other.communicate("")
    assert dead.wait() == 9
    assert log.read_text() == "fetched\n" * 2
    dead.communicate("")


def test_a_folder_is_read_by_way_of_copies_where_asked(temporary, tmp_path):
    """In this process and in those that the store travels to; damage of the original is found."""
    files = Files(tmp_path / "store", copies=True)
    sha256 = files.publish("part.bin", b"x" * 1000).sha256
    for own in (files, pickle.loads(pickle.dumps(files))):
        copy = own.local_path("part.bin", sha256)
        assert copy.read_bytes() == b"x" * 1000
        assert copy.is_relative_to(temporary)
    drop_copies()
    assert list(temporary.iterdir()) == []
    original = Files(tmp_path / "store").local_path("part.bin", sha256)
    assert original == tmp_path / "store" / "part.bin"
    original.write_bytes(b"y" * 1000)
    with pytest.raises(CorruptArtifact, match="expected SHA-256"):
        files.local_path("part.bin", sha256)
    drop_copies()


def test_copies_are_bounded_and_the_oldest_go_first(temporary, monkeypatch):
    """What is open stays readable; what is gone is fetched again."""
    size = 100_000
    fetched: list[str] = []

    def get(own: Copies, number: int) -> Path:
        def fetch(path: str) -> None:
            fetched.append(path)
            np.full(size, number, np.uint8).tofile(path)

        return own.get("part.bin", f"{number:064d}", fetch)

    monkeypatch.setattr(copies, "SHARE", 10**9)  # a few bytes of the disk: the newest alone stay
    own = Copies()
    first = np.memmap(get(own, 0), np.uint8, "r")
    paths = [get(own, number) for number in range(1, 40)]
    there = [path for path in paths if path.exists()]
    assert there == paths[-copies.NEWEST :]
    assert (first == 0).all()
    assert len(fetched) == 40
    assert get(own, 39) == paths[-1]
    assert len(fetched) == 40
    again = get(own, 0)
    assert (len(fetched), again.stat().st_size) == (41, size)
    monkeypatch.setattr(copies, "SHARE", 2)
    kept = [get(own, number) for number in range(100, 140)]
    assert all(path.exists() for path in kept)
    own.folder.remove()
    assert list(temporary.iterdir()) == []
