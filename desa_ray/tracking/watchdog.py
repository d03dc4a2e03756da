"""A small process that outlives a sweep's driver and tells MLflow when it was killed.

It waits at a pipe that only the driver holds. The driver's death closes the pipe, whatever killed
it; then what waits in the sweep's outbox is sent and its runs are marked KILLED, so that nothing
stays RUNNING for ever. Until then it holds no engine and no MLflow, only a bare interpreter. If it
dies too (the machine does), the next run does the same.
"""

import subprocess
import sys
from pathlib import Path

DISMISSED = b"done"
DISMISS_S = 60.0


class Watchdog:
    """Watches over this process on behalf of an outbox."""

    def __init__(self, outbox: Path):
        command = [sys.executable, "-m", "desa_ray.tracking.watchdog", str(outbox)]
        # A session of its own: a Ctrl-C at the terminal is for the driver, which says goodbye
        # itself.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End it: the sweep has said everything itself."""
        try:
            self._process.communicate(DISMISSED, timeout=DISMISS_S)
        except subprocess.TimeoutExpired:  # a machine too busy to start an interpreter
            self._process.kill()
            self._process.wait()


def watch(outbox: Path) -> None:
    """Wait for the driver's last message; finish its log if there is none."""
    if sys.stdin.buffer.read() == DISMISSED:
        return
    from desa_ray.tracking.left_behind import finish

    finish(outbox)


def main(arguments: list[str]) -> int:
    """Watch over the outbox named; its errors go unseen, so they become a crash report."""
    try:
        watch(Path(arguments[0]))
    except BaseException as error:
        from desa_ray.crash import began, write_report

        began("watchdog of a sweep's log", ())
        write_report(error)
        return 70
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
