"""Temporary folders of one process: private to the user, and removed after it has ended, however it
ended.

The owner holds a lock on a file in its folder for as long as it lives. A killed owner leaves its
folder, but not the lock: whoever makes or sweeps folders of that name next removes those that
nobody holds. The lock is `flock` itself, not filelock's: filelock opens by name and makes what is
missing, while a sweep must never make a file in, nor follow a link out of, a folder that is not its
own.
"""

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

LOCK = ".owner"
UNLOCKED_FOR_S = (
    86_400.0  # a folder without a lock is being made, or its maker was killed right then
)


class OwnFolder:
    """A new folder of mode 0700 below `base`; removed by `remove`, at the end of the process, or by
    a later sweep.
    """

    def __init__(self, prefix: str, base: str | os.PathLike[str] | None = None):
        sweep(prefix, base)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        self._finalizer = weakref.finalize(self, _remove, self.path, _lock(self.path), os.getpid())

    def remove(self) -> None:
        self._finalizer()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def sweep(prefix: str, base: str | os.PathLike[str] | None = None) -> None:
    """Remove the folders of this name that our user's ended processes left below `base`."""
    base = base or tempfile.gettempdir()
    with suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError):
                    _sweep_one(entry)


def _sweep_one(entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False):
        return
    stat = entry.stat(follow_symlinks=False)
    if stat.st_uid != os.geteuid():
        return
    try:
        lock = os.open(Path(entry.path, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - stat.st_mtime > UNLOCKED_FOR_S:
            shutil.rmtree(entry.path, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    """The descriptor that holds the folder; its file appears under its name when it is locked
    already.
    """
    making = folder / f"{LOCK}-making"
    lock = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(OSError):
        # A file system without locks: no other process gets one either, and leaves it alone
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    making.rename(folder / LOCK)
    return lock


def _remove(folder: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork of it
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
