"""One artifact: its layout, its write-once parts and the manifest that makes it exist."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from desa_ray.errors import CorruptArtifact, DesaError, Problems, listed
from desa_ray.store.exclusive import exclusive, holding
from desa_ray.store.files import Content, Files, NameTakenError
from desa_ray.store.keys import DIGEST, Key, plain
from desa_ray.store.ledger import LAYOUT, MANIFEST, Ledger, PartInfo
from desa_ray.store.makers import Maker
from desa_ray.store.sealed import seal


class Artifact:
    """The parts and the manifest of one key. Made by `Store.artifact`; cheap to make, can be
    pickled.

    Its methods raise DesaError where the folder belongs to another key (with the same first 12
    digits), and CorruptArtifact where a file that must be whole is not.
    """

    def __init__(self, files: Files, key: Key, *, repair: bool = False):
        self.key, self.repair = key, repair
        self.repaired: list[str] = []
        self._files, self._ledger = files, Ledger(files, key)
        self._stored: dict[str, Any] | None = None

    @property
    def where(self) -> str:
        """The artifact's folder, for messages."""
        return self._files.where(self._ledger.folder)

    def exists(self) -> bool:
        """Whether it is complete. With `repair`, damaged parts are found and dropped first, and
        named in `repaired`.
        """
        if self.repair and not holding() and self.damage():
            # Looked at again under the lock: another run may have dropped it, or written it again,
            # in between.
            with exclusive(self._files, self.key):
                self._drop_damaged()
        return self._manifest() is not None

    def manifest(self) -> dict[str, Any]:
        """`key, content, counts, layout, meta, parts` of a complete artifact. Raises DesaError
        where it is not.
        """
        manifest = self._manifest()
        if manifest is None:
            raise DesaError("is not in the store", where=self.where, hint="run its stage first")
        return manifest

    def layout(self, proposed: Mapping[str, Any]) -> dict[str, Any]:
        """The stored layout (shard boundaries and the like); `proposed` becomes it where there is
        none yet.
        """
        stored = self._ledger.read(LAYOUT, self.key.digest)
        if stored is None:
            document: dict[str, Any] = {
                "key": self.key.digest,
                "layout": plain(proposed, f"layout of {self.where}"),
            }
            try:
                self._files.publish(f"{self._ledger.folder}/{LAYOUT}", seal(document))
                stored = document
            except NameTakenError:  # another writer was first: its layout holds for both
                return self.layout(proposed)
        return stored["layout"]

    def stored_layout(self) -> dict[str, Any] | None:
        """The stored layout, or None where there is none yet; publishes nothing."""
        stored = self._ledger.read(LAYOUT, self.key.digest)
        return None if stored is None else stored["layout"]

    def parts(self) -> dict[str, PartInfo]:
        """The finished parts in the order of their names: those of the manifest, or those that are
        there so far.
        """
        manifest = self._manifest()
        if manifest is None:
            return self._ledger.parts()
        return {name: PartInfo(name, **fields) for name, fields in manifest["parts"].items()}

    def has_part(self, name: str) -> bool:
        return self._part(name) is not None

    def part(self, name: str) -> PartInfo | None:
        """What is known of a finished part, or None where it is not there."""
        return self._part(name)

    def write_part(
        self,
        name: str,
        data: Content,
        *,
        rows: int,
        content: str | None = None,
        made: Sequence[Maker] | None = None,
    ) -> PartInfo:
        """Store a part unless it is there; the first writer's part counts.

        Args:
            name: letters, digits, `_` and `-`, then an extension other than json.
            data: the bytes, or a function that writes them to the local path it is given (called
                only when needed).
            rows: number of logical rows in it.
            content: hash over its logical rows.
            made: who made its rows; plain data.

        Returns:
            What is stored. A stage that is not reproducible (generation) continues with those rows,
            not with its own.
        """
        known = self._part(name)
        return known or self._ledger.write(name, data, rows=rows, content=content, made=made)

    def read_part(self, name: str) -> Path:
        """A local file with the part's bytes, checked against its SHA-256 (once per process while
        it is unchanged).

        Raises:
            CorruptArtifact: the file is missing, cut or changed; names it, both hashes and the
                hint.
            DesaError: there is no such part.
        """
        info = self._part(name)
        if info is None:
            raise DesaError(
                "is not in the store", where=self._ledger.where(name), hint="run its stage first"
            )
        return self._files.local_path(f"{self._ledger.folder}/{info.file}", info.sha256)

    def finish(
        self,
        content_hash: str,
        *,
        counts: Mapping[str, int],
        meta: Mapping[str, Any],
        parts: Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """Write the manifest; from then on the artifact is there. Where another run was first, its
        manifest counts.

        Args:
            content_hash: hex SHA-256 over the logical rows in order, whatever the parts.
            counts: what was counted (rows, documents, fallbacks, ...).
            meta: versions, commit, timings in seconds, content hashes of the inputs; plain data.
            parts: the parts it must have (default: those that are there).

        Raises:
            DesaError: a part is missing, or another run stored other content under this key.
        """
        assert DIGEST.fullmatch(content_hash), content_hash
        if self._manifest() is None:
            stored = self._ledger.parts()
            wanted = sorted(stored if parts is None else parts)
            if missing := [name for name in wanted if name not in stored]:
                what = f"{len(missing)} parts are missing: {listed(missing)}"
                raise DesaError(what, where=self.where, hint="rerun: only these are computed")
            layout = self._ledger.read(LAYOUT, self.key.digest)
            described = {name: stored[name].described() for name in wanted}
            for fields in described.values():
                del fields["name"]  # it is the key
            document = {
                "key": self.key.document(),
                "content": content_hash,
                "counts": plain(counts, "counts"),
                "layout": layout["layout"] if layout else None,
                "meta": plain(meta, "meta"),
                "parts": described,
            }
            # Where another run was first its manifest has other timings; whether the content agrees
            # is checked below.
            with suppress(NameTakenError):
                self._files.publish(f"{self._ledger.folder}/{MANIFEST}", seal(document))
        manifest = self.manifest()
        if manifest["content"] != content_hash:
            raise DesaError(
                f"holds content {manifest['content']}, this run computed {content_hash} for the"
                " same key",
                where=self.where,
                hint="delete that folder and rerun; if it happens again, raise the stage's version",
            )
        return manifest

    def discard_part(self, name: str) -> None:
        """Remove a part, so that a rerun computes it again; the manifest goes first."""
        self._unpublish()
        self._ledger.discard(name)

    def withdraw_part(self, name: str) -> None:
        """Remove a part that is no result, such as rows of a shard that is not done; the manifest
        stays, and so does a part that it names.
        """
        manifest = self._manifest()
        if manifest is None or name not in manifest["parts"]:
            self._ledger.discard(name)

    def discard(self) -> None:
        """Remove all of it: the manifest, then the sidecars, then the rest with what killed writers
        left.
        """
        self._unpublish()
        folder = self._ledger.folder
        files = [*self._files.list(folder), *self._files.list(folder, leftovers=True)]
        for file in sorted(files, key=lambda file: not file.endswith(".json")):
            self._files.delete(f"{folder}/{file}")
        self._files.delete_folder(folder)

    def damage(self) -> dict[str, CorruptArtifact]:
        """Every damaged file by the part (or `manifest.json`, `layout.json`) it belongs to; reads
        all bytes.
        """
        found: dict[str, CorruptArtifact] = {}
        self._stored = None  # what the disk holds counts, not what was read before
        for name, key in ((MANIFEST, self.key.document()), (LAYOUT, self.key.digest)):
            try:
                self._ledger.read(name, key)
            except CorruptArtifact as error:
                found[name] = error
        if MANIFEST in found:
            return found
        for name, info in self.parts().items():
            if self._ledger.sidecar(name) != info:
                place = f"{self._ledger.folder}/{name}.json"
                found[name] = self._files.corrupt(
                    place, "is missing, damaged, or differs from the manifest"
                )
                continue
            try:
                self._files.local_path(f"{self._ledger.folder}/{info.file}", info.sha256)
            except CorruptArtifact as error:
                found[name] = error
        return found

    def verify(self) -> None:
        """Check every byte. Raises CorruptArtifact, or Problems where several files are damaged."""
        errors = list(self.damage().values())
        if len(errors) > 1:
            raise Problems(errors)
        if errors:
            raise errors[0]

    def _drop_damaged(self) -> None:
        for name, error in self.damage().items():
            self.repaired.append(str(error))
            if name == MANIFEST:
                self._unpublish()
                self._drop_damaged()  # the parts that it listed are still to be checked
            elif name == LAYOUT:
                self.discard()  # without it the parts' contents are unknown
                break
            else:
                self.discard_part(name)

    def _unpublish(self) -> None:
        self._stored = None
        self._files.delete(f"{self._ledger.folder}/{MANIFEST}")

    def _manifest(self) -> dict[str, Any] | None:
        if self._stored is None:
            self._stored = self._ledger.read(MANIFEST, self.key.document())
        return self._stored

    def _part(self, name: str) -> PartInfo | None:
        manifest = self._manifest()
        if manifest is None:
            return self._ledger.part(name)
        return PartInfo(name, **manifest["parts"][name]) if name in manifest["parts"] else None
