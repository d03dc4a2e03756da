"""Copies of a remote store's files on this node's disk: fetched once per node, bounded, and removed
with the processes that use them.

Every process keeps its copies in a folder of its own, which ends with it (`desa_ray.temporary`). A
file that another process of the same user on this node holds is linked instead of fetched, so its
bytes stay as long as anybody uses them. Of processes that want a file at once, later ones wait for
the first. Beyond a share of the disk the least recently used copies are removed; whoever
has one open or mapped keeps reading it.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

from desa_ray.temporary import OwnFolder, sweep

COPIES = "desa-store-"  # in the temporary folder, one per process
WANTED, PARTIAL = ".wanted-", ".tmp-"
SHARE = 2  # copies of all processes take at most one part in so many of the disk's free space
NEWEST = 16  # of a process: these may be about to be opened, and stay
LOOK_S, SWEEP_S = 0.02, 1.0


class Copies:
    """The copies of one process, below `folder/SHA-256/NAME`."""

    def __init__(self) -> None:
        self.folder = OwnFolder(COPIES)
        self._sizes: dict[Path, int] = {}  # the least recently used first
        self._added, self._next_look = 0, 0

    def get(self, name: str, sha256: str, fetch: Callable[[str], object]) -> Path:
        """The copy of a file, linked or fetched where this process has none; its bytes are still
        to be compared with the hash.

        Args:
            fetch: writes the file to the path that it is given.
        """
        path = self.folder.path / sha256 / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            self._obtain(path, fetch)
            self._added += path.stat().st_size
        self._sizes.pop(path, None)
        self._sizes[path] = path.stat().st_size
        if self._added >= self._next_look:
            self._make_room()
        return path

    def _obtain(self, path: Path, fetch: Callable[[str], object]) -> None:
        wanted = path.with_name(f"{WANTED}{uuid4().hex}")
        wanted.touch()
        swept = time.monotonic()
        try:
            own = wanted.stat().st_mtime_ns, wanted.name
            while True:
                first = not any(other < own for other in _wanted(path.parent.name))
                if path.exists() or _linked(path):  # looked at last: the first may just be done
                    return
                if first:
                    break
                time.sleep(LOOK_S)
                if time.monotonic() - swept > SWEEP_S:
                    sweep(COPIES)  # the first may have been killed
                    swept = time.monotonic()
            partial = path.with_name(f"{PARTIAL}{uuid4().hex}")
            fetch(str(partial))
            partial.replace(path)
        finally:
            wanted.unlink(missing_ok=True)

    def _make_room(self) -> None:
        """Remove the oldest copies of this process while all on this node take too much."""
        total = sum(_held().values())
        limit = (shutil.disk_usage(self.folder.path).free + total) // SHARE
        self._added, self._next_look = 0, limit // 16
        for path in [*self._sizes][:-NEWEST]:
            if total <= limit:
                return
            size = self._sizes.pop(path, 0)
            with suppress(FileNotFoundError):
                total -= size // path.stat().st_nlink  # others that hold it remove it likewise
                path.unlink()


def _folders() -> Iterator[Path]:
    """The folders of all processes of this user on this node."""
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(COPIES) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                        yield Path(entry.path)


def _wanted(sha256: str) -> Iterator[tuple[int, str]]:
    """Since when each process that fetches a file, or waits for it, has wanted it."""
    for folder in _folders():
        for mark in (folder / sha256).glob(f"{WANTED}*"):
            with suppress(FileNotFoundError):
                yield mark.stat().st_mtime_ns, mark.name


def _linked(path: Path) -> bool:
    """Whether another process has the file, which is then linked to `path`."""
    for folder in _folders():
        with suppress(OSError):
            os.link(folder / path.parent.name / path.name, path, follow_symlinks=False)
            return True
    return path.exists()


def _held() -> dict[tuple[int, int], int]:
    """Bytes of every copy on this node, each file once."""
    found: dict[tuple[int, int], int] = {}
    for folder in _folders():
        for file in folder.glob("*/*"):
            with suppress(FileNotFoundError):
                stat = file.stat()
                found[stat.st_dev, stat.st_ino] = stat.st_size
    return found


@cache
def own_copies(process: int) -> Copies:
    """Those of this process, whose id is `process`."""
    return Copies()


def drop_copies() -> None:
    """Remove this process's copies of remote files, and those of processes that were killed."""
    own_copies(os.getpid()).folder.remove()
    own_copies.cache_clear()
    sweep(COPIES)
