"""Programs that the tests of infra run for real: from the PATH, or from .tools (infra/tools.sh)."""

import os
import shutil
import socket
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PLACES = [
    *os.environ.get("PATH", "").split(os.pathsep),
    *map(str, (REPOSITORY / ".tools").glob("usr/*bin")),
    *map(str, Path("/usr/lib/postgresql").glob("*/bin")),
    *map(str, (REPOSITORY / ".tools").glob("usr/lib/postgresql/*/bin")),
]


def program(name: str) -> str:
    """The program's path; the test skips with the reason where it is absent."""
    found = shutil.which(name, path=os.pathsep.join(PLACES))
    if found is None:
        pytest.skip(f"{name} is not here: `make infra-tools` fetches it")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
