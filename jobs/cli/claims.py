"""Output folders of this process's jobs: each claimed by a lock until the verb ends, so that no two
runs share one.

Two runs started in the same second get the same folder name. The lock is the file `.in-use`; a
killed run leaves it behind, unlocked, and the next run in the same place removes it. Submitted
runs have names of their own (conf/submitted.yaml); one that was given a folder waits for it.
"""

import os
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from filelock import FileLock

from desa_ray.errors import DesaError
from desa_ray.locks import OUTPUT, holder, tried
from desa_ray.places import utf8_named

IN_USE = ".in-use"
LOOK_S = 0.5  # between two tries of a submitted run
LOOKED_AT = 300  # folders of each kind, the newest by name

_claims: list[tuple[Path, FileLock]] = []


def outputs() -> Path:
    """The folder below which Hydra makes output folders."""
    return Path(os.environ.get("DESA_OUTPUTS") or "outputs").absolute()


def claim(folder: Path) -> None:
    """Take an output folder for this process, until `release`. A submitted run waits for it, since
    nobody is there to start it again.

    Raises:
        DesaError: another process writes to it, it cannot be created, or its file system gives no
            locks.
    """
    if any(folder.absolute() == own for own, _ in _claims):
        return
    hint = "set DESA_OUTPUTS, or hydra.run.dir (a sweep: hydra.sweep.dir), to another folder"
    utf8_named(folder, hint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "set hydra.run.dir (a sweep: hydra.sweep.dir) to a folder that can be created"
        raise DesaError(
            f"cannot be created: {error.strerror or error}", where=str(folder), hint=hint
        ) from None
    lock = tried(OUTPUT, folder / IN_USE)
    if lock is None and _submitted():
        from .console import note

        note(f"waiting for {folder}: another run writes to it ({holder(folder / IN_USE)})")
        while lock is None:
            time.sleep(LOOK_S)
            lock = tried(OUTPUT, folder / IN_USE)
    if lock is None:
        what = f"another run is writing to this folder ({holder(folder / IN_USE)})"
        hint = "wait and rerun, or set hydra.run.dir (a sweep: hydra.sweep.dir) to another folder"
        raise DesaError(what, where=str(folder), hint=hint)
    _claims.append((folder.absolute(), lock))
    sweep_claims(folder)


def _submitted() -> bool:
    from .arrival import VARIABLE

    return VARIABLE in os.environ


def release() -> Iterator[Path]:
    """Give all claims back, and yield their folders."""
    while _claims:
        folder, lock = _claims.pop()
        (folder / IN_USE).unlink(missing_ok=True)
        lock.release()
        yield folder


def sweep_claims(folder: Path) -> None:
    """Remove what killed runs left of their claims: beside `folder`, and in the newest folders of
    outputs.
    """
    own = {claimed for claimed, _ in _claims}
    patterns = (("*", "*"), ("sweeps", "*", "*"), ("reports", "*", "*"))
    dated = (islice(_newest(outputs(), pattern), LOOKED_AT) for pattern in patterns)
    beside = islice(_newest(folder.absolute().parent, ("*",)), LOOKED_AT)
    for other in chain(beside, *dated):
        file = other / IN_USE
        if other in own or not file.is_file() or file.is_symlink():
            continue
        try:
            lock = tried(OUTPUT, file)
            if lock is not None:  # its process is dead
                file.unlink(missing_ok=True)
                lock.release()
        except (DesaError, OSError):
            continue  # somebody else's folder: left as it is


def _newest(folder: Path, steps: Sequence[str]) -> Iterator[Path]:
    """Folders below `folder` along `steps` (a name, or `*`), from the last name to the first."""
    if not steps:
        yield folder
        return
    step, *rest = steps
    try:
        names = [path.name for path in folder.iterdir()] if step == "*" else [step]
    except OSError:
        return
    for name in sorted(names, reverse=True):
        inner = folder / name
        if inner.is_dir() and not inner.is_symlink():
            yield from _newest(inner, rest)
