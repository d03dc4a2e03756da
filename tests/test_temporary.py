"""Temporary folders of a process: private, gone at its end, and swept where it was killed; nobody
else's is touched.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from desa_ray.temporary import LOCK, OwnFolder, sweep

PREFIX = "desa-made-up-"
# Makes a folder, says where, and ends as it is told to.
PROGRAM = """
import os, sys
from desa_ray.temporary import OwnFolder
own = OwnFolder(sys.argv[1], sys.argv[2])
(own.path / "file").write_text("x")
print(own.path, flush=True)
sys.stdin.readline()
"""


def _process(base: Path) -> tuple[subprocess.Popen, Path]:
    command = [sys.executable, "-c", PROGRAM, PREFIX, str(base)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("killed", [False, True])
def test_a_folder_outlives_a_killed_process_only_until_the_next(killed, tmp_path):
    """A folder outlives a killed process only until the next sweep."""
    process, folder = _process(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    sweep(PREFIX, tmp_path)
    assert (folder / "file").exists()  # its process lives
    if killed:
        process.send_signal(signal.SIGKILL)
    process.communicate("\n", timeout=60)
    assert folder.exists() is killed
    other = OwnFolder(PREFIX, tmp_path)  # sweeps
    assert list(tmp_path.iterdir()) == [other.path]
    other.remove()
    assert list(tmp_path.iterdir()) == []


FORKING = """
import os, sys
from desa_ray.temporary import OwnFolder
own = OwnFolder(sys.argv[1], sys.argv[2])
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
print(own.path.exists(), flush=True)
"""


def test_a_fork_leaves_its_parents_folder_alone(tmp_path):
    command = [sys.executable, "-c", FORKING, PREFIX, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True"
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_touches_nothing_but_unheld_folders_of_that_name(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for name in ("elsewhere", f"{PREFIX}new", f"{PREFIX}old", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    (elsewhere / LOCK).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    (tmp_path / f"{PREFIX}file").write_text("x")
    long_ago = time.time() - 2 * 86400
    os.utime(tmp_path / f"{PREFIX}old", (long_ago, long_ago))
    (tmp_path / f"{PREFIX}new2").mkdir()
    # A lock that is a link is nobody's
    (tmp_path / f"{PREFIX}new2" / LOCK).symlink_to(elsewhere / LOCK)
    sweep(PREFIX, tmp_path)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {
        "elsewhere",
        f"{PREFIX}new",
        "other",
        f"{PREFIX}link",
        f"{PREFIX}file",
        f"{PREFIX}new2",
    }
    assert (elsewhere / "file").exists()


def test_a_sweep_of_a_folder_that_is_not_there_does_nothing(tmp_path):
    sweep(PREFIX, tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []
