"""A folder or zip in BEIR layout as named streams of bytes; nothing is ever extracted.

Names are logical: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`, whether they lie in a
folder, in a zip, in a zip's single wrapping folder, or are packed (`.gz`, `.zst`). So a
collection's identity does not depend on its packing.
"""

import hashlib
import stat
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, cast

from desa_ray import unpacking
from desa_ray.errors import DesaError, listed
from desa_ray.lines import shown
from desa_ray.unpacking import BOMB, DAMAGE, changed, unpacked, unreadable, without_suffix

# What desktops leave behind, beside names with a leading dot
CLUTTER = (
    "__MACOSX",
    "Thumbs.db",
    "desktop.ini",
)

Opener = Callable[[], AbstractContextManager[BinaryIO]]
State = tuple[int, int, int]


@dataclass(frozen=True)
class SourceFile:
    """One file of a source.

    Attributes:
        label: its name in messages.
        open: its bytes as they are kept, packed or not.
        limit: bytes that it may unpack to.
        size: bytes that it has as it is kept, where an archive says so.
        place: the file on the disk that holds it, and `state` what shows that it is still the same.
    """

    label: str
    open: Opener
    limit: int
    size: int | None
    place: Path
    state: State

    def blocks(self) -> Iterator[bytes]:
        """The bytes, unpacked, in blocks of about 1 MiB."""
        try:
            with self.open() as stream:
                yield from unpacked(stream, self.label, self.limit, self.size)
            self.check_unchanged()
        except DAMAGE as error:
            raise unreadable(error, self.label) from error

    def check_unchanged(self) -> None:
        """Raises DesaError where the file is not the one that was opened."""
        try:
            now = _state(self.place)
        except OSError as error:
            raise unreadable(error, self.label) from error
        if now != self.state:
            raise changed(self.label)

    def sha256(self) -> str:
        """Hex digest of the bytes, read once per process while `state` lasts: the cells of a sweep
        share them.
        """
        known = (self.label, self.state)
        if known not in _digests:
            digest = hashlib.sha256()
            for block in self.blocks():
                digest.update(block)
            _digests[known] = digest.hexdigest()
        return _digests[known]


_digests: dict[tuple[str, State], str] = {}


def _state(path: Path) -> State:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def open_source(path: Path) -> dict[str, SourceFile]:
    """Logical name -> file, for the files in BEIR layout that are in the folder or zip `path`.

    Raises:
        DesaError: no such path, not a zip, or an archive that could write or unpack where it must
            not.
    """
    try:
        found = list(_folder_files(path) if path.is_dir() else _zip_files(path))
    except FileNotFoundError:
        raise DesaError("no such folder or zip", where=str(path)) from None
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:300]
        what = f"cannot be opened as a folder or zip: {reason or type(error).__name__}"
        raise DesaError(
            what, where=str(path), hint="name a folder or a zip in BEIR layout"
        ) from error
    files: dict[str, SourceFile] = {}
    for name, file in sorted(found, key=itemgetter(0)):
        logical = without_suffix(name)
        if logical in files:
            raise DesaError(f"contains {logical} twice", where=str(path), hint="keep one of them")
        files[logical] = file
    return files


def holds_generations(path: Path) -> bool:
    """Whether the zip `path` has recorded texts in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(
                "generations" in _name(member).split("/")[:-1] for member in archive.infolist()
            )
    except DAMAGE:
        return False


def _wanted(name: str) -> bool:
    folder, _, base = without_suffix(name).rpartition("/")
    return (not folder and base in ("corpus.jsonl", "queries.jsonl")) or (
        folder == "qrels" and base.endswith(".tsv") and not base.startswith(".")
    )


def _folder_files(folder: Path) -> Iterator[tuple[str, SourceFile]]:
    qrels = folder / "qrels"
    for file in [*folder.iterdir(), *(qrels.iterdir() if qrels.is_dir() else ())]:
        name = file.relative_to(folder).as_posix()
        if _wanted(name):
            yield name, plain_file(file)


def check_split(split: str) -> None:
    """Raises DesaError for a split that could name a file elsewhere."""
    if "/" in split or "\\" in split or split.startswith("."):
        what = f"split {shown(split)} is not a name"
        raise DesaError(what, where="dataset.split", hint="write it without folders")


def plain_file(path: Path) -> SourceFile:
    """A file of a folder. Raises DesaError for what is not a file."""
    if not path.is_file():  # a pipe or a device would never end
        raise DesaError("is not a plain file", where=str(path), hint="put a file there")
    state = _state(path)
    opener = cast(Opener, partial(open, path, "rb"))
    return SourceFile(str(path), opener, unpacking.limit_of(state[0]), None, path, state)


def _zip_files(path: Path) -> Iterator[tuple[str, SourceFile]]:
    if path.exists() and not path.is_file():
        raise DesaError(
            "is neither a folder nor a plain file", where=str(path), hint="name a folder or a zip"
        )
    state = _state(path)
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not _name(member).endswith("/")]
    _refuse_unsafe(path, state[0], members)
    members = [member for member in members if not _is_clutter(_name(member))]
    tops = {"".join(_name(member).partition("/")[:2]) for member in members}
    only = tops.pop() if len(tops) == 1 else ""
    # One folder that holds everything: look inside it
    wrapping = only if only.endswith("/") else ""
    for member in members:
        name = _name(member).removeprefix(wrapping)
        if _wanted(name):
            label, opener = f"{path}/{_name(member)}", partial(_open_member, path, member)
            limit = unpacking.limit_of(member.compress_size)
            yield name, SourceFile(label, opener, limit, member.file_size, path, state)


def _name(member: zipfile.ZipInfo) -> str:
    """A member's name with slashes, as the format has it; some programs write backslashes."""
    return member.filename.replace("\\", "/")


def _is_clutter(name: str) -> bool:
    return any(part.startswith(".") or part in CLUTTER for part in name.split("/"))


def _refuse_unsafe(path: Path, size: int, members: list[zipfile.ZipInfo]) -> None:
    """Members are only streamed, so a bad name could do no harm here; it still marks an archive not
    to be trusted.
    """

    def outside(name: str) -> bool:
        return name.startswith("/") or ":" in name.partition("/")[0] or ".." in name.split("/")

    def bomb(member: zipfile.ZipInfo) -> bool:
        return member.file_size > unpacking.limit_of(member.compress_size)

    reasons: dict[str, Callable[[zipfile.ZipInfo], bool]] = {
        "names that point outside the archive": lambda member: outside(_name(member)),
        "symbolic links": lambda member: stat.S_ISLNK(member.external_attr >> 16),
        "encrypted members": lambda member: bool(member.flag_bits & 1),
        "members larger than the archive": lambda member: (
            member.header_offset + member.compress_size > size
        ),
        "members that look like decompression bombs": bomb,
    }
    for what, bad in reasons.items():
        if names := [shown(member.filename) for member in members if bad(member)]:
            raise DesaError(
                f"refused, {len(names)} {what}: {listed(names)}", where=str(path), hint=BOMB
            )
    if sum(member.compress_size for member in members) > size:
        raise DesaError("refused: its members overlap", where=str(path), hint=BOMB)
    if sum(member.file_size for member in members) > unpacking.MAX_BYTES:
        raise DesaError(
            f"refused: unpacks to more than {unpacking.MAX_BYTES >> 30} GiB",
            where=str(path),
            hint=BOMB,
        )


@contextmanager
def _open_member(path: Path, member: zipfile.ZipInfo) -> Generator[BinaryIO]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        yield cast(BinaryIO, stream)
