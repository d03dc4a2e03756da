"""Crash reports: what is recorded about a bug in this program, for the person who fixes it.

A report tells where (the traceback), in what (versions, verb, names of the settings given) and
never with what: no environment, no values of variables, no values of settings. Secrets that a
message quotes are replaced. It is a file of mode 0600 in `crashes/` of the home, or in the user's
private folder for temporary files; the newest `KEPT` stay.
"""

import os
import platform
import re
import socket
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from desa_ray.credentials import redacted

KEPT = 20
LINES = 400  # of a traceback: its first quarter and its end
WIDTH = 1000
FOLDER = "crashes"
PACKAGES = (
    "hydra-core",
    "ir-measures",
    "mlflow",
    "numba",
    "numpy",
    "onnxruntime",
    "polars",
    "pyarrow",
    "ray",
    "tokenizers",
)

_SECRET_NAME = re.compile(r"(?i)pass|token|secret|key|credential|auth")
_SECRET_TEXT = re.compile(
    r"(?i)\b(?:bearer|basic)\s+[^\s'\"]+|\bsk-[\w-]{8,}"
    r"|[\w-]*(?:passw(?:or)?d|token|secret|api[_-]?key|authorization)[\"']?\s*[:=]\s*[\"']?"
    r"(?:(?:bearer|basic)\s+)?[^\s,;'\"})]+"
)
_KEY = re.compile(r"[A-Za-z_][\w./@-]*")
_doing: list[str] = []
_written = threading.Lock()


def began(verb: str, arguments: Sequence[str]) -> None:
    """Note what this process does, for later reports: the verb, and the names of its settings."""
    names, others = [], 0
    for argument in arguments:
        name = argument.lstrip("+~-").partition("=")[0]
        named = "=" in argument or argument.startswith(("-", "~"))
        if named and len(name) <= 80 and _KEY.fullmatch(name):
            names.append(name)
        else:
            others += 1
    _doing[:] = [
        f"verb: {verb}",
        f"settings named: {', '.join(names) or 'none'}; other arguments: {others}",
    ]


def write_report(
    error: BaseException | None = None, *, what: str = "", stacks: bool = False
) -> Path | None:
    """Write a report; never raises.

    Args:
        error: what was raised, with its traceback.
        what: a line of our own on what happened.
        stacks: add the stack of each thread of this process.

    Returns:
        Its path; None where no place can be written.
    """
    try:
        text = _report(error, what, stacks)
    except Exception as failure:  # an odd exception must not hide the fault itself
        text = f"{what}\n{type(error).__name__} (no further details: {type(failure).__name__})\n"
    with _written:
        for folder in _folders():
            with suppress(OSError, ValueError):
                return _published(folder, text.encode("utf-8", "backslashreplace"))
    return None


def one_line(error: BaseException, limit: int = 300) -> str:
    """Class and message of an exception on one printable line, without secrets."""
    try:
        message = " ".join(str(error).split())
    except Exception:
        message = ""
    name = type(error).__name__
    text = _safe(f"{name}: {message[: 4 * limit]}" if message else name)
    return text if len(text) <= limit else f"{text[:limit]}…"


def all_stacks() -> str:
    """The stack of each thread of this process: files, lines and functions."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for number, frame in sys._current_frames().items():
        own = " (this one)" if number == threading.get_ident() else ""
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"thread {names.get(number, number)}{own}:\n{stack}")
    return "\n".join(parts)


def _report(error: BaseException | None, what: str, stacks: bool) -> str:
    lines = [
        "desa-ray crash report",
        f"time: {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
        (
            f"process: {os.getpid()} on {socket.gethostname()}, thread"
            f" {threading.current_thread().name}"
        ),
        *_doing,
        *([f"what: {what}"] if what else []),
        f"python {platform.python_version()} on {platform.platform()}",
        ", ".join(f"{name} {version}" for name, version in _versions()),
    ]
    if error is not None:
        told = "".join(traceback.format_exception(error)).splitlines()
        if len(told) > LINES:
            left_out = [f"  ... {len(told) - LINES} lines left out ..."]
            told = [*told[: LINES // 4], *left_out, *told[-LINES * 3 // 4 :]]
        lines += ["", *told]
    if stacks:
        lines += ["", *all_stacks().splitlines()]
    return "\n".join(_safe(line[:WIDTH]) for line in lines) + "\n"


def _versions() -> Iterator[tuple[str, str]]:
    for name in ("desa-ray", *PACKAGES):
        with suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _safe(text: str) -> str:
    """One printable line without secrets: of addresses, of headers, and of the environment."""
    text = _SECRET_TEXT.sub("***", redacted(text))
    for name, value in os.environ.items():
        if len(value) >= 6 and _SECRET_NAME.search(name):
            text = text.replace(value, "***")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _folders() -> Iterator[Path]:
    """Where a report may be written, the best place first."""
    if given := os.environ.get("DESA_HOME"):
        yield Path(given).absolute() / FOLDER
    else:
        with suppress(OSError):  # the current folder may be gone
            if (own := Path(".desa").absolute()).is_dir():
                yield own / FOLDER
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _private(Path(runtime)):
        yield Path(runtime) / "desa-ray" / FOLDER
    with suppress(OSError):
        shared = Path(tempfile.gettempdir()) / f"desa-ray-{os.geteuid()}"
        shared.mkdir(mode=0o700, exist_ok=True)
        if _private(shared):
            yield shared / FOLDER
    with suppress(OSError):
        yield Path(tempfile.mkdtemp(prefix="desa-ray-"))


def _private(folder: Path) -> bool:
    """Whether a folder is a real one, belongs to this user, and is closed to others."""
    with suppress(OSError):
        found = folder.lstat()
        return (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.geteuid()
            and not found.st_mode & 0o077
        )
    return False


def _published(folder: Path, data: bytes) -> Path:
    """Write a new file of a name of its own, then remove the oldest beyond `KEPT`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(folder)
    for _ in range(1000):
        now = time.time_ns()
        at = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now // 10**9))}.{now % 10**9:09}Z"
        path = folder / f"crash-{at}-{os.getpid()}.txt"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        for old in sorted(folder.glob("crash-*.txt"))[:-KEPT]:
            if old != path:  # the clock may have been set back
                with suppress(OSError):
                    old.unlink()
        return path
    raise FileExistsError(folder)
