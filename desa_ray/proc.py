"""Processes of this machine as /proc shows them, each known by its number and its start time.

A number alone proves nothing: it is used again. psutil is not used here: leases keep start times as
the kernel counts them, in clock ticks since boot, which a change of the clock does not move, and a
guard is a bare interpreter that imports nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A line of /proc/PID/stat; `started` in clock ticks since boot."""

    pid: int
    state: str
    group: int
    session: int
    started: int


def process(pid: int) -> Process | None:
    """The process with this number, also one that has ended and was not waited for; None where
    there is none.
    """
    try:
        # The name stands in brackets and may hold anything, so fields are counted behind the last
        # bracket.
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return None
    return Process(pid, fields[0], int(fields[2]), int(fields[3]), int(fields[19]))


def runs(known: Process) -> bool:
    """Whether this very process is still running."""
    now = process(known.pid)
    return now is not None and now.started == known.started and now.state not in "ZX"


def members(group: int, session: int) -> list[Process]:
    """All processes of a process group, as long as it belongs to that session."""
    return [found for found in _all() if found.group == group and found.session == session]


def _all() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (found := process(int(folder.name))):
            yield found


def boot() -> str:
    """Which boot of the machine this is."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@cache
def system() -> str:
    """Boot and process namespace of this machine, within which process numbers hold; empty where
    unknown.
    """
    try:
        return f"{boot()}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
