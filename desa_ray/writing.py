"""Writes what the user asked for into a folder of theirs: whatever goes wrong is one line."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from desa_ray.errors import DesaError
from desa_ray.places import utf8_named

# Libraries in Rust raise errors of their own for a full disk, and say the system's number.
NUMBER = re.compile(r"\(os error ([0-9]{1,3})\)")
HINT = "free the disk, or name another folder with --out"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """The folder, made where it is missing; an error inside says that it cannot be written.

    Raises:
        DesaError: the system refuses a write.
    """
    with writing_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        yield


@contextmanager
def writing_errors(folder: Path) -> Iterator[None]:
    """What the system says inside, as one line; errors as for `writing`."""
    try:
        yield
    except OSError as error:
        raise not_written(error, where=str(error.filename or folder), hint=HINT) from None
    except Exception as error:
        number = system_error(error)
        if number is None:
            raise
        what = f"cannot be written: {os.strerror(number)}"
        raise DesaError(what, where=str(folder), hint=HINT) from None


def not_written(error: OSError, *, where: str, hint: str, whose: str = "") -> DesaError:
    """The error of a write that the system refused.

    Args:
        whose: what was written, where `where` does not say it.
    """
    return DesaError(
        f"{whose} cannot be written: {error.strerror or error}".strip(), where=where, hint=hint
    )


def system_error(error: BaseException) -> int | None:
    """The system's number of an error, where the error is about one."""
    if isinstance(error, OSError):
        return error.errno
    try:
        said = str(error)[:2000]
    except Exception:  # an error may fail at this too
        return None
    found = NUMBER.search(said)
    return int(found[1]) if found else None


def check_place(folder: Path | None) -> None:
    """Raises DesaError where a folder could not be made or written, before anything is computed;
    None is none.
    """
    if folder is None:
        return
    utf8_named(folder.absolute(), "name another folder with --out")
    with writing_errors(folder):
        nearest = next(own for own in (folder, *folder.absolute().parents) if own.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(nearest))
