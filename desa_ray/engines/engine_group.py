"""Ends the processes that a dead engine left behind before the next one starts, so that its GPU
memory is free again.

An engine over several GPUs runs children. After `kill -9` of the parent they may live on and hold
memory. So an engine leads a process group of its own. A guard process ends the group when the
leader is gone. Should the guard be killed as well, the next engine on that machine does it: groups
are noted in a folder that only this user can open. A number alone proves nothing: a leader is known
by its start time, its group also by the session.
"""

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from desa_ray.errors import DesaError
from desa_ray.parents import guard_group
from desa_ray.places import private_folder
from desa_ray.proc import Process, boot, members, process, runs, system

GIB = 1 << 30
POLL_S = 0.1


def notes_folder(home: Path | None = None) -> Path:
    """Where this user's engines on this machine are noted; `home` is taken where the user has no
    runtime folder.

    Raises:
        DesaError: no place for it is this user's alone.
    """
    # A home may be shared, process numbers are not
    machine = hashlib.sha256(system().encode()).hexdigest()[:12]
    folder = private_folder(home) / f"engines-{machine}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def lead_group(folder: Path | None = None, *, guarded: bool = True) -> None:
    """Make this process the leader of a group of its own and note it; its children belong to the
    group.

    Args:
        folder: of the notes (default: `notes_folder()`).
        guarded: have the group ended when this process is gone.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    own = process(os.getpid())
    assert own is not None
    folder = folder or notes_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    note, file = (
        {"boot": boot(), "started": own.started, "session": own.session},
        folder / f"{own.pid}.json",
    )
    half = file.with_suffix(".tmp")
    half.unlink(missing_ok=True)  # of a dead process of this number
    with os.fdopen(
        os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w"
    ) as stream:
        stream.write(json.dumps(note))
    half.replace(file)
    if guarded:
        guard_group(own.group, own.session, file)


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
            same_boot = note["boot"] == boot()
            found = process(leader)
            if same_boot and found and found.started == note["started"] and found.state != "Z":
                continue  # alive
            reused = found is not None and found.started != note["started"]
            orphans = [] if reused or not same_boot else members(leader, note["session"])
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
        ):
            # Not ours, or another engine took it away
            orphans = []
        for orphan in orphans:
            ended += [orphan.pid] if _kill(orphan.pid) else []
        _await_end(orphans, patience_s)
        file.unlink(missing_ok=True)
    return ended


def await_memory(
    free_and_total: Callable[[], Sequence[tuple[int, int]]],
    share: float,
    *,
    patience_s: float = 60.0,
) -> None:
    """Wait until each device has `share` of its memory free: a driver takes a moment to clear up
    after a dead process.

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
                hint="end other processes on the GPU (nvidia-smi lists them), or lower the share",
            )
        time.sleep(POLL_S)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _await_end(orphans: Sequence[Process], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while left := [orphan.pid for orphan in orphans if runs(orphan)]:
        if time.monotonic() > deadline:
            what = f"processes of a dead engine cannot be ended: {', '.join(map(str, left))}"
            raise DesaError(
                what, where="generator", hint="restart this machine's GPU driver or the machine"
            )
        time.sleep(POLL_S)
