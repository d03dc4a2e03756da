"""A worker in a child process of the driver: takes tasks over a pipe, and ends when its driver
does.

It imports nothing of the driver's main module, unlike Python's own pools. It has a session of its
own, so that a Ctrl-C at the terminal reaches the driver alone, which then ends it.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from desa_ray.crash import began
from desa_ray.error_boundary import error_boundary
from desa_ray.errors import DesaError
from desa_ray.parents import end_with_parent
from desa_ray.pipeline.stage import Pool, Task
from desa_ray.pipeline.worker import Worker


class Child:
    """A child process at the other end of a pipe: tasks go in, errors or None come out.

    Its first message says that it is up, with its engine loaded as far as that is possible.

    Args:
        quiet: what it prints goes nowhere; else to where the driver prints.
    """

    def __init__(self, pool: Pool, *, quiet: bool = True):
        self.line, theirs = Pipe()
        with theirs:
            code = f"from {__name__} import serve; serve({theirs.fileno()}, {os.getpid()})"
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        self._send((pool, gc.get_threshold()))

    def send(self, task: Task) -> None:
        """Give it a task. Where it died meanwhile, the next `receive` tells."""
        self._send(task)

    def receive(self) -> DesaError | None:
        """Its next message, waited for: that it is up, or what came of its task (None, or the
        error).

        Raises:
            EOFError, OSError: the process ended.
        """
        return self.line.recv()

    def _send(self, what: Any) -> None:
        with suppress(BrokenPipeError):  # it died meanwhile: the line's end tells
            self.line.send(what)

    def end(self, patience_s: float) -> None:
        """End it when it is idle; it may take `patience_s` to clear up after itself."""
        self.line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self.line.close()


def serve(descriptor: int, driver: int) -> None:
    """A worker process: loads its engine, says so, then answers each task with None or the error
    that it raised.
    """
    end_with_parent(driver)
    with (
        Connection(descriptor) as line,
        suppress(EOFError),
    ):
        # The line ends when the driver wants no more
        pool, thresholds = line.recv()
        began(f"worker of pool {pool.name}", ())
        gc.set_threshold(*thresholds)  # as the driver's
        worker = Worker(pool)
        failed = _error_of(worker.load, f"pool {pool.name}")
        line.send(None)  # up
        while True:
            task = line.recv()
            line.send(failed or _error_of(partial(worker.run, task), str(task)))


def _error_of(work: Callable[[], None], where: str) -> DesaError | None:
    """The error that work raised."""
    try:
        with error_boundary(where):
            work()
    except DesaError as error:
        return error
    return None
