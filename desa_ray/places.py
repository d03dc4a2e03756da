"""Where this user's files are: the home, and a private folder for what processes on one machine
share.

Names in a folder that everybody may write to, such as /tmp, can be taken by somebody else first, as
a link or with other contents. So nothing of the platform has a fixed name there: what processes of
one user on one machine share is kept in the user's runtime folder, or in the home if there is none.
"""

import os
import stat
from pathlib import Path

from desa_ray.errors import DesaError
from desa_ray.lines import shown

RUNTIME = "XDG_RUNTIME_DIR"
NAME = "desa-ray"


def working_folder() -> Path:
    """The folder that this process works in. Raises DesaError where it was removed, or its name is
    not UTF-8.
    """
    try:
        return utf8_named(Path.cwd(), "cd to a folder with another name")
    except OSError as error:
        what = f"the current folder is gone: {error.strerror}"
        raise DesaError(
            what, where=os.environ.get("PWD", ""), hint="cd to a folder that exists, then rerun"
        ) from None


def home() -> Path:
    """`$DESA_HOME`, else `.desa` in the current folder: store, MLflow database, models,
    data sets.

    Raises:
        DesaError: its name is not UTF-8: parquet files and databases cannot be opened there; or it
            is not the name of a folder: blank, an address, or a tilde that no shell has replaced.
    """
    text = os.environ.get("DESA_HOME") or ".desa"
    given = utf8_named(Path(text), "set DESA_HOME to another folder")
    if "://" in text:
        hint = "give a folder; an object store is set with store.root"
        raise DesaError(f"{shown(text)} is an address", where="DESA_HOME", hint=hint)
    if not text.strip() or text.partition("/")[0] == "~":
        hint = "write the folder's full name"
        raise DesaError(f"{shown(text)} is not the name of a folder", where="DESA_HOME", hint=hint)
    return given if given.is_absolute() else working_folder() / given


def utf8_named(folder: Path, hint: str) -> Path:
    """The folder. Raises DesaError where its name is not UTF-8: not every library opens it then,
    and no summary can name it.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise DesaError("the name is not UTF-8", where=str(folder), hint=hint) from None
    return folder


def private_folder(own_home: Path | None = None) -> Path:
    """A folder that belongs to this user and that nobody else can open, made if missing.

    It is in `$XDG_RUNTIME_DIR` if that is this user's alone, else in `own_home` (default:
    `home()`).

    Raises:
        DesaError: what is at its place is a link, no folder, somebody else's, or open to
            others; or it cannot be created.
    """
    runtime = Path(os.environ.get(RUNTIME, ""))
    if runtime.is_absolute() and _fault(runtime) is None:
        return _made(runtime / NAME)
    base = own_home or home()
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DesaError(
            f"cannot be created: {error.strerror}",
            where=str(base),
            hint="set DESA_HOME to a folder",
        ) from None
    return _made(base / f"run-{os.geteuid()}")


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)  # whatever the umask
    except FileExistsError:
        pass
    except OSError as error:
        what = f"cannot be created: {error.strerror}"
        raise DesaError(
            what, where=str(folder), hint=f"set {RUNTIME} or DESA_HOME to a folder that you own"
        ) from None
    if fault := _fault(folder):
        raise DesaError(
            fault,
            where=str(folder),
            hint="find out who put it there, then remove it: the next run creates it again",
        )
    return folder


def _fault(folder: Path) -> str | None:
    """Why a folder is not this user's alone, None where it is."""
    try:
        found = folder.lstat()
    except OSError as error:
        return f"cannot be inspected: {error.strerror}"
    if stat.S_ISLNK(found.st_mode):
        return "is a link, not a folder"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid != os.geteuid():
        return f"belongs to another user (number {found.st_uid})"
    if found.st_mode & 0o077:
        return f"is open to other users (mode {stat.S_IMODE(found.st_mode):04o}, not 0700)"
    return None
