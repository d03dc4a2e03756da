"""Every lock of the platform: one order, a limit for each wait, and a record of the holder.

A thread that holds a lock only takes those further down in `ORDER` (the tests check it, with
DESA_CHECK_LOCKS=1), so no two threads or processes can wait for each other. The first three are
tried once and never waited for. Locks between processes are files (`flock`, through filelock): they
end with their process, and the file says who has it. At the limit the stacks of all threads of this
process go to a crash report, and the wait ends as an error.
"""

import errno
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from uuid import uuid4

from filelock import FileLock, Timeout

from desa_ray.crash import write_report
from desa_ray.errors import DesaError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
LONGEST_NOTE = 1000  # bytes of a lock file that are read
HOST = re.compile(r"[A-Za-z0-9._-]{1,255}")


@dataclass(frozen=True)
class Kind:
    """What a lock guards, in the words of messages; how long it is waited for; the setting that
    moves it elsewhere.
    """

    what: str
    limit_s: float
    setting: str = ""


# jobs/cli/app.py, for a verb's length
OUTPUT = Kind("an output folder", 0.0, "hydra.run.dir (a sweep: hydra.sweep.dir)")
OUTBOX = Kind("a sweep's log entries", 0.0, "DESA_HOME")  # tracking/outbox.py, for a sweep's length
SEARCH = Kind("a search", 0.0, "DESA_HOME")  # experiment/search.py, for its length
MODEL = Kind("the conversion of a model", 3600.0, "DESA_HOME")  # engines/smollm2.py
# stages/kernels.py, one user's on one machine
KERNELS = Kind("the compilation of kernels", 1800.0, "DESA_HOME")
# store/exclusive.py, one per key
STAGE = Kind("the layout and the repair of a stored stage", 900.0, "store.root")
# tracking/outbox.py: one entry at a time, in order
ENTRIES = Kind("the writing of log entries", 300.0)
# tracking/outbox.py: what waits, by one thread
SENDING = Kind("the sending of log entries", 1200.0)
TRACKING = Kind("the tracking store", 300.0, "DESA_HOME or tracking.uri")  # tracking/runs.py
LEASE = Kind("the lease of this run", 300.0)  # store/leases.py
SAMPLES = Kind("the samples of the machine's load", 60.0)  # tracking/system.py
COUNTERS = Kind("the counters of metrics", 300.0)  # cluster/metrics.py
STEPS = Kind("the steps reported to a calling program", 60.0)  # jobs/cli/served.py
SOCKETS = Kind("the sockets of a call over the network", 60.0)  # exchange.py
ORDER = (
    OUTPUT,
    OUTBOX,
    SEARCH,
    MODEL,
    KERNELS,
    STAGE,
    ENTRIES,
    SENDING,
    TRACKING,
    LEASE,
    SAMPLES,
    COUNTERS,
    STEPS,
    SOCKETS,
)


class _Held(threading.local):
    """The locks that this thread holds, outermost first."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []


_held = _Held()


def tried(kind: Kind, path: Path) -> FileLock | None:
    """The file lock at `path`, or None where another process has it. Any thread may release it.

    Raises:
        DesaError: this file system does not support locks, or the file cannot be created.
    """
    lock = _file_lock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    except OSError as error:
        raise _no_lock(kind, path, error) from error
    return lock


@contextmanager
def held(kind: Kind, path: Path, limit_s: float | None = None) -> Iterator[None]:
    """Hold the file lock at `path` for the length of the block; its folder is made if missing.

    Raises:
        DesaError: it was not free within the limit (says who has it), this file system gives no
            locks, or the file cannot be created.
    """
    limit_s = kind.limit_s if limit_s is None else limit_s
    lock = _file_lock(path)
    with _in_order(kind):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=limit_s)
        except Timeout:
            raise given_up(kind, limit_s, str(path), holder(path)) from None
        except OSError as error:
            raise _no_lock(kind, path, error) from error
        try:
            yield
        finally:
            lock.release()


@contextmanager
def inside(kind: Kind, lock: RLock, limit_s: float | None = None) -> Iterator[None]:
    """Hold a lock between threads for the length of the block.

    An RLock: should an interrupt of the main thread fall between taking it and entering the block,
    the main thread can still take it on its way out.

    Raises:
        DesaError: it was not free within the limit.
    """
    limit_s = kind.limit_s if limit_s is None else limit_s
    with _in_order(kind):
        try:
            if not lock.acquire(timeout=limit_s):
                raise given_up(kind, limit_s)
            yield
        finally:
            with suppress(RuntimeError):  # not ours: given up, or interrupted before it was
                lock.release()


def check_locks(kind: Kind, folder: Path) -> None:
    """Take and give back a lock of its own in an existing folder.

    Raises:
        DesaError: this file system does not support locks, or no file can be made there.
    """
    probe = folder / f"probe-{uuid4().hex}"
    try:
        with held(kind, probe):
            pass
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def holder(path: Path) -> str:
    """`process 12 on host a` as the lock file tells, or that it does not tell."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            note = json.loads(file.read(LONGEST_NOTE))
        pid, host = note["pid"], note["host"]
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return "another process"
    if type(pid) is not int or not isinstance(host, str) or not HOST.fullmatch(host):
        return "another process"
    return f"process {pid} on {host}"


def given_up(kind: Kind, limit_s: float, where: str = "", by: str = "") -> DesaError:
    """The error of a wait that reached its limit; it names the crash report with the stacks of all
    threads.
    """
    what = f"waited {limit_s:.0f} s without success for {kind.what}"
    file = write_report(what=f"{where}: {what}" if where else what, stacks=True)
    stacks = f"; what this process's threads did then is in {file}" if file else ""
    if by:
        what, hint = (
            f"{what}, held by {by}",
            f"check whether that process is still working; if not, end it, then rerun{stacks}",
        )
    else:
        hint = f"rerun: finished work is kept{stacks}"
    return DesaError(what, where=where, hint=hint)


def _file_lock(path: Path, *, thread_local: bool = True) -> FileLock:
    # With `on_acquired`, filelock never falls back to files that a killed process would leave
    # locked for ever.
    return FileLock(path, thread_local=thread_local, on_acquired=_note)


def _note(descriptor: int) -> None:
    """Say in the lock file who has it."""
    note = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time())})
    with suppress(OSError):  # a full disk: the lock holds nevertheless
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note.encode(), 0)


@contextmanager
def _in_order(kind: Kind) -> Iterator[None]:
    if not os.environ.get("DESA_CHECK_LOCKS"):
        yield
        return
    place = ORDER.index(kind)
    assert all(ORDER.index(other) < place for other in _held.kinds), (
        f"{kind.what} within {_held.kinds}"
    )
    _held.kinds.append(kind)
    try:
        yield
    finally:
        _held.kinds.pop()


def _no_lock(kind: Kind, path: Path, error: OSError) -> DesaError:
    if error.errno in NO_LOCKS:
        what = f"this file system does not support locks ({error.strerror or error})"
        hint = (
            f"mount it with locks (NFS: version 4, or start rpc.statd), or set {kind.setting} to"
            " another disk"
        )
        return DesaError(what, where=str(path.parent), hint=hint)
    what = f"the lock of {kind.what} cannot be taken: {error.strerror or error}"
    return DesaError(
        what,
        where=str(path),
        hint=f"grant permission, free disk space, or set {kind.setting} elsewhere",
    )
