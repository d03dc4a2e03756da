"""The artifacts of a store: folders of write-once parts with a manifest written last. Without a
manifest, an artifact does not exist.

<root>/<stage>/<key12>/
    layout.json                   how the work was cut, fixed at the first write
    part-00000-<sha12>.parquet    a part's bytes
    part-00000.parquet.json       its sidecar (ledger.py)
    manifest.json                 full key, content hash, parts, counts; written last
"""

import os
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any
from uuid import uuid4

from desa_ray.errors import DesaError
from desa_ray.locks import STAGE, check_locks
from desa_ray.store.artifact import Artifact
from desa_ray.store.catalog import Entry, entries, entry, manifests
from desa_ray.store.exclusive import exclusive
from desa_ray.store.files import Files, NameTakenError
from desa_ray.store.keys import Key


class Store:
    """Artifacts below `root`, a local folder or an fsspec URL. With `repair`, damaged parts are
    dropped when met; with `copies`, parts are read from copies on this node's disk.
    """

    def __init__(self, root: str | os.PathLike[str], *, repair: bool = False, copies: bool = False):
        self.files = Files(root, copies=copies)
        self.repair = repair
        self._held: dict[str, Artifact] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A store travels as its place: a worker opens it once, and repairs nothing."""
        return _store_at, (self.files.root, self.files.copied)

    def artifact(self, key: Key) -> Artifact:
        if self._held is None:
            return Artifact(self.files, key, repair=self.repair)
        if key.digest not in self._held:
            self._held[key.digest] = Artifact(self.files, key, repair=self.repair)
        return self._held[key.digest]

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Within it, the manifest of a complete artifact is read once: plans ask for the same few
        thousands of times. For one thread, while nothing is written or dropped.
        """
        if self.repair or self._held is not None:
            yield
            return
        self._held = {}
        try:
            yield
        finally:
            self._held = None

    def check_writable(self) -> None:
        """Publish, fail to overwrite and remove a small file; take and give back a lock.

        Raises:
            DesaError: read-only, full, forbidden, unreachable, no hard links or locks, or the first
                of two writers does not win.
        """
        if self.files.local is not None:
            check_locks(STAGE, self.files.local)
        probe = f"probe-{uuid4().hex}"
        self.files.publish(probe, b"first")
        try:
            self.files.publish(probe, b"second")
        except NameTakenError:
            return
        finally:
            self.files.delete(probe)
        hint = "use a server that honours conditional puts (If-None-Match: *), or a shared folder"
        raise DesaError(
            "a second writer overwrites what the first wrote", where=self.files.shown, hint=hint
        )

    def exclusive(self, key: Key) -> AbstractContextManager[None]:
        """One process at a time decides what of this key is out of date, and fixes its layout
        (`exclusive.py`).
        """
        return exclusive(self.files, key)

    def find(self, stage: str, digest: str) -> Entry | None:
        """The artifact of this stage whose key has this digest, or None."""
        found = entry(self.files, stage, digest[:12])
        return None if found is None or (found.key and found.key.digest != digest) else found

    def manifests(self, stage: str) -> Iterator[dict[str, Any]]:
        """The manifests of a stage's complete artifacts, newest first."""
        return manifests(self.files, stage)

    def list(self) -> Iterator[Entry]:
        """All artifacts, complete or not, by stage and key."""
        return entries(self.files)


@cache
def _store_at(root: str, copies: bool) -> Store:
    return Store(root, copies=copies)
