"""All file access of the store: a file is published whole, once, or not at all.

On a local file system a file is written under a hidden temporary name in the same folder, flushed
to the disk, and linked to its final name: a link, unlike a rename, fails when the name is taken, so
the first of two racing writers wins and a killed one leaves nothing but its temporary file. On any
other fsspec file system one conditional put (`mode="create"`) does the same; object stores never
show half an object.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from desa_ray.errors import CorruptArtifact, DesaError
from desa_ray.files import flush, sha256_file
from desa_ray.store.copies import own_copies
from desa_ray.store.faults import explained
from desa_ray.store.writing import Content, PublishedFile, written

TEMPORARY = ".tmp-"
LEASES = ".leases"  # the one folder whose files change: who is at work (leases.py)
_WORD = r"(\.tmp-)?[A-Za-z0-9][A-Za-z0-9._*-]*"
NAME = re.compile(rf"\{LEASES}|(\{LEASES}/)?{_WORD}(/{_WORD})*")

# path -> stamp and SHA-256 of the files that this process has checked
_verified: dict[str, tuple[object, ...]] = {}


class NameTakenError(Exception):
    """The file `name` holds other bytes already: our own signal that another writer was first,
    never a user's error.
    """

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class FileStat:
    """Size in bytes; time of the last change in seconds since 1970 (0 where the file system does
    not tell).
    """

    bytes: int
    modified: float


class Files:
    """Write-once files below one root: a local folder or any fsspec URL. Names are relative, with
    `/`.

    Args:
        copies: parts are read from copies on this node's disk, as those of a remote store always
            are (`desa_ray.store.copies`); for folders on a slow network disk.

    Every method raises DesaError where the disk is full, read-only, forbidden, or a file is in
    the way.

    Raises:
        DesaError: an unknown or uninstalled file system, or a root that is a file.
    """

    def __init__(self, root: str | os.PathLike[str], *, copies: bool = False):
        self.root = os.fspath(root)
        # Never show a password that a URL holds
        self.shown = re.sub(r"//[^/@]*@", "//", self.root).rstrip("/")
        try:
            self._fs, self._base = _file_system(self.root)
        except Exception as error:  # some connect here, and raise what their libraries raise
            said = " ".join(str(error).split()) or type(error).__name__
            hint = "set store.root to a folder, or to a bucket that answers"
            raise DesaError(f"cannot open it: {said}", where=self.shown, hint=hint) from error
        self._local = isinstance(self._fs, LocalFileSystem)
        self.copied = copies or not self._local
        if self._local:
            # Absolute, as it travels to processes that work elsewhere
            self.root = self.shown = self._base
            if os.path.lexists(self._base) and not Path(self._base).is_dir():
                raise DesaError(
                    "is a file, not a folder", where=self.shown, hint="set store.root to a folder"
                )

    def __reduce__(self):
        return _files_at, (self.root, self.copied)

    @property
    def local(self) -> Path | None:
        """The root as a local folder, None elsewhere."""
        return Path(self._base) if self._local else None

    def where(self, name: str) -> str:
        """The place of `name` as errors show it."""
        return f"{self.shown}/{name}"

    def read_bytes(self, name: str) -> bytes | None:
        """The file's bytes, or None where there is no such file.

        Raises:
            CorruptArtifact: a folder is in its place, or a pipe or device, which might never end.
        """
        with self._explained("read", name):
            try:
                if self._local and not stat.S_ISREG(Path(self._path(name)).stat().st_mode):
                    raise self.corrupt(name, "is not a plain file")
                return self._fs.cat_file(self._path(name))
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        """The file's size in bytes, or None where there is no such file."""
        with self._explained("read", name):
            try:
                return self._fs.size(self._path(name))
            except FileNotFoundError:
                return None

    def exists(self, name: str) -> bool:
        return self.size(name) is not None

    def free_bytes(self) -> int | None:
        """What a writer may still fill of the disk that holds the root; None where it is unknown
        (an object store).
        """
        if not self._local:
            return None
        place = Path(self._base)
        return shutil.disk_usage(
            next(folder for folder in (place, *place.parents) if folder.exists())
        ).free

    def list(self, folder: str = "", *, leftovers: bool = False) -> dict[str, FileStat]:
        """The names in `folder` in order, folders included (size 0), foreign names left out.

        With `leftovers`, instead the temporary files of writers that are at work or were killed.
        """
        with self._explained("list", folder):
            try:
                entries = self._fs.ls(self._path(folder) if folder else self._base, detail=True)
            except FileNotFoundError:
                return {}
        found: dict[str, FileStat] = {}
        for entry in entries:
            name = entry["name"].rstrip("/").rpartition("/")[2]
            if NAME.fullmatch(name) and name.startswith(TEMPORARY) == leftovers:
                size = entry["size"] if entry["type"] == "file" else 0
                changed = next(
                    (
                        entry[field]
                        for field in ("mtime", "LastModified", "created")
                        if field in entry
                    ),
                    0.0,
                )
                found[name] = FileStat(
                    size, changed.timestamp() if isinstance(changed, datetime) else float(changed)
                )
        return dict(sorted(found.items()))

    def local_path(self, name: str, sha256: str) -> Path:
        """A local file whose bytes have this SHA-256: the file itself, or a copy that lives as long
        as the process.

        It is read once per process, and again whenever its size, time of change or inode differ.

        Raises:
            CorruptArtifact: the file is missing or has other bytes; names it, both hashes and the
                hint.
        """
        with self._explained("read", name):
            try:
                path = self._copy(name, sha256) if self.copied else Path(self._path(name))
                stat = path.stat()
                stamp = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, sha256)
                if _verified.get(str(path)) == stamp:
                    return path
                found = sha256_file(path)
            except FileNotFoundError:
                raise self.corrupt(name, f"is missing, expected SHA-256 {sha256}") from None
            if found != sha256:
                if self.copied:
                    path.unlink(missing_ok=True)
                raise self.corrupt(
                    name, f"expected SHA-256 {sha256}, found {found} ({stat.st_size} bytes)"
                )
        # A file changed again within one tick of the clock keeps its stamp: trust only a stamp of
        # some age.
        if time.time_ns() - stat.st_mtime_ns > 2_000_000_000:
            _verified[str(path)] = stamp
        return path

    def publish(self, name: str, content: Content) -> PublishedFile:
        """Write a file whole and once; a file of this name with the same bytes is kept.

        A `*` in `name` stands for the first 12 hex digits of the SHA-256 of the bytes.

        Raises:
            NameTakenError: a file of this name has other bytes.
        """
        self._path(name)  # refuses what is not a name
        with self._explained("write", name):
            if self._local:
                return self._publish_local(name, content)
            with tempfile.TemporaryDirectory(dir=own_copies(os.getpid()).folder.path) as folder:
                source = Path(folder, Path(name).name.replace("*", ""))
                published = written(name, content, source)
                path = self._path(published.name)
                if isinstance(content, bytes):
                    self._once(published, lambda: self._fs.pipe_file(path, content, mode="create"))
                else:
                    self._once(
                        published, lambda: self._fs.put_file(str(source), path, mode="create")
                    )
                return published

    def overwrite(self, name: str, data: bytes) -> None:
        """Write a lease, whole, in place of what stood there; readers see one or the other."""
        assert name.startswith(f"{LEASES}/"), name
        with self._explained("write", name):
            path = self._path(name)
            if not self._local:
                self._fs.pipe_file(path, data)
                return
            temporary = Path(path).with_name(f"{TEMPORARY}{uuid4().hex}")
            try:
                temporary.write_bytes(data)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        """Remove a file; nothing to do where there is none."""
        with self._explained("delete", name):
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                return

    def delete_folder(self, name: str) -> None:
        """Remove an empty folder; one that is gone, or filled by another writer meanwhile, is left
        to them.
        """
        if self._local:
            with self._explained("delete", name):
                try:
                    Path(self._path(name)).rmdir()
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                        raise

    def _publish_local(self, name: str, content: Content) -> PublishedFile:
        folder = Path(self._path(name)).parent
        made = [parent for parent in (folder, *folder.parents) if not parent.is_dir()]
        folder.mkdir(parents=True, exist_ok=True)
        for parent in made:
            flush(parent.parent)
        temporary = folder / f"{TEMPORARY}{uuid4().hex}-{Path(name).name.replace('*', '')}"
        try:
            published = written(name, content, temporary)
            self._once(published, lambda: os.link(temporary, self._path(published.name)))
        except OSError as error:
            if error.filename2 is None or error.errno not in (
                errno.EPERM,
                errno.EOPNOTSUPP,
                errno.ENOSYS,
            ):
                raise
            what = (
                "this file system has no hard links, which are needed to publish a file only once"
            )
            raise DesaError(
                what, where=self.where(name), hint="set store.root to another disk"
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        flush(folder)
        return published

    def _copy(self, name: str, sha256: str) -> Path:
        """The copy of a file on this node, fetched where there is none yet."""
        remote = self._path(name)
        return own_copies(os.getpid()).get(
            Path(name).name, sha256, lambda path: self._fs.get_file(remote, path)
        )

    def _once(self, published: PublishedFile, place: Callable[[], object]) -> None:
        """Give the file its final name by `place`, or see that a file of this name has the same
        bytes.
        """
        while True:
            try:
                place()
                return
            except FileExistsError:
                with suppress(FileNotFoundError):
                    # Removed meanwhile by the writer that lost: place it again
                    with self._fs.open(self._path(published.name), "rb") as file:
                        found = hashlib.file_digest(file, "sha256").hexdigest()
                    if found != published.sha256:
                        raise NameTakenError(published.name) from None
                    return

    def _explained(self, doing: str, name: str) -> AbstractContextManager[None]:
        return explained(doing, self.where(name), self._base)

    def corrupt(self, name: str, what: str) -> CorruptArtifact:
        """The error for a file that is not what it was; the hint names its folder."""
        hint = f"rerun with store.repair=true, or delete {self.where(name.rpartition('/')[0])}"
        return CorruptArtifact(what, where=self.where(name), hint=hint)

    def _path(self, name: str) -> str:
        if not NAME.fullmatch(name):
            raise DesaError(
                f"{name!r} is not a file name",
                where=self.shown,
                hint="use letters, digits, . _ and -",
            )
        return f"{self._base.rstrip('/')}/{name}"


def _files_at(root: str, copies: bool) -> Files:
    return Files(root, copies=copies)


def _file_system(root: str) -> tuple[Any, str]:
    """Who serves a root, and its name there. Only an address has a scheme; `::` in a folder's name
    is two letters.
    """
    if "://" in root:
        return url_to_fs(root, use_listings_cache=False)
    local: Any = LocalFileSystem(use_listings_cache=False)
    return local, str(local._strip_protocol(root))
