"""What a dead engine leaves behind is ended before the next one starts, so that its GPU memory is free again.

An engine over several GPUs runs children. After `kill -9` of the parent they may live on and hold memory. So an engine
leads a process group of its own, noted in a folder of the machine's temporary directory; the next engine on that
machine, a restarted actor for one, ends the groups whose leader is gone. A number alone proves nothing: a leader is
known by its start time, its group also by the session.
"""

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from desa_ray.errors import DesaError

GIB = 1 << 30
POLL_S = 0.1


@dataclass(frozen=True)
class _Process:
    """A line of /proc/PID/stat; `started` in clock ticks since boot."""

    pid: int
    state: str
    group: int
    session: int
    started: int


def notes_folder() -> Path:
    """Where this user's engines on this machine are noted."""
    return Path(tempfile.gettempdir()) / f"desa-engines-{os.getuid()}"


def lead_group(folder: Path | None = None) -> None:
    """Make this process the leader of a group of its own and note it; its children belong to the group."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    own = _process(os.getpid())
    assert own is not None
    folder = folder or notes_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    note = {"boot": _boot(), "started": own.started, "session": own.session}
    (folder / f"{own.pid}.json").write_text(json.dumps(note), encoding="utf-8")


def end_orphans(folder: Path | None = None, *, patience_s: float = 30.0) -> list[int]:
    """Kill the groups whose noted leader is gone, wait until they are, and forget them.

    Returns:
        The ids of the processes that were ended.

    Raises:
        DesaError: a process does not go (it hangs in a driver, mostly).
    """
    ended: list[int] = []
    for file in sorted((folder or notes_folder()).glob("*.json")):
        try:
            note, leader = json.loads(file.read_text(encoding="utf-8")), int(file.stem)
            same_boot = note["boot"] == _boot()
            process = _process(leader)
            if same_boot and process and process.started == note["started"] and process.state != "Z":
                continue  # alive
            reused = process is not None and process.started != note["started"]
            members = [] if reused or not same_boot else _members(leader, note["session"])
        except (OSError, ValueError, KeyError, TypeError):  # half written, or another engine took it away just now
            members = []
        for member in members:
            ended += [member.pid] if _kill(member.pid) else []
        _await_end(members, patience_s)
        file.unlink(missing_ok=True)
    return ended


def await_memory(
    free_and_total: Callable[[], Sequence[tuple[int, int]]], share: float, *, patience_s: float = 60.0
) -> None:
    """Wait until each device has `share` of its memory free: a driver takes a moment to clear up after a dead process.

    Args:
        free_and_total: bytes a device.
        share: 0 to 1, of the total.

    Raises:
        DesaError: still too little after `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    while short := [(free, total) for free, total in free_and_total() if free < share * total]:
        if time.monotonic() > deadline:
            free, total = short[0]
            wanted = f"{share * total / GIB:.1f} wanted"
            raise DesaError(
                f"too little GPU memory: {free / GIB:.1f} of {total / GIB:.1f} GiB free, {wanted}",
                where="generator.gpu_memory_utilization",
                mend="end what else uses the GPU (nvidia-smi lists it), or lower the share",
            )
        time.sleep(POLL_S)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _await_end(members: Sequence[_Process], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while left := [member.pid for member in members if _runs(member)]:
        if time.monotonic() > deadline:
            what = f"processes of a dead engine do not end: {', '.join(map(str, left))}"
            raise DesaError(what, where="generator", mend="restart this machine's GPU driver or the machine")
        time.sleep(POLL_S)


def _runs(member: _Process) -> bool:
    now = _process(member.pid)
    return now is not None and now.started == member.started and now.state != "Z"


def _members(group: int, session: int) -> list[_Process]:
    return [process for process in _processes() if process.group == group and process.session == session]


def _processes() -> Iterator[_Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (process := _process(int(folder.name))):
            yield process


def _process(pid: int) -> _Process | None:
    try:
        # The name stands in brackets and may hold anything, so fields are counted behind the last bracket.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return _Process(pid, fields[0], int(fields[2]), int(fields[3]), int(fields[19]))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
