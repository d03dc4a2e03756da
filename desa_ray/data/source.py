"""A folder or zip in BEIR layout as named streams of bytes; nothing is ever extracted.

Names are logical: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`, whether they lie in a folder, in a zip, in a
zip's single wrapping folder, or are gzipped (`.gz`). So a collection's identity does not depend on its packing.
"""

import gzip
import hashlib
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, cast

from desa_ray.errors import DesaError, listed
from desa_ray.lines import shown

BLOCK = 1 << 20
MAX_BYTES = 64 << 30  # the largest BEIR set unpacks to about 11 GiB
MAX_RATIO = 200  # text deflates to a third; a bomb reaches 1,000
SMALL = 64 << 20  # unpacked, harmless whatever the ratio
BOMB = "unpack it yourself and give the folder, if you trust it"

Opener = Callable[[], AbstractContextManager[BinaryIO]]


def _limit(packed_bytes: int) -> int:
    """Bytes that `packed_bytes` may unpack to before they count as a decompression bomb."""
    return min(MAX_BYTES, max(SMALL, MAX_RATIO * packed_bytes))


@dataclass(frozen=True)
class SourceFile:
    """One file of a source: `label` for messages, and its (unpacked) bytes, of which more than `limit` is an error.

    `state` is what tells that the file on the disk is still the same.
    """

    label: str
    open: Opener
    limit: int
    state: tuple[int, int, int]

    def blocks(self) -> Iterator[bytes]:
        """The bytes, in blocks of at most 1 MiB."""
        total = 0
        try:
            with self.open() as stream:
                while block := stream.read(BLOCK):
                    total += len(block)
                    if total > self.limit:
                        raise DesaError(f"unpacks to more than {self.limit >> 20} MiB", where=self.label, mend=BOMB)
                    yield block
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
            raise DesaError(f"cannot be read: {error}", where=self.label) from error

    def sha256(self) -> str:
        """Hex digest of the bytes, read once a process while `state` lasts: the cells of a sweep share them."""
        known = (self.label, self.state)
        if known not in _digests:
            digest = hashlib.sha256()
            for block in self.blocks():
                digest.update(block)
            _digests[known] = digest.hexdigest()
        return _digests[known]


_digests: dict[tuple[str, tuple[int, int, int]], str] = {}


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def open_source(path: Path) -> dict[str, SourceFile]:
    """Logical name -> file, for the files in BEIR layout that lie in the folder or zip `path`.

    Raises:
        DesaError: no such path, not a zip, or an archive that could write or unpack where it must not.
    """
    try:
        found = list(_folder_files(path) if path.is_dir() else _zip_files(path))
    except FileNotFoundError:
        raise DesaError("no such folder or zip", where=str(path)) from None
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise DesaError(f"cannot be opened as a folder or zip: {error}", where=str(path)) from error
    files: dict[str, SourceFile] = {}
    for name, file in sorted(found, key=itemgetter(0)):
        logical = name.removesuffix(".gz")
        if logical in files:
            raise DesaError(f"holds {logical} twice", where=str(path), mend="keep one of them")
        files[logical] = file
    return files


def holds_generations(path: Path) -> bool:
    """Whether the zip `path` has recorded texts in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any("generations" in name.split("/")[:-1] for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return False


def _wanted(name: str) -> bool:
    folder, _, base = name.removesuffix(".gz").rpartition("/")
    return (not folder and base in ("corpus.jsonl", "queries.jsonl")) or (folder == "qrels" and base.endswith(".tsv"))


def _folder_files(folder: Path) -> Iterator[tuple[str, SourceFile]]:
    qrels = folder / "qrels"
    for file in [*folder.iterdir(), *(qrels.iterdir() if qrels.is_dir() else ())]:
        name = file.relative_to(folder).as_posix()
        if _wanted(name):
            if not file.is_file():  # a pipe or a device would never end
                raise DesaError("is not a plain file", where=str(file), mend="put a file there")
            opener = cast(Opener, partial(open, file, "rb"))
            state = _state(file)
            yield name, _unpacked(name, SourceFile(str(file), opener, MAX_BYTES, state), state[0])


def _zip_files(path: Path) -> Iterator[tuple[str, SourceFile]]:
    if path.exists() and not path.is_file():
        raise DesaError("is neither a folder nor a plain file", where=str(path), mend="name a folder or a zip")
    state = _state(path)
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
    _refuse_unsafe(path, members)
    members = [member for member in members if not member.filename.startswith("__MACOSX/")]
    tops = {"".join(member.filename.partition("/")[:2]) for member in members}
    only = tops.pop() if len(tops) == 1 else ""
    wrapping = only if only.endswith("/") else ""  # one folder that holds everything: look inside it
    for member in members:
        name = member.filename.removeprefix(wrapping)
        if _wanted(name):
            label, opener = f"{path}/{member.filename}", partial(_open_member, path, member)
            file = SourceFile(label, opener, _limit(member.compress_size), state)
            yield name, _unpacked(name, file, member.file_size)


def _refuse_unsafe(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Members are only streamed, so a bad name could do no harm here; it still marks an archive not to be trusted."""

    def outside(name: str) -> bool:
        return name.startswith("/") or "\\" in name or ":" in name.partition("/")[0] or ".." in name.split("/")

    reasons: dict[str, Callable[[zipfile.ZipInfo], bool]] = {
        "names that lead out of the archive": lambda member: outside(member.filename),
        "symbolic links": lambda member: stat.S_ISLNK(member.external_attr >> 16),
        "encrypted members": lambda member: bool(member.flag_bits & 1),
        "members that look like decompression bombs": lambda member: member.file_size > _limit(member.compress_size),
    }
    for what, bad in reasons.items():
        if names := [shown(member.filename) for member in members if bad(member)]:
            raise DesaError(f"refused, {len(names)} {what}: {listed(names)}", where=str(path), mend=BOMB)
    if sum(member.file_size for member in members) > MAX_BYTES:
        raise DesaError(f"refused, unpacks to more than {MAX_BYTES >> 30} GiB", where=str(path), mend=BOMB)


@contextmanager
def _open_member(path: Path, member: zipfile.ZipInfo) -> Iterator[BinaryIO]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        yield cast(BinaryIO, stream)


def _unpacked(name: str, file: SourceFile, packed_bytes: int) -> SourceFile:
    """The file itself, or the gunzipped stream of one named `.gz`."""
    if not name.endswith(".gz"):
        return file

    @contextmanager
    def gunzip() -> Iterator[BinaryIO]:
        with file.open() as packed, gzip.open(packed) as stream:
            yield cast(BinaryIO, stream)

    return replace(file, open=gunzip, limit=_limit(packed_bytes))
