"""Nodes that join late and differ, that are about to go, or that have less memory than Ray
believes: the run goes on, and no shard is to blame.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from tests.cluster.ray_nodes import (
    RayHead,
    RayNode,
    token_environment,
    token_in_this_process,
)
from tests.cluster.run_process import REPOSITORY, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MEMORY = 100 << 20
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head without places and one node with one CPU."""
    head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    with token_in_this_process():
        nodes = Cluster(initialize_head=True, head_node_args=head)
        nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
        yield nodes
        nodes.shutdown()


def until(holds: Callable[[], bool], run: Run, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert run.process.poll() is None, run.out.read_text()
        assert time.monotonic() < deadline, run.out.read_text()
        time.sleep(0.2)


def test_a_late_node_that_differs_gets_no_work(cluster, runs, tmp_path):
    """It has another polars; the next one is like the others and takes its part."""
    other = tmp_path / "other" / "polars-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: polars\nVersion: 0.0.1\n")
    run = Run(tmp_path, "anna", cluster.address, ("late", 1, 0, 60, 1.0), max_failures=1)
    runs.append(run)
    run.wait_for("done", "late")
    environment = {"PYTHONPATH": f"{other.parent}:{REPOSITORY}"}
    odd = cluster.add_node(num_cpus=1, object_store_memory=MEMORY, env_vars=environment)
    until(lambda: bool(run.notes()), run)
    (told,) = run.notes()
    assert told.startswith("a node that joined gets no work: node ")
    assert odd.node_id[:8] in told
    assert "polars 0.0.1 (not " in told
    like = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    until(lambda: like.node_id in run.nodes(), run)
    run.end()
    assert odd.node_id not in run.nodes()
    assert len(run.notes()) == 1


def test_a_node_to_be_drained_ends_its_shard_and_gets_no_other(cluster, runs, tmp_path):
    """A notice before a preemption; then the node goes, which no shard notices."""
    spot = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    run = Run(tmp_path, "anna", cluster.address, ("work", 1, 0, 40, 1.0), max_failures=1)
    runs.append(run)
    until(lambda: spot.node_id in run.nodes(), run)
    notice = ["ray", "drain-node", f"--address={cluster.address}", f"--node-id={spot.node_id}"]
    notice += ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot"]
    notice += ["--deadline-remaining-seconds=300"]
    subprocess.run(notice, env=token_environment(), check=True, capture_output=True)
    time.sleep(5)  # two looks at the nodes, and a shard in between
    last = len(run.nodes())
    until(lambda: len(run.nodes()) >= last + 4, run)
    assert spot.node_id not in run.nodes()[last:]
    cluster.remove_node(spot, allow_graceful=False)
    run.end()
    assert len(run.nodes()) == 40


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with 1.7 GB."""
    version_1 = (GROUPS / "memory").is_dir()
    folder = (GROUPS / "memory" if version_1 else GROUPS) / f"desa-test-{time.time_ns()}"
    limit = folder / ("memory.limit_in_bytes" if version_1 else "memory.max")
    try:
        folder.mkdir()
        limit.write_text(str(1700 << 20))
    except OSError:
        pytest.skip("this process may not limit memory by a control group")
    yield folder
    deadline = time.monotonic() + 30
    while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.2)
    folder.rmdir()


@pytest.fixture
def small_node(group, tmp_path_factory) -> Iterator[RayHead]:
    """A head, and a node of two CPUs that believes to have all memory of the machine."""
    folder = tmp_path_factory.mktemp("own")
    with token_in_this_process():
        head = RayHead(folder)
        node = RayNode(folder, f"--address={head.address}", "--num-cpus=2", group=group)
        yield head
        node.end(at_once=True)
        head.end()


def test_workers_for_which_there_is_no_memory_are_fewer(small_node, runs, tmp_path):
    """The kernel kills one of two: its shard is not to blame, and one worker does the rest. A shard
    that is too large alone is to blame, and the error says that it was memory.
    """
    run = Run(tmp_path, "anna", small_node.address, ("held", 1, 0, 6, 2.0, 700), max_failures=1)
    runs.append(run)
    run.end()
    assert len(run.nodes()) == 6
    large = ("large", 2, 0, 1, 2.0, 1700)
    alone = Run(tmp_path, "ben", small_node.address, large, max_failures=2)
    runs.append(alone)
    assert alone.process.wait(180) != 0
    told = alone.out.read_text()
    assert "failed 2 times" in told
    assert "memory ran out on the node of a worker of pool large" in told
    assert not ray.is_initialized()


def test_ray_names_memory_and_so_does_the_run(tmp_path_factory, runs, tmp_path):
    """A node whose memory is above the threshold from the start: Ray kills what works there, the
    look at the node included.
    """
    folder = tmp_path_factory.mktemp("own")
    with token_in_this_process():
        head = RayHead(folder)
        full = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "500"}
        node = RayNode(folder, f"--address={head.address}", "--num-cpus=1", **full)
        try:
            run = Run(tmp_path, "anna", head.address, ("full", 1, 0, 1, 60.0), max_failures=1)
            runs.append(run)
            assert run.process.wait(180) != 0
            assert "memory ran out on the node" in run.out.read_text()
            assert "same lock file" not in run.out.read_text()
        finally:
            node.end(at_once=True)
            head.end()
