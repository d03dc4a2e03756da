"""A busy machine: loops that keep two processors at work while a test runs, and end with it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOOPS = 2
# Ends by itself when the process that started it is gone, whatever became of that.
LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(200_000))\n"


@contextmanager
def busy_machine(loops: int = LOOPS) -> Iterator[list[subprocess.Popen]]:
    """Run the loops until the end of the block."""
    running = [
        subprocess.Popen([sys.executable, "-S", "-c", LOOP], stdin=subprocess.DEVNULL)
        for _ in range(loops)
    ]
    try:
        yield running
    finally:
        for loop in running:
            loop.kill()
        for loop in running:
            loop.wait(60)
