"""A cluster of three nodes on this machine, and everything that can die under a sweep: it ends with
the same records.

Each case disturbs a sweep while its corpus is being encoded, and compares the hash of every cell's
records with those of an undisturbed serial run.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from mlflow.tracking import MlflowClient
from ray.cluster_utils import Cluster

from tests.cluster.ray_nodes import token_in_this_process
from tests.cluster.sweeps import OFF, Sweep, hashes, serial_hashes
from tests.desa_fixtures import run_desa
from tests.tracking_servers import tracking_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

MEMORY = 100 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs for work and two worker nodes, which notice a lost node within
    seconds.
    """
    head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    with token_in_this_process(), pytest.MonkeyPatch.context() as patch:
        for name, value in {"period_ms": "1000", "failure_threshold": "3"}.items():
            patch.setenv(f"RAY_health_check_{name}", value)  # Ray wants this spelling
        nodes = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
        yield nodes
        nodes.shutdown()


@pytest.fixture(scope="module")
def undisturbed(small_slice, tmp_path_factory) -> dict:
    return serial_hashes(tmp_path_factory.mktemp("undisturbed"), small_slice)


def test_an_actor_is_killed(cluster, small_slice, undisturbed, tmp_path):
    sweep = Sweep(tmp_path, cluster.address, small_slice, OFF).start().await_shards()
    raylets = [
        psutil.Process(node.all_processes["raylet"][0].process.pid) for node in cluster.worker_nodes
    ]
    actors = [
        child
        for raylet in raylets
        for child in raylet.children(recursive=True)
        if "_Actor" in child.name()
    ]
    assert actors
    actors[0].kill()
    assert hashes(sweep.end().folder) == undisturbed


def test_a_node_is_lost(cluster, small_slice, undisturbed, tmp_path):
    """Which is nobody's failure: one would end this run."""
    once = "cluster.max_failures=1"
    sweep = Sweep(tmp_path, cluster.address, small_slice, OFF, once).start().await_shards()
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    try:
        assert hashes(sweep.end().folder) == undisturbed
    finally:
        cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        cluster.wait_for_nodes()


def test_the_driver_is_killed_and_its_runs_say_so(cluster, small_slice, undisturbed, tmp_path):
    sweep = Sweep(tmp_path, cluster.address, small_slice).start().await_shards(6)
    os.kill(sweep.process.pid, signal.SIGKILL)
    sweep.process.wait()
    stored = {path.name for path in (sweep.store / "vectors").glob("*/part-*.json")}
    client = MlflowClient(f"sqlite:///{sweep.home / 'mlflow.db'}")
    deadline = time.monotonic() + 300
    while [run.info.status for run in _parents(client)] != ["KILLED"]:
        assert time.monotonic() < deadline
        time.sleep(1)
    assert hashes(sweep.start().end().folder) == undisturbed
    assert stored <= {path.name for path in (sweep.store / "vectors").glob("*/part-*.json")}
    (parent,) = _parents(client)  # the rerun went on in it
    assert parent.info.status == "FINISHED"
    assert len(_children(client, parent)) == 4


def _runs(client: MlflowClient) -> list:
    return client.search_runs(
        [e.experiment_id for e in client.search_experiments() if e.name.startswith("desa/")]
    )


def _parents(client: MlflowClient) -> list:
    return [run for run in _runs(client) if "mlflow.parentRunId" not in run.data.tags]


def _children(client: MlflowClient, parent) -> list:
    return [
        run
        for run in _runs(client)
        if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id
    ]


def test_the_tracking_server_is_killed(cluster, small_slice, undisturbed, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = tracking_server(tmp_path, port)
    try:
        sweep = (
            Sweep(tmp_path, cluster.address, small_slice, f"tracking.uri=http://127.0.0.1:{port}")
            .start()
            .await_shards()
        )
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        assert hashes(sweep.end().folder) == undisturbed
        assert "`desa sync`" in sweep.log
        assert run_desa(tmp_path, sweep.home, "sync").returncode == 2  # still away: told, and kept
        server = tracking_server(tmp_path, port)
        synced = run_desa(tmp_path, sweep.home, "sync")
        assert synced.returncode == 0, synced.stderr
        assert run_desa(tmp_path, sweep.home, "sync").stdout.startswith("0 log entries")
        client = MlflowClient(f"http://127.0.0.1:{port}")
        (parent,) = _parents(client)
        assert parent.info.status == "FINISHED"
        children = _children(client, parent)
        logged = {
            (run.data.params["method"], int(run.data.params["kappa"])): run.data.tags[
                "sha256.records.parquet"
            ]
            for run in children
        }
        assert logged == undisturbed
        assert len(children) == 4
        assert all(client.list_artifacts(run.info.run_id) for run in children)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 300 KB in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("needs the right to mount a tmpfs")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_the_disk_of_the_store_is_full(cluster, small_slice, undisturbed, tmp_path, small_disk):
    sweep = Sweep(
        tmp_path, cluster.address, small_slice, OFF, f"store.root={small_disk}/store"
    ).start()
    sweep.end(2)
    assert "no space left on the disk" in sweep.log
    subprocess.run(["mount", "-o", "remount,size=500m", str(small_disk)], check=True)
    assert hashes(sweep.start().end().folder) == undisturbed


def test_an_artifact_is_corrupted(cluster, small_slice, undisturbed, tmp_path):
    sweep = Sweep(tmp_path, cluster.address, small_slice, OFF).start().await_shards(6)
    sweep.process.send_signal(signal.SIGINT)
    sweep.end(130)
    part = sorted((sweep.store / "vectors").glob("*/part-*.faiss"))[0]
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.chmod(0o644)
    part.write_bytes(data)
    sweep.start().end(2)
    assert part.name in sweep.log
    sweep.arguments.append("store.repair=true")
    assert hashes(sweep.start().end().folder) == undisturbed
