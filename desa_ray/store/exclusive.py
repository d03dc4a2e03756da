"""The lock of a stored stage: one process at a time fixes its layout and removes what is out of
date or damaged.

An object store has no such lock; there, runs at once are safe as long as none finds a stage out of
date or damaged. Whoever holds the lock of a key sees the store as it is: a repair of an input would
take that input's lock as well.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext

from desa_ray.locks import STAGE, held
from desa_ray.store.files import Files
from desa_ray.store.keys import Key

FOLDER = ".locks"


class _Own(threading.local):
    """How many keys' locks this thread holds."""

    keys = 0


_own = _Own()


@contextmanager
def exclusive(files: Files, key: Key) -> Generator[None]:
    """Hold the lock of a key for the length of the block.

    Raises:
        DesaError: another process had it for too long, or this file system does not support locks.
    """
    place = (
        nullcontext()
        if files.local is None
        else held(STAGE, files.local / FOLDER / f"{key.stage}-{key.short}")
    )
    with place:
        _own.keys += 1
        try:
            yield
        finally:
            _own.keys -= 1


def holding() -> bool:
    """Whether this thread holds the lock of a key."""
    return _own.keys > 0
