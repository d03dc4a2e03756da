"""Writes one local file durably and returns its size and hash."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from desa_ray.files import flush, sha256_file
from desa_ray.store.faults import full_disk_told

Content = bytes | Callable[[Path], object]
"""What `publish` writes: the bytes, or a function that writes a file at the path it is given."""


@dataclass(frozen=True)
class PublishedFile:
    """One published file: its final name, its SHA-256 in hex, its size in bytes."""

    name: str
    sha256: str
    bytes: int


def written(name: str, content: Content, path: Path) -> PublishedFile:
    """Write `content` to the local `path`, flushed to the disk; the final name, hash and size of
    what is at the place.
    """
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with full_disk_told(path.parent):
            content(path)
    flush(path)
    sha256 = sha256_file(path)
    return PublishedFile(name.replace("*", sha256[:12]), sha256, path.stat().st_size)
