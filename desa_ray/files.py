"""Files on this machine: written whole or not at all, flushed to the disk, and hashed.

What the store writes goes through `store/files.py`, which adds names by content and remote file
systems.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def whole(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place when the block has written it.

    Args:
        path: the final name; what has it is replaced.
        durable: whether it must be on the disk before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{token_hex(4)}")
    try:
        yield temporary
        if durable:
            flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
