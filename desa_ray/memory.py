"""Memory that is left on this machine, or within its container, for reading large files."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from desa_ray.errors import DesaError

CGROUP = Path("/sys/fs/cgroup")
STEP = 64 << 20  # bytes of text between two looks
COPY = 1.2  # what is read is copied once, into a table
Row = TypeVar("Row", bound=tuple[str, ...])


def available() -> int:
    """Bytes that this process may still take without swapping: of the machine (psutil), and of its
    container, whose limits psutil does not know.
    """
    found = [psutil.virtual_memory().available]
    with suppress(OSError, ValueError, StopIteration):
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        lines = (CGROUP / "memory.stat").read_text().splitlines()
        line = next(line for line in lines if line.startswith("inactive_file "))
        found.append(limit - used + int(line.split()[1]))  # the cache of files can go
    return min(found)


def held(rows: Iterable[Row], where: str) -> Iterator[Row]:
    """The rows as they come, as long as a copy of them all fits beside them.

    Raises:
        DesaError: it would not; otherwise the system would kill the process without a word.
    """
    read = looked = 0
    for row in rows:
        yield row
        read += sum(map(len, row))
        if read - looked >= STEP:
            looked, left = read, available()
            if left < COPY * read:
                what = (
                    f"needs more memory than is available: {read / 1e9:.2g} GB of text are read,"
                    f" {max(left, 0) / 1e9:.2g} GB are free"
                )
                hint = "free memory, or use a machine with 2.5 times the size of the file"
                raise DesaError(what, where=where, hint=hint)
