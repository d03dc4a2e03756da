"""Looks at every node of a Ray session: does it answer, has it the driver's versions, does it reach the same store."""

import os
import platform
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from desa_ray.errors import DesaError
from desa_ray.store.files import Files

# What must be equal everywhere: these read and write the bytes of the store, or carry tasks between nodes.
COMPARED = ("desa-ray", "ray", "numpy", "numba", "polars", "onnxruntime", "pyserini", "tokenizers")
ANSWER_S = 120.0


@dataclass(frozen=True)
class Node:
    """What one node said: versions by package, and what it saw of the store (None: the driver's probe is there)."""

    name: str
    versions: dict[str, str]
    store: str | None


def versions_here() -> dict[str, str]:
    """Python and the compared packages of this process ("-" where one is not installed)."""
    found = {"python": platform.python_version()}
    for name in COMPARED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "-"
    return found


def _look(store_root: str, probe: str, content: bytes) -> dict[str, Any]:
    """Runs on a node."""
    try:
        files = Files(store_root)
        seen = None if files.read_bytes(probe) == content else "does not see what the driver wrote there"
        own = f"{probe}-{socket.gethostname()}-{os.getpid()}"
        files.publish(own, content)
        files.delete(own)
    except DesaError as error:
        seen = str(error)
    return {"versions": versions_here(), "store": seen}


def look_at_nodes(store_root: str, timeout_s: float = ANSWER_S) -> list[Node]:
    """Every living node of the session's cluster; needs no free CPU there.

    Raises:
        DesaError: a node does not answer in time, or its worker cannot start.
    """
    files = Files(store_root)
    probe, content = f"probe-nodes-{os.getpid()}-{socket.gethostname()}", os.urandom(16).hex().encode()
    files.publish(probe, content)
    try:
        return [_ask(node, (store_root, probe, content), timeout_s) for node in _alive()]
    finally:
        files.delete(probe)


def _alive() -> Sequence[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _ask(node: dict[str, Any], arguments: tuple, timeout_s: float) -> Node:
    name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}:{node['NodeManagerPort']})"
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task = ray.remote(_look).options(num_cpus=0, scheduling_strategy=there, max_retries=0)
    try:
        return Node(name, **ray.get(task.remote(*arguments), timeout=timeout_s))
    except (RayError, GetTimeoutError) as error:
        what = "did not answer" if isinstance(error, GetTimeoutError) else str(error).strip().splitlines()[-1]
        raise DesaError(
            what, where=f"node {name}", mend="install the same package versions there, or end it"
        ) from error
