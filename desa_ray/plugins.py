"""Plug-ins: found by entry points, identified by their distribution's files, loaded when named.

A distribution offers an object to a group (`GROUPS`) under a name. Its identity is the
distribution's name and version and one SHA-256 over all its files; it enters the keys of what the
object decides, and every process that loads the object compares it with the plan's.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from desa_ray.errors import DesaError, choices, listed
from desa_ray.path_names import why_not

GROUPS = ("operators", "encoders", "generators", "readers", "fusion", "prompts")
PREFIX = "desa_ray."
INSTALL = "install the same version of it here and on every node"
# Folders of a source tree that hold no code of the package.
PASSED_OVER = frozenset({"__pycache__", "build", "dist", "node_modules"})
Identity = dict[str, str]


@dataclass(frozen=True)
class Plugin:
    """One entry point: `name` in `group`, offered by `distribution`."""

    group: str
    name: str
    distribution: Distribution
    entry: EntryPoint

    @property
    def identity(self) -> Identity:
        """`distribution`, `version` and `sha256`, as they enter keys.

        Raises:
            DesaError: the files of the distribution are not to be found.
        """
        return _identity(self.distribution)

    def load(self, expected: Mapping[str, str] | None = None) -> Any:
        """The object.

        Args:
            expected: the identity that the plan was made with; None where this is the plan.

        Raises:
            DesaError: the code here is other than the plan's, or cannot be loaded.
        """
        own = self.identity
        if expected is not None and own != expected:
            what = f"is {told(own)} here, but the plan was made with {told(expected)}"
            raise DesaError(what, where=self.where, hint=INSTALL)
        try:
            return self.entry.load()
        except Exception as error:  # foreign code: anything
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise DesaError(
                f"cannot be loaded: {reason}", where=self.where, hint="correct or reinstall it"
            ) from error

    @property
    def where(self) -> str:
        return f"plug-in {self.name} ({PREFIX}{self.group}, {self.distribution.metadata['Name']})"

    def called(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What a function of it returns; whatever it raises becomes one line."""
        try:
            return function(*given, **named)
        except DesaError:
            raise
        except Exception as error:  # foreign code: anything
            said = " ".join(str(error).split())[:200]
            what = f"failed: {type(error).__name__}: {said}"
            raise self.wrong(what, "correct the plug-in") from error

    def wrong(self, what: str, hint: str) -> DesaError:
        """An error about this plug-in."""
        return DesaError(what, where=self.where, hint=hint)


def told(identity: Mapping[str, str]) -> str:
    """An identity in words."""
    name, version = identity["distribution"], identity["version"]
    return f"{name} {version} ({identity['sha256'][:12]})"


@cache
def _entries() -> Any:
    """All entry points of this environment, read once per process: it takes a tenth of a second."""
    return entry_points()


@cache
def plugins(group: str) -> dict[str, Plugin]:
    """The plug-ins of a group by name; nothing of them is imported.

    Raises:
        DesaError: a name cannot be written in a setting, or two distributions offer the same.
    """
    found: dict[str, Plugin] = {}
    for entry in _entries().select(group=PREFIX + group):
        assert entry.dist is not None
        own = Plugin(group, entry.name, entry.dist, entry)
        if why := why_not(entry.name):
            raise own.wrong(why, "rename the entry point")
        if entry.name in found:
            other = found[entry.name].distribution.metadata["Name"]
            raise own.wrong(f"{other} also offers that name", "uninstall one of them")
        found[entry.name] = own
    return dict(sorted(found.items()))


def shadowed(group: str, name: str, known: Mapping[str, Any]) -> DesaError | None:
    """Why a name of the platform's own cannot be used: a plug-in has it too, and would be passed
    over in silence.
    """
    if name in known and name in plugins(group):
        return plugins(group)[name].wrong(
            "the platform itself uses that name", "rename the entry point"
        )
    return None


def plugin(group: str, name: str, known: Mapping[str, Any], where: str) -> Plugin:
    """The plug-in of that name.

    Args:
        known: what the platform itself knows under names of this kind.
        where: the setting that names it.

    Raises:
        DesaError: there is none; names what there is.
    """
    found = plugins(group)
    if name not in found:
        raise DesaError(
            f"unknown {where.rpartition('.')[2]} {name!r}",
            where=where,
            hint=choices(name, [*known, *found]),
        )
    return found[name]


def known_names(group: str, own: Mapping[str, Any]) -> list[str]:
    """What a setting can name: the platform's own, then those of plug-ins."""
    return [*own, *(name for name in plugins(group) if name not in own)]


def differing(expected: Mapping[str, Identity]) -> list[str]:
    """Which of these plug-ins (`group: name` -> identity) are others here, or missing: in words."""
    found = []
    for label, wanted in expected.items():
        group, _, name = label.partition(": ")
        own = plugins(group).get(name)
        if own is None:
            found.append(f"plug-in {label} of {told(wanted)} is not installed")
        elif own.identity != wanted:
            found.append(f"plug-in {label} is {told(own.identity)}, not {told(wanted)}")
    return found


def offered() -> Iterator[tuple[Identity, list[str]]]:
    """Every distribution with plug-ins: its identity, and `group: name` of each; for the doctor."""
    by_distribution: dict[str, tuple[Distribution, list[str]]] = {}
    for group in GROUPS:
        for name, own in plugins(group).items():
            key = own.distribution.metadata["Name"]
            names = by_distribution.setdefault(key, (own.distribution, []))[1]
            names.append(f"{group}: {name}")
    for distribution, names in by_distribution.values():
        yield _identity(distribution), names


_IDENTITIES: dict[str, Identity] = {}


def _identity(distribution: Distribution) -> Identity:
    """Hashed once per process, before any of it is imported."""
    name = distribution.metadata["Name"]
    if name not in _IDENTITIES:
        digest = hashlib.sha256()
        for entry in sorted(
            (entry.group, entry.name, entry.value)
            for entry in distribution.entry_points
            if entry.group.startswith(PREFIX)
        ):
            digest.update(f"{' '.join(entry)}\n".encode())
        files = _files(distribution)
        for path in sorted(files):
            content = hashlib.sha256(_read(files[path], name)).hexdigest()
            digest.update(os.fsencode(f"{path} {content}\n"))
        _IDENTITIES[name] = {
            "distribution": name,
            "version": distribution.version,
            "sha256": digest.hexdigest(),
        }
    return _IDENTITIES[name]


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise DesaError(what, where=str(path), hint=f"install {name} again") from None


def _files(distribution: Distribution) -> dict[str, Path]:
    """The files of a distribution by their names below its root, without what Python makes of
    them.
    """
    source = _source_tree(distribution)
    if source is not None:
        return _tree(source)
    name = distribution.metadata["Name"]
    files = distribution.files
    found: dict[str, Path] = {}
    for file in files or ():
        parts = file.parts
        if parts[0] == ".." or parts[0].endswith(".dist-info") or "__pycache__" in parts:
            continue
        found[file.as_posix()] = Path(str(distribution.locate_file(file)))
    if not found:
        raise DesaError(
            "its distribution lists no files", where=f"plug-in {name}", hint="install it with pip"
        )
    return found


def _source_tree(distribution: Distribution) -> Path | None:
    """The folder that an editable installation leads to; None for any other."""
    told_by_pip = distribution.read_text("direct_url.json")
    if told_by_pip is None:
        return None
    facts = json.loads(told_by_pip)
    if not facts.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(facts["url"]).path))


def _tree(source: Path) -> dict[str, Path]:
    """The modules at the top of a source tree (or of its src/), and every file of the folders there
    that hold modules; so a folder of results next to the code does not count.
    """
    found: dict[str, Path] = {}
    for root in (source, source / "src"):
        for place in sorted(root.iterdir()) if root.is_dir() else ():
            if place.is_file() and place.suffix == ".py":
                found[place.relative_to(source).as_posix()] = place
            elif place.is_dir() and place != source / "src" and not _passed_over(place):
                files = list(_walk(place))
                if any(file.suffix == ".py" for file in files):
                    found |= {file.relative_to(source).as_posix(): file for file in files}
    if not found:
        raise DesaError("contains no modules", where=str(source), hint="install the plug-in again")
    return found


def _passed_over(folder: Path) -> bool:
    name = folder.name
    hidden = name.startswith(".") or name.endswith((".egg-info", ".dist-info"))
    return hidden or name in PASSED_OVER or (folder / "pyvenv.cfg").is_file()


def _walk(folder: Path) -> Iterator[Path]:
    for below, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(below) / name).is_symlink()]
        if links:
            what = f"{listed(links)}: a link to a folder, whose files are not compared"
            raise DesaError(what, where=below, hint="put the folder itself there")
        folders[:] = [name for name in folders if not _passed_over(Path(below) / name)]
        yield from (Path(below) / name for name in files if not name.endswith(".pyc"))
