"""A file system whose `flock` answers ENOLCK (NFS): the doctor finds it, a run says it in one line
before any work.
"""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from desa_ray.jobs.cli import checkup
from desa_ray.jobs.doctor import store as store_finding
from tests.desa_fixtures import dataset


@pytest.fixture
def without_locks(monkeypatch) -> Callable[[Path], None]:
    """Makes `flock` fail for files below a folder, as the kernel does where no lock manager
    answers.
    """
    real = fcntl.flock

    def prepare(folder: Path) -> None:
        def flock(descriptor: int, operation: int) -> None:
            if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(folder):
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            real(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", flock)

    return prepare


PLACES = {"outputs": "hydra.run.dir", "store": "store.root", "home": "DESA_HOME"}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_says_it_in_one_line(without_locks, refuse, collection, tmp_path, place):
    without_locks(tmp_path / place)
    setting = PLACES[place]
    common = [
        *dataset(collection),
        "cluster=serial",
        "method=original",
        f"store.root={tmp_path / 'store'}",
    ]
    (line,) = refuse(
        [str(tmp_path / place), "does not support locks (No locks available)", setting],
        "run",
        *common,
    )
    assert "rpc.statd" in line
    assert not list((tmp_path / "store").glob("*"))  # nothing was computed


@pytest.mark.parametrize("place", ["home", "outputs"])
def test_the_doctor_finds_it(without_locks, tmp_path, place):
    folders = {"home": tmp_path / "home", "outputs": tmp_path / "outputs"}
    for folder in folders.values():
        folder.mkdir()
    (fine,) = checkup.locks(folders)
    assert (fine.status, fine.what) == ("ok", "home, outputs: file locks work")
    without_locks(folders[place])
    bad, good = checkup.locks(folders)
    assert (bad.name, bad.status, good.status) == (f"locks {place}", "fail", "ok")
    assert str(folders[place]) in bad.what
    assert "does not support locks" in bad.what
    assert bad.hint
    assert [path for folder in folders.values() for path in folder.iterdir()] == []


def test_the_doctor_finds_it_in_a_store(without_locks, tmp_path):
    without_locks(tmp_path / "store")
    found = store_finding(str(tmp_path / "store"))
    assert (found.name, found.status) == ("store", "fail")
    assert "does not support locks" in found.what
    assert "store.root" in found.hint
