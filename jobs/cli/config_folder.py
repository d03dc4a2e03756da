"""The YAML files in --config-dir: each is read once, checked against the allow-list, and given to
Hydra from memory.

FOLDER/GROUP/NAME.yaml is the choice NAME of one of our groups. Hydra never sees the folder: what
was checked is what is composed, whatever happens to the files meanwhile. Files and folders whose
names begin with a dot are passed over.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from desa_ray.errors import DesaError, Problems, listed
from desa_ray.path_names import why_not

from .config_rules import COMPARE, EXPERIMENT, GLOBAL, GROUPS, default_faults, faults
from .safe_yaml import MAX_BYTES, Document, decoded, read_document

KNOWN = (*GROUPS, *GLOBAL, COMPARE)
MAX_ENTRIES = 10_000  # files and folders that are looked at
MAX_TOTAL = 2 << 20  # bytes of all YAML files together
MAX_DEFAULTS = 50  # files that one choice may bring with it
HEADER = "# @package _global_"
_PACKAGE = re.compile(r"#+\s*@\s*package\b\s*(.*)", re.IGNORECASE)
PLACE = "put it at GROUP/NAME.yaml, with a GROUP of " + ", ".join(KNOWN)


@dataclass(frozen=True)
class OwnFile:
    """One checked file: the choice `name` of `group`. `content` is what Hydra composes, `data` the
    bytes it is from.
    """

    group: str
    name: str
    content: Mapping[str, Any]
    data: bytes
    where: str

    @property
    def own_defaults(self) -> list[str]:
        """The files of its own group that it is built upon."""
        return [
            item
            for item in self.content.get("defaults", ())
            if isinstance(item, str) and item != "_self_"
        ]


def read_folder(folder: Path) -> list[OwnFile]:
    """All YAML files below `folder`.

    Raises:
        Problems: everything in any of them that is not allowed, with file and line.
        DesaError: there is no such folder.
    """
    if not folder.is_dir():
        hint = "name the folder that holds method/ ..."
        raise DesaError("no such folder", where=f"--config-dir {_label(folder)}", hint=hint)
    files: list[OwnFile] = []
    problems: list[DesaError] = []
    left = MAX_TOTAL
    for path in _yaml_files(folder, problems):
        where = _label(path)
        try:
            data = _read(path, where)
            left -= len(data)
            if left < 0:
                raise DesaError(
                    f"{MAX_TOTAL >> 20} MiB of YAML were read before it",
                    where=where,
                    hint="split the folder",
                )
            files.append(_checked(path, data, where))
        except Problems as found:
            problems += found.problems
        except DesaError as error:
            problems.append(error)
            if left < 0:
                break
    if not problems:
        problems += [*_baseless(files), *_endless(files)]
    if problems:
        raise Problems(problems)
    return files


@contextmanager
def offered(files: Sequence[OwnFile]) -> Iterator[None]:
    """Lets Hydra find the files as choices of their groups, after all those of the platform."""
    store = ConfigStore.instance()
    for file in files:
        package = "_global_" if file.group in GLOBAL else None
        store.store(
            group=file.group,
            name=file.name,
            node=dict(file.content),
            package=package,
            provider="config-dir",
        )
    try:
        yield
    finally:
        for file in files:
            store.repo.get(file.group, {}).pop(f"{file.name}.yaml", None)


def _label(path: Path) -> str:
    return str(path) if str(path).isprintable() else repr(str(path))


def _yaml_files(folder: Path, problems: list[DesaError]) -> Iterator[Path]:
    """The files that are where they should be; others go to `problems`."""
    root, seen = folder.resolve(), 0
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError as error:
            problems.append(
                DesaError(
                    f"cannot be read: {error.strerror}",
                    where=_label(place),
                    hint="fix or remove it",
                )
            )
            continue
        seen += len(entries)
        if seen > MAX_ENTRIES:
            hint = "name a folder that holds only your YAML files"
            problems.append(
                DesaError(f"holds more than {MAX_ENTRIES} files", where=_label(folder), hint=hint)
            )
            return
        for entry in entries:
            path = place / entry.name
            if entry.name.startswith("."):
                continue
            if not _inside(path, root):
                if _group(path, folder) or _is_yaml(path):
                    what = "is a link to a place outside the folder"
                    problems.append(
                        DesaError(what, where=_label(path), hint="put the file itself there")
                    )
            elif path.is_dir():
                if entry.name.lower() == "hydra":
                    hint = "remove it: settings of Hydra's own go on the command line"
                    problems.append(
                        DesaError("is not a known group", where=_label(path), hint=hint)
                    )
                elif not entry.is_symlink() or _group(path, folder):
                    waiting.append(path)
            elif _is_yaml(path):
                if path.suffix != ".yaml":
                    hint = f"rename it to {path.stem}.yaml"
                    problems.append(
                        DesaError("does not end in .yaml", where=_label(path), hint=hint)
                    )
                elif not _group(place, folder):
                    problems.append(
                        DesaError("is not in a known group", where=_label(path), hint=PLACE)
                    )
                else:
                    yield path


def _inside(path: Path, root: Path) -> bool:
    """Whether the way through all links stays below `root` and comes to an end."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _group(path: Path, folder: Path) -> bool:
    """Whether `path` is the folder of a group."""
    return path.parent == folder and path.name in KNOWN


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in (".yaml", ".yml")


def _read(path: Path, where: str) -> bytes:
    """The bytes of a plain file, one more than allowed at most."""
    try:
        # Never waits for the other end of a pipe.
        handle = os.open(path.resolve(), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise DesaError("is not a plain file", where=where, hint="put a file there")
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise DesaError(
            f"cannot be read: {error.strerror}", where=where, hint="fix or remove it"
        ) from None


def _checked(path: Path, data: bytes, where: str) -> OwnFile:
    group, name = path.parent.name, path.stem
    if why := why_not(name):
        raise DesaError(
            f"its name cannot be used as a choice: {why}",
            where=where,
            hint="use letters, digits, . _ and -",
        )
    if _brought(group, name):
        what = f"the platform has a {group} {name}, which would be used instead"
        raise DesaError(what, where=where, hint="give it another name")
    text = decoded(data, where)
    _check_header(group, text, where)
    document = read_document(text, where)
    content: Any = {} if document.value is None else document.value
    if not isinstance(content, dict):
        what = f"holds a {type(content).__name__}, not names with values"
        raise DesaError(what, where=where, hint="write NAME: VALUE lines")
    _check_content(group, document, content, where)
    return OwnFile(group, name, content, data, where)


def _brought(group: str, name: str) -> bool:
    """Whether the platform has this choice itself."""
    return (resources.files("desa_ray.conf") / group / f"{name}.yaml").is_file()


def _check_header(group: str, text: str, where: str) -> None:
    """A package header is for files that speak of all settings; an experiment has one."""
    headers = list(_headers(text))
    for number, header in headers:
        if group not in GLOBAL:
            hint = f"remove that line: the file sets {group}.* only"
            raise DesaError("has a package header", where=f"{where}:{number}", hint=hint)
        if header != "_global_":
            raise DesaError(
                "has a package other than _global_",
                where=f"{where}:{number}",
                hint=f"write {HEADER}",
            )
    if group == EXPERIMENT and not headers:
        raise DesaError(
            "has no package header", where=where, hint=f"begin it with the line {HEADER}"
        )


def _headers(text: str) -> Iterator[tuple[int, str]]:
    """Line and value of every package header among the comments that a file begins with."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if found := _PACKAGE.match(stripped):
            yield number, found[1].strip()
        elif stripped and not stripped.startswith(("#", "%", "---")):
            return


def _check_content(group: str, document: Document, content: Mapping[str, Any], where: str) -> None:
    own = {name: value for name, value in content.items() if name != "defaults"}
    found = (
        list(default_faults(group, content["defaults"], bool(own))) if "defaults" in content else []
    )
    found += faults(group, own)
    if found:
        raise Problems(
            DesaError(fault.what, where=f"{where}:{document.line(fault.place)}", hint=fault.hint)
            for fault in found
        )


def _baseless(files: Sequence[OwnFile]) -> Iterator[DesaError]:
    """Files that are built upon others that are not there."""
    known = {(file.group, file.name) for file in files}
    for file in files:
        for name in file.own_defaults:
            if (file.group, name) not in known and not _brought(file.group, name):
                hint = f"put it into --config-dir, or see `desa run --help` for every {file.group}"
                yield DesaError(
                    f"its defaults name {file.group} {name}, which is not there",
                    where=file.where,
                    hint=hint,
                )


def _endless(files: Sequence[OwnFile]) -> Iterator[DesaError]:
    """Files that are built upon themselves, or upon too many others."""
    by_name = {(file.group, file.name): file for file in files}
    sizes: dict[tuple[str, str], int] = {}

    def size(key: tuple[str, str], above: tuple[str, ...]) -> int:
        """How many files the choice brings with it, itself among them; beyond the limit where it
        has no end.
        """
        file = by_name.get(key)
        if file is None:
            return 1
        if key[1] in above or len(above) > MAX_DEFAULTS:
            return MAX_DEFAULTS + 1
        if key not in sizes:
            sizes[key] = 1 + sum(
                size((key[0], name), (*above, key[1])) for name in file.own_defaults
            )
        return sizes[key]

    for key, file in by_name.items():
        if size(key, ()) > MAX_DEFAULTS:
            what = (
                f"its defaults lead back to it, or include more than {MAX_DEFAULTS} files:"
                f" {listed(file.own_defaults)}"
            )
            yield DesaError(what, where=file.where, hint="name fewer")
