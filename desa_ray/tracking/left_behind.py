"""Finds what dead or ended sweeps left in the outbox, sends it, and closes their runs."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from desa_ray.errors import DesaError, Problems
from desa_ray.locks import OUTBOX, tried
from desa_ray.tracking.delivery import Delivery
from desa_ray.tracking.entry_shapes import TARGET, read_json
from desa_ray.tracking.failures import told
from desa_ray.tracking.outbox import Outbox, Target, address_folder
from desa_ray.tracking.runs import Tracker, tracker_lock

DAY_NS = 86_400 * 10**9


def left_behind(root: Path, uri: str | None = None) -> Iterator[Outbox]:
    """The outboxes of dead or ended sweeps, oldest first, each locked while it is looked at.

    Raises:
        DesaError: after all others, those whose destination is unknown.
    """
    folders = root.glob("*/*") if uri is None else address_folder(root, uri).glob("*")
    damaged = []
    for folder in sorted(folders, key=_modified):
        if not (folder / "target.json").exists() and time.time_ns() - _modified(folder) < DAY_NS:
            continue  # being made just now
        try:
            with _taken(folder) as outbox:
                if outbox is not None:
                    yield outbox
        except _DamagedTargetError as error:
            damaged.append(error)
    if damaged:
        raise damaged[0] if len(damaged) == 1 else Problems(damaged)


def resend(outbox: Outbox, connect: Callable[[], Tracker]) -> bool:
    """Send all of a left-behind outbox, and mark what it left RUNNING as KILLED; True when nothing
    waits any more.
    """
    outbox.send(connect, now=True)
    if outbox.waiting():
        return False
    if not outbox.ended():
        try:
            with tracker_lock(outbox.target.uri, Path(outbox.target.artifacts)):
                target = outbox.target
                Delivery(connect(), target.experiment, target.sweep, target.attempt).kill()
        except Exception as error:  # as in `send`
            outbox.trouble = told(error)
            return False
        outbox.say_ended()
    return True


def finish(folder: Path) -> None:
    """What is left to do for a sweep that died: see `resend`. Does nothing while the
    sweep lives.
    """
    with _taken(folder) as outbox:
        if outbox is not None:
            target = outbox.target
            resend(outbox, lambda: Tracker(target.uri, Path(target.artifacts)))


@contextmanager
def _taken(folder: Path) -> Iterator[Outbox | None]:
    """The outbox in a folder if its lock is free and it is still there, else None."""
    if not folder.is_dir():
        yield None
        return
    lock = tried(OUTBOX, folder / "lock")
    if lock is None:
        yield None
        return
    try:
        fields = read_json(folder / "target.json", TARGET)
    except (OSError, ValueError) as error:
        try:
            if isinstance(error, FileNotFoundError):
                # Removed in between, or its driver was killed before it wrote it
                _remove_unborn(folder)
                fields = None
            else:
                waiting = len(list(folder.glob("[0-9]*.json")))
                why = getattr(error, "strerror", None) or error
                raise _DamagedTargetError(
                    f"is damaged: {why}; {waiting} log entries in its folder cannot be sent",
                    where=str(folder / "target.json"),
                    hint=(
                        f"move {folder} elsewhere: the output folders of its runs have the results"
                    ),
                ) from None
        finally:
            lock.release()
    if fields is None:
        yield None
        return
    outbox = Outbox(folder, Target(**fields), lock)
    outbox.repeats = True
    try:
        yield outbox
    finally:
        outbox.close()


class _DamagedTargetError(DesaError):
    """The destination of an outbox's entries is unknown."""


def _remove_unborn(folder: Path) -> None:
    """Remove a folder without target.json that holds no entries either."""
    with suppress(OSError):
        if not any(path.name[:1].isdigit() for path in folder.iterdir()):
            shutil.rmtree(folder)


def _modified(path: Path) -> int:
    """Time of change; 0 for what another process removed meanwhile."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
