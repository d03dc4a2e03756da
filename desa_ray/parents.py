"""Ends child processes when their parent ends, whatever killed it: by a thread in Python children,
by a guard process for other programs.

A child of ours (`end_with_parent`) looks at its parent twice per second. Programs that know nothing
of us, such as an engine's own children, lead a process group; a guard, a bare interpreter in a
session of its own, ends that group when the process that it watches is gone (`guard_group`).
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from desa_ray.proc import members, process, runs

LOOK_S = 0.5
GRACE_S = 5.0  # for a group to clear up after itself


def end_with_parent(parent: int) -> None:
    """End this process, with everything in it, once `parent` (a process number) is not its parent
    any more.
    """
    threading.Thread(target=_watch_parent, args=(parent,), name="desa-parent", daemon=True).start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)  # whatever its other threads do: nobody waits for it any more


def guard_group(group: int, session: int, note: Path | None = None) -> None:
    """Have the process group `group` of `session` ended when this process is gone.

    Args:
        group: its number, that of its leader; may be this process's own.
        session: the session that it belongs to.
        note: a file to remove after that.
    """
    own = process(os.getpid())
    if own is None:  # a system without /proc
        return
    command = [
        sys.executable,
        "-m",
        "desa_ray.parents",
        *map(str, (own.pid, own.started, group, session)),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # It starts the guard proper and ends: whoever kills the children of this process leaves the
    # guard alone.
    starter = subprocess.Popen(
        [*command, str(note or "")],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    starter.wait()


def _guard(watched: int, started: int, group: int, session: int, note: str) -> None:
    _wait_for_end(watched, started)
    deadline = time.monotonic() + GRACE_S
    while left := [member for member in members(group, session) if runs(member)]:
        if time.monotonic() > deadline:
            for member in left:
                with suppress(OSError):
                    os.kill(member.pid, signal.SIGKILL)
        time.sleep(0.1)
    if note:
        Path(note).unlink(missing_ok=True)


def _wait_for_end(watched: int, started: int) -> None:
    """Return when the process with this number and start time has ended."""
    with suppress(OSError, AttributeError):  # an older kernel: looked at twice per second
        descriptor = os.pidfd_open(watched)
        found = process(watched)
        if found is not None and found.started == started:
            select.select([descriptor], [], [])
        os.close(descriptor)
        return
    while (found := process(watched)) is not None and found.started == started and runs(found):
        time.sleep(LOOK_S)


def main(arguments: list[str]) -> None:
    """The guard, started by `guard_group`."""
    if os.fork():
        os._exit(0)
    watched, started, group, session = map(int, arguments[:4])
    os.chdir("/")  # hold no folder
    _guard(watched, started, group, session, arguments[4])


if __name__ == "__main__":
    main(sys.argv[1:])
