"""Errors of a failing disk in plain words: system errors become one `DesaError` with place and
hint.
"""

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from desa_ray.credentials import redacted
from desa_ray.errors import DesaError

FREE = "free space, then rerun: finished parts are kept"
OTHER_ROOT = "set store.root to a folder that can be written"
NO_FOLDER = ("there is a file where a folder is needed", "set store.root to a folder")
FULL = (errno.ENOSPC, errno.EDQUOT)
# Clients of object stores raise errors of their own for what is no answer of the store.
REMOTE = ("aiobotocore", "aiohttp", "azure", "botocore", "google", "requests")
REMOTE_HINT = (
    "check the address and its credentials in the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,"
    " ...)"
)
CAUSES = {
    errno.ENOSPC: ("no space left on the disk", FREE),
    errno.EDQUOT: ("the disk quota is used up", FREE),
    errno.EROFS: ("the file system is read-only", OTHER_ROOT),
    errno.EACCES: ("permission denied", f"give the permission, or {OTHER_ROOT}"),
    errno.EPERM: ("operation not permitted", f"give the permission, or {OTHER_ROOT}"),
    errno.ENOTDIR: NO_FOLDER,
    errno.EEXIST: NO_FOLDER,
    errno.ENOENT: (
        "the folder has disappeared or cannot be created",
        "check store.root, and that nobody empties it; then rerun",
    ),
}


@contextmanager
def explained(doing: str, place: str, root: str) -> Generator[None]:
    """Turn system errors inside into `<place>: cannot <doing>: <cause> (<hint>)`; other errors
    pass.

    A file outside `root` (a temporary copy, what a part's writer reads, a parent folder) is named
    as well.
    """
    try:
        yield
    except OSError as error:
        default = (
            error.strerror or str(error) or type(error).__name__,
            "check the file system, then rerun",
        )
        what, hint = CAUSES.get(error.errno or 0, default)
        outside = error.filename and not str(error.filename).startswith(root)
        at = f", at {error.filename}" if outside else ""
        raise DesaError(f"cannot {doing}: {what}{at}", where=place, hint=hint) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in REMOTE:
            raise
        what = f"cannot {doing}: {redacted(str(error).splitlines()[0])}"
        raise DesaError(what, where=place, hint=REMOTE_HINT) from error


@contextmanager
def full_disk_told(folder: Path) -> Generator[None]:
    """Turn any error inside that a full disk below `folder` explains into the system's own.

    Libraries that write files report it each in a class of their own: most with the system's words,
    numpy without.
    """
    try:
        yield
    except Exception as error:
        code = next((code for code in FULL if os.strerror(code) in str(error)), None)
        if code is None and shutil.disk_usage(folder).free < 1 << 20:
            code = errno.ENOSPC
        if code is None:
            raise
        raise OSError(code, os.strerror(code)) from error
