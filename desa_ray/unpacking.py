"""Bytes of files from elsewhere, in blocks: decompressed as they are read, limited in size, with
one `DesaError` for every failure.

What a file is packed with is read off its first bytes, not off its name. Memory is that of a block,
whatever a file unpacks to; how much that may be depends on its packed size.
"""

import gzip
import io
import lzma
import os
import re
import select
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from desa_ray.errors import DesaError

BLOCK = 1 << 20
MAX_BYTES = 64 << 30  # the largest BEIR set unpacks to about 11 GiB
MAX_RATIO = 200  # text deflates to a third, a run to a tenth; a bomb reaches 1,000
SMALL = 64 << 20  # unpacked, harmless whatever the ratio
SILENCE_S = 60.0  # a pipe that says nothing for as long has nobody at its other end
BOMB = "unpack it yourself and give the folder or file, if you trust it"

# What readers of packed bytes raise for bytes that are wrong: each library has errors of its own.
DAMAGE = (
    *(
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        NotImplementedError,
        LookupError,
        OverflowError,
        MemoryError,
    ),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error),
)
MAGIC = {  # regular expressions
    "gzip": rb"\x1f\x8b",
    "zstd": rb"\x28\xb5\x2f\xfd",
    "zip": rb"PK\x03\x04",
    "bzip2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
    "xz": rb"\xfd7zXZ\x00",
}
SUFFIXES = {".gz": "gzip", ".zst": "zstd"}


def limit_of(packed_bytes: int) -> int:
    """Bytes that `packed_bytes` may unpack to before they count as a decompression bomb."""
    return min(MAX_BYTES, max(SMALL, MAX_RATIO * packed_bytes))


def without_suffix(name: str) -> str:
    """A file's name without the ending that says how it is packed."""
    return re.sub(r"\.(gz|zst)$", "", name)


def packing(start: bytes) -> str | None:
    """What bytes that begin so are packed with; None for none that is known."""
    return next((kind for kind, magic in MAGIC.items() if re.match(magic, start)), None)


def file_blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file or pipe, unpacked, in blocks of about 1 MiB.

    Raises:
        DesaError: it cannot be read or unpacked, is not a file, or changes meanwhile.
    """
    label = str(path)
    with _opened(path) as stream:
        before = _state(stream)
        yield from unpacked(stream, label)
        if _state(stream) != before:
            raise changed(label)


def plain_bytes(path: Path, most: int) -> bytes:
    """All bytes of a small file as they are.

    Raises:
        DesaError: it cannot be read, is no plain file (a pipe or device might never end), or has
            more bytes than that.
    """
    label = str(path)
    with _opened(path) as stream:
        if _state(stream) is None:
            raise DesaError("is not a plain file", where=label, hint="put a file there")
        try:
            data = stream.read(most + 1)
        except OSError as error:
            raise unreadable(error, label) from error
    if data is None or len(data) > most:
        what = f"has more than {most >> 20} MiB"
        raise DesaError(what, where=label, hint="is it the file that you mean?")
    return data


class ChangedFile(DesaError):
    """A file that is not the one that was opened."""


def changed(label: str) -> DesaError:
    return ChangedFile(
        "changed while it was read",
        where=label,
        hint="rerun when nothing writes to it any more",
    )


def unpacked(
    stream: BinaryIO, label: str, limit: int | None = None, size: int | None = None
) -> Iterator[bytes]:
    """The bytes of a stream, unpacked where they begin as gzip or zstd does.

    Args:
        label: its name in errors; an ending that promises a packing must be kept.
        limit: bytes that it may unpack to; `limit_of` what was read of it where left out.
        size: bytes that the stream itself must have, where that is known.
    """
    counted = _Counted(stream)
    try:
        packed: Any = io.BufferedReader(counted, BLOCK)
        kind = packing(packed.peek(16)[:16])
        promised = next((kind for suffix, kind in SUFFIXES.items() if label.endswith(suffix)), kind)
        if kind != promised:
            raise DesaError(
                f"is not compressed with {promised}, although its name says so",
                where=label,
                hint="rename it or compress it again",
            )
        reader = _reader(kind, packed, label)
        total = 0
        while block := reader.read(BLOCK):
            if total == 0 and kind and (inner := packing(block[:16])):
                what = f"is compressed twice: {inner} within {kind}"
                raise DesaError(what, where=label, hint="decompress it once")
            total += len(block)
            allowed = MAX_BYTES if kind is None else limit or limit_of(counted.count)
            if total > allowed:
                raise DesaError(f"unpacks to more than {allowed >> 20} MiB", where=label, hint=BOMB)
            yield block
        if size is not None and counted.count != size:
            raise EOFError(f"it has {counted.count} bytes and not {size}")
    except DAMAGE as error:
        raise unreadable(error, label) from error


def unreadable(error: BaseException, label: str) -> DesaError:
    """One line for what reading or unpacking raised."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(said.split())[:300] or type(error).__name__
    return DesaError(f"cannot be read: {text}", where=label, hint=_hint(error))


def lasting(error: DesaError) -> bool:
    """Whether an error of reading is a fault of the bytes, so that reading them again finds it;
    not one of the machine, or of a file that changes.
    """
    reason: BaseException | None = error
    while reason is not None:
        machine = isinstance(reason, OSError) and reason.errno is not None
        if machine or isinstance(reason, ChangedFile | MemoryError):
            return False
        reason = reason.__cause__ or reason.__context__
    return True


def _hint(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "name an existing file"
    if isinstance(error, PermissionError):
        return "give yourself permission to read it"
    return "fetch it or compress it again"


def _reader(kind: str | None, packed: Any, label: str) -> BinaryIO:
    if kind is None:
        return cast(BinaryIO, packed)
    if kind == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=packed))
    if kind == "zstd":
        import pyarrow as pa

        return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd"))
    raise DesaError(
        f"is compressed with {kind}", where=label, hint="decompress it, or use gzip or zstd"
    )


class _Counted(io.RawIOBase):
    """A stream that knows how many bytes were taken from it."""

    def __init__(self, stream: BinaryIO):
        self.stream, self.count = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self.stream.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


class _Pipe(io.RawIOBase):
    """A pipe's reading end, not waited for without end."""

    def __init__(self, descriptor: int, label: str):
        self.descriptor, self.label = descriptor, label
        self.poll = select.poll()
        self.poll.register(descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.descriptor

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while self.poll.poll(SILENCE_S * 1000):
            try:
                data = os.read(self.descriptor, len(buffer))
            except BlockingIOError:
                continue
            buffer[: len(data)] = data
            return len(data)
        what = f"is a pipe that sent nothing for {SILENCE_S:g} s"
        raise DesaError(
            what, where=self.label, hint="name a file, or start the program that writes to the pipe"
        )

    def close(self) -> None:
        if not self.closed:
            os.close(self.descriptor)
        super().close()


def _opened(path: Path) -> BinaryIO:
    """A file or pipe, opened without waiting for whoever writes to it."""
    label = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(descriptor, "rb", buffering=0)
    except (OSError, ValueError) as error:
        raise unreadable(error, label) from error
    if stat.S_ISFIFO(mode):
        return cast(BinaryIO, _Pipe(descriptor, label))
    os.close(descriptor)
    what = "is a folder" if stat.S_ISDIR(mode) else "is neither a file nor a pipe"
    raise DesaError(what, where=label, hint="name a file")


def _state(stream: BinaryIO) -> tuple[int, int] | None:
    found = os.fstat(stream.fileno())
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
