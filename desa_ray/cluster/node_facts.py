"""What one node of a cluster reports: its platform, what it sees of some paths, and variables that
are not set.
"""

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from desa_ray.errors import DesaError
from desa_ray.pipeline.provenance import platform_facts
from desa_ray.plugins import Identity, differing
from desa_ray.store.files import Files

VISIBLE_TIMEOUT_S = 5.0  # how long a network file system may take to show a new file
SAMPLE = 4096


def fingerprint(path: str) -> str:
    """Hex SHA-256 over a file's size, first and last bytes, or over the names and sizes of a
    folder's files.

    Raises:
        OSError: nothing there, or not to be read.
    """
    place = Path(path)
    if place.is_file():
        size = place.stat().st_size
        with place.open("rb") as file:
            head = file.read(SAMPLE)
            file.seek(max(0, size - SAMPLE))
            return hashlib.sha256(repr((size, head, file.read(SAMPLE))).encode()).hexdigest()
    place.stat()
    files = sorted(file for file in place.rglob("*") if file.is_file())
    listing = "".join(f"{file.relative_to(place)} {file.stat().st_size}\n" for file in files)
    return hashlib.sha256(os.fsencode(listing)).hexdigest()


def facts(
    probes: Mapping[str, str],
    inputs: Sequence[str],
    variables: Sequence[str],
    plugins: Mapping[str, Identity] | None = None,
) -> dict[str, Any]:
    """What one node has to say for itself; runs there.

    Args:
        probes: probe files and what they hold.
        inputs: paths to take fingerprints of.
        variables: environment variables that should be set.
        plugins: those that the work names, with the identities that they should have.
    """
    found: dict[str, Any] = {"platform": platform_facts(), "probes": {}, "inputs": {}}
    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    for path, token in probes.items():
        found["probes"][path] = (
            _probed_object(path, token) if "://" in path else _probed(Path(path), token, deadline)
        )
    for path in inputs:
        try:
            found["inputs"][path] = fingerprint(path)
        except OSError as error:
            found["inputs"][path] = f"error: {error.strerror or error}"
    try:
        found["plugins"] = differing(plugins or {})
    except DesaError as error:
        found["plugins"] = [f"{error.where}: {error.what}"]
    found["unset"] = [name for name in variables if not os.environ.get(name)]
    return found


def _probed(probe: Path, token: str, deadline: float) -> str:
    """Nothing where the probe file is there and its folder can be written to, else what
    is wrong.
    """
    while True:
        try:
            if probe.read_text(encoding="utf-8") == token:
                return "" if os.access(probe.parent, os.W_OK) else "cannot write there"
        except OSError:
            if time.monotonic() > deadline:
                return (
                    "has a different folder of that name"
                    if probe.parent.is_dir()
                    else "has no such folder"
                )
        time.sleep(0.2)


def _probed_object(address: str, token: str) -> str:
    """Nothing where the object is there and another can be written next to it, else what
    is wrong.
    """
    root, _, name = address.rpartition("/")
    own = f"{name}-{uuid4().hex[:12]}"
    try:
        files = Files(root)
        found = files.read_bytes(name)
        if found != token.encode():
            return (
                "does not see a file that was written there"
                if found is None
                else "finds other contents there"
            )
        files.publish(own, token.encode())
        files.delete(own)
    except DesaError as error:
        return f"cannot use it: {error}"
    return ""
