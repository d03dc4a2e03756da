"""Unexpected errors become one line for the user, with a crash report, wherever they occur.

`desa` runs every verb inside this boundary, workers every shard, child processes all they do, and
threads have it as their hook. A user's mistake ends with exit code 2, a fault of this program with
70.
"""

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from desa_ray.crash import one_line, write_report
from desa_ray.errors import Crashed, DesaError
from desa_ray.interrupts import interrupt_again
from desa_ray.lines import shown
from desa_ray.writing import system_error

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # nobody's mistake in a program
NAMES = (errno.ENAMETOOLONG, errno.ELOOP)  # of a path that the user gave
NAME_HINT = "use another path"
DISK_HINT = "free or fix the disk; the same command then continues"
REPORT_HINT = "this is a bug in desa-ray: please report it with that file"
MEMORY_HINT = "free memory, or reduce the work done at once: cluster.shard_*, fewer workers"
# Signals of the interpreter's own, not errors.
SIGNALS = (KeyboardInterrupt, SystemExit, GeneratorExit)

_thread_codes: list[int] = []


def as_desa_error(error: BaseException, where: str = "") -> DesaError:
    """Any error as one for the user; a report is written where it is a fault of this program."""
    if isinstance(error, DesaError):
        return error
    number = system_error(error)
    if number in DISK:
        place = error.filename if isinstance(error, OSError) else None
        return DesaError(os.strerror(number), where=str(place or where), hint=DISK_HINT)
    if isinstance(error, OSError) and error.errno in NAMES:
        return DesaError(str(error.strerror), where=shown(str(error.filename)), hint=NAME_HINT)
    path = write_report(error, what=where)
    report = (
        f"crash report: {path}"
        if path
        else "no crash report could be written: no folder is writable"
    )
    hint = MEMORY_HINT if isinstance(error, MemoryError) else REPORT_HINT
    return Crashed(f"unexpected {one_line(error)}", where=where, hint=f"{report}; {hint}")


@contextmanager
def error_boundary(where: str) -> Iterator[None]:
    """Any error inside is raised as one for the user; an interrupt or an exit passes."""
    try:
        yield
    except (DesaError, *SIGNALS):
        raise
    except BaseException as error:  # a panic of a Rust library is no Exception
        raise as_desa_error(error, where) from error


def print_error(error: BaseException) -> int:
    """Print an error as lines on stderr; returns the exit code for it."""
    told = as_desa_error(error)
    with suppress(OSError, ValueError, AttributeError):  # stderr may be closed, or absent
        for line in str(told).splitlines():
            sys.stderr.write(f"error: {line}\n")
        sys.stderr.flush()
    return told.exit_code


@contextmanager
def thread_hooks() -> Iterator[None]:
    """Inside, an error that ends a thread, or that a finalizer raises, is reported like any
    other.
    """
    before = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = _thread_ended, _not_raised
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = before


def exit_code(code: int) -> int:
    """The code to end with: if one of our threads died, success becomes failure."""
    return code or max(_thread_codes, default=0)


def _thread_ended(ended: threading.ExceptHookArgs) -> None:
    error = ended.exc_value
    if error is None or isinstance(error, SystemExit):
        return
    code = print_error(error)
    if _ours(error):  # what a library does in a thread of its own decides nothing
        _thread_codes.append(code)


def _not_raised(unraisable: "sys.UnraisableHookArgs") -> None:
    error = unraisable.exc_value
    if error is None or sys.is_finalizing():
        return
    if isinstance(error, KeyboardInterrupt):
        interrupt_again()
        return
    if isinstance(error, (BrokenPipeError, *SIGNALS)):
        return
    print_error(error)


def _ours(error: BaseException) -> bool:
    """Whether an exception came through this program's code."""
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).startswith("desa_ray."):
            return True
        trace = trace.tb_next
    return False
