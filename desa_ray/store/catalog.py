"""The contents of a store, for the people who maintain the disk: every artifact's folder, complete
or not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from desa_ray.errors import CorruptArtifact, DesaError
from desa_ray.store.files import Files
from desa_ray.store.keys import STAGE, Key
from desa_ray.store.sealed import unseal
from desa_ray.store.shapes import ManifestShape, checked

SHORT = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Entry:
    """One artifact's folder.

    Attributes:
        stage, short: its place, `<stage>/<short>`.
        key: the full key; None where it is incomplete or its manifest is damaged.
        bytes: the size of all its files, with what killed writers left.
        last_use: time of the last change of any of its files, in seconds since 1970.
        problem: why its manifest cannot be read; empty where it can, or there is none.
    """

    stage: str
    short: str
    key: Key | None
    bytes: int
    last_use: float
    problem: str = ""

    @property
    def complete(self) -> bool:
        return self.key is not None


def entries(files: Files) -> Iterator[Entry]:
    """All artifacts' folders by stage and key; other files below the root are passed over."""
    for stage in filter(STAGE.fullmatch, files.list()):
        for short in filter(SHORT.fullmatch, files.list(stage)):
            found = entry(files, stage, short)
            if found is not None:
                yield found


def manifests(files: Files, stage: str) -> Iterator[dict[str, Any]]:
    """The manifests of a stage's complete artifacts, newest first; damaged ones are passed over."""
    folders = files.list(stage)
    for short in sorted(
        filter(SHORT.fullmatch, folders), key=lambda short: -folders[short].modified
    ):
        try:
            data = files.read_bytes(f"{stage}/{short}/manifest.json")
        except CorruptArtifact:
            continue
        if data is not None:
            try:
                yield _manifest(data, stage, short)[0]
            except (ValueError, DesaError):
                continue


def entry(files: Files, stage: str, short: str) -> Entry | None:
    """The folder `<stage>/<short>`, or None where it is missing or empty."""
    folder = f"{stage}/{short}"
    stats = [*files.list(folder).values(), *files.list(folder, leftovers=True).values()]
    if not stats:
        return None
    key, problem = None, ""
    try:
        manifest = files.read_bytes(f"{folder}/manifest.json")
    except CorruptArtifact as error:
        manifest, problem = None, str(error)
    if manifest is not None:
        try:
            _, key = _manifest(manifest, stage, short)
        except (ValueError, DesaError) as error:
            problem = f"{files.where(folder)}/manifest.json is damaged: {error}"
    size, newest = sum(stat.bytes for stat in stats), max(stat.modified for stat in stats)
    return Entry(stage, short, key, size, newest, problem)


def _manifest(data: bytes, stage: str, short: str) -> tuple[dict[str, Any], Key]:
    """A manifest and its key. Raises ValueError or DesaError where it is damaged, or belongs to
    another place.
    """
    document = checked(unseal(data), ManifestShape)
    key = Key(**document["key"])
    if (key.stage, key.short) != (stage, short):
        raise ValueError(f"its key belongs in {key.stage}/{key.short}")
    return document, key
