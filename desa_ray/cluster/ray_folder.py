"""A folder for the sockets and logs of a local cluster: private, with a short path, removed when
its process ends.

Ray opens its own folder to everybody (0777), so it is put inside one of mode 0700. The path of a
Unix socket holds about a hundred bytes, of which Ray's own names take more than half: if the usual
place is too long, another one is used.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from desa_ray.errors import DesaError
from desa_ray.temporary import OwnFolder

PREFIX = "desa-ray-"
LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107  # bytes, as Ray checks them
BELOW = (  # with a random name, without the pid
    "/xxxxxxxx/ray/session_2026-01-01_00-00-00_000000_/sockets/plasma_store"
)
ELSEWHERE = ("/tmp", "/var/tmp")  # noqa: S108  (the folder made there is ours alone)


def longest_base() -> int:
    """How many bytes the path of the folder's parent may have."""
    return LONGEST_SOCKET - len(PREFIX) - len(BELOW) - len(str(os.getpid()))


def bases() -> list[str]:
    """Where the folder may be made, the user's choice first."""
    given = os.environ.get("RAY_TMPDIR")
    own = [os.path.abspath(given)] if given else []  # noqa: PTH100  (as Ray: no link is followed)
    return list(dict.fromkeys([*own, tempfile.gettempdir(), *ELSEWHERE]))


@contextmanager
def ray_folder() -> Iterator[Path]:
    """The folder, until the end of the block.

    Raises:
        DesaError: no place is both writable and short.
    """
    faults = []
    for base in bases():
        if len(os.fsencode(base)) > longest_base():
            faults.append(f"{base} is too long")
            continue
        try:
            folder = OwnFolder(PREFIX, base)
        except OSError as error:
            faults.append(f"{base}: {error.strerror}")
            continue
        with folder as path:
            yield path
        return
    raise DesaError(
        f"no folder for the sockets of a local Ray cluster: {', '.join(faults)}",
        where="RAY_TMPDIR",
        hint=(
            f"set RAY_TMPDIR to a writable folder of at most {longest_base()} bytes, or use"
            " cluster=serial"
        ),
    )
