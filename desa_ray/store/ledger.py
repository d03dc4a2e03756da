"""The resume ledger of one artifact: a part counts once its sidecar is there and its file is whole.

A part's file carries its hash in its name, and the sidecar, written after it, says which file is
the part. So two writers of one part never touch each other's bytes, a run killed between the two
blocks nothing, and no lock is needed, also on object stores: whoever publishes the sidecar first
has written the part, and the others take it over.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any

from desa_ray.errors import CorruptArtifact, DesaError
from desa_ray.store.files import Content, Files, NameTakenError
from desa_ray.store.keys import Key
from desa_ray.store.makers import Maker
from desa_ray.store.sealed import seal, unseal
from desa_ray.store.shapes import ManifestShape, SidecarShape, StoredLayoutShape, Told, checked
from desa_ray.types import canonical_json

PART = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,99})((?:\.(?!json$)[A-Za-z0-9]{1,16})?)")
SIDECAR = ".json"
MANIFEST, LAYOUT = "manifest.json", "layout.json"
SHAPES = {MANIFEST: ManifestShape, LAYOUT: StoredLayoutShape}


@dataclass(frozen=True)
class PartInfo:
    """One finished part.

    Attributes:
        name: the part's name, such as `part-00000.parquet`; parts follow each other in the order of
            their names.
        file: the file in the artifact's folder that holds its bytes.
        rows: logical rows in it.
        sha256, bytes: hash (hex) and number of the file's bytes.
        content: hash over its logical rows, where the stage gave one.
        made: who made its rows (`makers.py`), where the stage said so; no part of any hash.
    """

    name: str
    file: str
    rows: int
    sha256: str
    bytes: int
    content: str | None = None
    made: Sequence[Maker] | None = None

    def described(self) -> dict[str, Any]:
        """Its fields as documents hold them; those of parts without makers are as they always
        were.
        """
        fields = asdict(self)
        if self.made is None:
            del fields["made"]
        return fields


@dataclass(frozen=True)
class _Bytes:
    """A file's bytes, compared by their hash."""

    digest: bytes
    data: bytes = field(compare=False)


@lru_cache(maxsize=16)
def _manifest(file: _Bytes) -> dict[str, Any]:
    """A manifest, checked once while its bytes stay the same: one of thousands of parts takes a
    fifth of a second, and whoever reads a part asks for it. Nobody changes what is returned.
    """
    return checked(unseal(file.data), ManifestShape)


class Ledger:
    """The parts in the folder `<stage>/<key12>` of one key, whether or not the artifact is
    complete.
    """

    def __init__(self, files: Files, key: Key):
        self.files, self.key = files, key
        self.folder = f"{key.stage}/{key.short}"

    def where(self, name: str) -> str:
        """The place of a file of the folder as errors show it."""
        return self.files.where(f"{self.folder}/{name}")

    def read(self, name: str, key: object) -> dict[str, Any] | None:
        """A sealed document of this folder, or None where there is none.

        Raises:
            CorruptArtifact: it is cut short, was changed, holds other things than such a document
                does, or belongs in another folder.
            DesaError: its `key` is not `key`: the folder belongs to a key with the same first
                digits.
        """
        data = self.files.read_bytes(f"{self.folder}/{name}")
        if data is None:
            return None
        corrupt = partial(self.files.corrupt, f"{self.folder}/{name}")
        try:
            if name == MANIFEST:
                document = _manifest(_Bytes(sha256(data).digest(), data))
            else:
                document = checked(unseal(data), SHAPES.get(name, SidecarShape))
        except ValueError as error:
            raise corrupt(f"is damaged: {error}") from error
        if canonical_json(document["key"]) != canonical_json(key):
            found = Key(**document["key"]).digest if name == MANIFEST else document["key"]
            if found[:12] != self.key.short:
                raise corrupt(f"is damaged: its key {found[:12]} is not that of its folder")
            what = f"belongs to another key than {self.key.digest}, with the same first digits"
            raise DesaError(
                what, where=self.where(name), hint="set another store.root for one of the two"
            )
        if name == MANIFEST:
            told = {
                field: Told(document[field] or {}, field, corrupt(""))
                for field in ("counts", "layout", "meta")
            }
            return document | {
                field: value for field, value in told.items() if document[field] is not None
            }
        return document

    def sidecar(self, name: str) -> PartInfo | None:
        """What the sidecar says, or None where it is missing or damaged."""
        try:
            fields = self.read(name + SIDECAR, self.key.digest)
        except CorruptArtifact:
            return None
        if fields is None or fields.pop("name") != name:
            return None
        del fields["key"]
        return PartInfo(name, **fields)

    def part(self, name: str) -> PartInfo | None:
        """The part if it counts."""
        self.split(name)
        info = self.sidecar(name)
        return (
            info if info and self.files.size(f"{self.folder}/{info.file}") == info.bytes else None
        )

    def parts(self) -> dict[str, PartInfo]:
        """All parts that count, in the order of their names."""
        files = self.files.list(self.folder)
        names = sorted(name.removesuffix(SIDECAR) for name in files if name.endswith(SIDECAR))
        infos = [self.sidecar(name) for name in names if name not in ("manifest", "layout")]
        return {
            info.name: info
            for info in infos
            if info and info.file in files and files[info.file].bytes == info.bytes
        }

    def write(
        self,
        name: str,
        data: Content,
        *,
        rows: int,
        content: str | None,
        made: Sequence[Maker] | None = None,
    ) -> PartInfo:
        """Publish the part's file, then its sidecar; where another writer was first, its part is
        returned.
        """
        stem, extension = self.split(name)
        pattern = f"{self.folder}/{stem}-*{extension}"
        try:
            written = self.files.publish(pattern, data)
        except NameTakenError as taken:
            # Its name tells what it should hold: a damaged file that no sidecar counts
            self.files.delete(taken.name)
            written = self.files.publish(pattern, data)
        file = written.name.rpartition("/")[2]
        info = PartInfo(name, file, rows, written.sha256, written.bytes, content, made)
        sidecar = f"{self.folder}/{name}{SIDECAR}"
        while True:
            try:
                self.files.publish(sidecar, seal({"key": self.key.digest, **info.described()}))
                return info
            except NameTakenError:
                first = self.part(name)
                if first is None:  # damaged, or without its file
                    self.files.delete(sidecar)
                    continue
                if first.file != info.file:
                    self.files.delete(written.name)
                return first

    def discard(self, name: str) -> None:
        """Remove the part's sidecar, then every file of the part."""
        stem, extension = self.split(name)
        self.files.delete(f"{self.folder}/{name}{SIDECAR}")
        file = re.compile(f"{re.escape(stem)}-[0-9a-f]{{12}}{re.escape(extension)}")
        for found in filter(file.fullmatch, self.files.list(self.folder)):
            self.files.delete(f"{self.folder}/{found}")

    def split(self, name: str) -> tuple[str, str]:
        """Stem and extension (with its dot) of a part's name. Raises DesaError where it
        is not one.
        """
        match = PART.fullmatch(name)
        if match is None or name in ("manifest", "layout"):
            hint = "use letters, digits, _ and -, then an extension other than json"
            raise DesaError(
                f"{name!r} is not a part's name", where=self.files.where(self.folder), hint=hint
            )
        return match[1], match[2]
