"""The head of a running cluster dies below a run: one line says so, and the same command goes on in
the next cluster; where the head comes back from Redis, the run itself goes on.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.ray_nodes import RayHead, RayNode, free_ports, token_in_this_process
from tests.cluster.sweeps import OFF, Sweep, hashes, serial_hashes
from tests.infra.programs import REPOSITORY, program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PASSWORD = "a-password-of-the-test"
PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"


@pytest.fixture(scope="module")
def undisturbed(small_slice, tmp_path_factory) -> dict:
    return serial_hashes(tmp_path_factory.mktemp("undisturbed"), small_slice)


def _node(folder: Path, head: RayHead, **environment: str) -> RayNode:
    return RayNode(folder, f"--address={head.address}", "--num-cpus=2", **environment)


def test_a_dead_head_is_one_line_and_the_next_cluster_goes_on(
    small_slice,
    undisturbed,
    tmp_path,
    tmp_path_factory,
):
    folder = tmp_path_factory.mktemp("own")
    with token_in_this_process():
        head = RayHead(folder)
        node = _node(folder, head)
        sweep = Sweep(tmp_path, head.address, small_slice, OFF).start().await_shards()
        head.end(at_once=True)
        began = time.monotonic()
        sweep.end(2)
        assert time.monotonic() - began < 90
        node.end(at_once=True)
        (line,) = [line for line in sweep.log.splitlines() if line.startswith("error")]
        port = head.address.partition(":")[2]
        assert f":{port} has not answered for 3" in line  # Ray names the machine as it likes
        assert "rerun the same command" in sweep.log
        head = RayHead(folder)
        node = _node(folder, head)
        try:
            again = Sweep(tmp_path, head.address, small_slice, OFF)
            assert hashes(again.start().end().folder) == undisturbed
        finally:
            node.end(at_once=True)
            head.end()


@pytest.fixture
def redis(tmp_path_factory) -> Iterator[str]:
    """The address of a Redis with a password, which is given by standard input."""
    folder, (port,) = tmp_path_factory.mktemp("redis"), free_ports(1)
    libraries = REPOSITORY / ".tools" / "usr" / "lib" / "x86_64-linux-gnu"
    settings = [f"requirepass {PASSWORD}", "appendonly yes", f"dir {folder}", f"port {port}"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [program("redis-server"), "-"],
            env=os.environ | {"LD_LIBRARY_PATH": str(libraries)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
        )
    assert server.stdin is not None
    server.stdin.write("\n".join([*settings, "bind 127.0.0.1\n"]))
    server.stdin.close()
    yield f"127.0.0.1:{port}"
    server.kill()
    server.wait()


def test_a_run_goes_on_with_a_head_that_comes_back(
    redis,
    small_slice,
    undisturbed,
    tmp_path,
    tmp_path_factory,
    monkeypatch,
):
    """All of the head is killed and started again from Redis, as KubeRay does."""
    folder, (port,) = tmp_path_factory.mktemp("own"), free_ports(1)
    monkeypatch.setenv(PATIENCE, "240")  # for the run; the nodes are told as well
    kept = {"RAY_REDIS_ADDRESS": redis, PATIENCE: "240"}
    with token_in_this_process():
        head = RayHead(folder, f"--redis-password={PASSWORD}", port=port, **kept)
        node = _node(folder, head, **kept)
        try:
            sweep = Sweep(tmp_path, head.address, small_slice, OFF).start().await_shards()
            before = len(list(sweep.store.glob("vectors/*/part-*.json")))
            head.end(at_once=True)
            anew = tmp_path_factory.mktemp("anew")  # as in a new container, nothing of the old head
            head = RayHead(anew, f"--redis-password={PASSWORD}", port=port, **kept)
            assert hashes(sweep.end().folder) == undisturbed
            assert before < len(list(sweep.store.glob("vectors/*/part-*.json")))
        finally:
            node.end(at_once=True)
            head.end()
