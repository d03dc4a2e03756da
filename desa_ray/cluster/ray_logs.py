"""Why one of Ray's processes ended: how it exited, and the last error in its own log."""

import re
import signal
from contextlib import suppress
from pathlib import Path

TAIL_BYTES = 64 << 10
LONGEST = 300
# [2026-01-31 12:00:00,123 E 4711 4712] (raylet) main.cc:99: what happened
ENTRY = re.compile(r"^\[[-\d: ,.]+ ([A-Z]) \d+ \d+\](?: \([^)]*\))?(?: [\w.]+:\d+:)?\s*(.*)")
PREAMBLE = re.compile(r"^An unexpected system state has occurred\..*? to fix it\. ")
# Of a crash, after the entry that says what happened
TRACE = re.compile(r"$|\*\*\*|PC:|@|Stack trace")
WORST_FIRST = "CFE"  # check failed, fatal, error


def ended(kind: str, status: int | None, logs: str | Path) -> str:
    """`the raylet was killed by SIGKILL: last words`."""
    words = last_words(logs, kind)
    return f"Ray's {kind} {how(status)}{f': {words}' if words else ''}"


def how(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "runs"
    if status < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"
    return f"exited with status {status}"


def last_words(logs: str | Path, kind: str = "raylet") -> str:
    """The worst and last entry of a process's log on one line, else the last line that it wrote to
    stderr.
    """
    found: dict[str, str] = {}
    lines = [*_tail(Path(logs, f"{kind}.out")), *_tail(Path(logs, f"{kind}.err"))]
    for line in lines:
        if (entry := ENTRY.match(line)) and not TRACE.match(entry[2]):
            found[entry[1]] = entry[2]
    for level in WORST_FIRST:
        if level in found:
            return _one_line(found[level])
    plain = [
        line for line in _tail(Path(logs, f"{kind}.err")) if line.strip() and not ENTRY.match(line)
    ]
    return _one_line(plain[-1]) if plain else ""


def _one_line(text: str) -> str:
    return PREAMBLE.sub("", " ".join(text.split()))[:LONGEST]


def _tail(file: Path) -> list[str]:
    try:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - TAIL_BYTES))
            return log.read(TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
