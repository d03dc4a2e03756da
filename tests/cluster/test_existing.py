"""A running cluster of several nodes: the run connects to it, spreads over it, and leaves it
running.
"""

import json
import time
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from desa_ray.cluster.preflight import Needs, check_nodes
from desa_ray.cluster.session import session
from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError, Problems
from desa_ray.pipeline.provenance import platform_facts
from tests.cluster.ray_nodes import token_in_this_process
from tests.desa_fixtures import dataset, run_desa, summaries


@pytest.fixture(scope="module")
def cluster():
    """A head without CPUs for work and two worker nodes, on this machine."""
    memory = 100 << 20
    head = {"num_cpus": 0, "object_store_memory": memory, "include_dashboard": False}
    with token_in_this_process():
        nodes = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            nodes.add_node(num_cpus=1, object_store_memory=memory)
        yield nodes
        nodes.shutdown()


def _run(folder: Path, small_slice: Path, *arguments: str) -> str:
    folder.mkdir()
    common = [
        *dataset(small_slice),
        "tracking.enabled=false",
        "draws=1",
        "cluster.shard_documents=20",
    ]
    done = run_desa(folder, folder / "home", "run", *common, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return summaries(folder)[0]["artifacts"]["records.parquet"]


@pytest.mark.slow
def test_two_nodes_give_the_records_of_a_serial_run_and_stay_up(cluster, small_slice, tmp_path):
    serial = _run(tmp_path / "serial", small_slice, "cluster=serial")
    where = ["cluster=existing", f"cluster.address={cluster.address}", "cluster.encoders=2"]
    assert _run(tmp_path / "first", small_slice, *where) == serial
    # The first run left the cluster as it was
    assert _run(tmp_path / "second", small_slice, *where) == serial


@pytest.mark.long
def test_a_pool_that_no_node_can_hold_is_refused(cluster, small_slice, tmp_path):
    # Two nodes of one CPU each: a worker of two CPUs fits the sum, but none of the nodes.
    """A pool that no node can hold is refused with what the cluster has."""
    where = ["cluster=existing", f"cluster.address={cluster.address}", "cluster.encoder_cpus=2"]
    done = run_desa(
        tmp_path, tmp_path / "home", "run", *dataset(small_slice), "tracking.enabled=false", *where
    )
    assert done.returncode == 2
    assert "cluster.encoder_cpus" in done.stderr
    # Refused before any pool set to work
    assert not list((tmp_path / "home" / "store").glob("postings/*/*.npy"))


@pytest.mark.long
def test_a_process_that_had_a_cluster_of_its_own_joins(cluster, tmp_path):
    """A process that had a cluster of its own joins another with that ones token."""
    with session(ClusterConfig(cpus=1)):
        assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
    assert "127.0.0.1" not in cluster.address
    with session(ClusterConfig(kind="existing", address=cluster.address)):
        assert check_nodes(Needs({"DESA_HOME": str(tmp_path)}, {})) == 3


@pytest.mark.long
def test_nodes_with_other_code_or_packages_are_refused_by_name(cluster, tmp_path):
    ray.init(address=cluster.address, logging_level="ERROR")
    try:
        needs = Needs({"DESA_HOME": str(tmp_path)}, {})
        assert check_nodes(needs) == 3
        assert list(tmp_path.iterdir()) == []  # the probe is gone again
        for other in (
            {"desa-ray": "9.9"},
            {"code": "0" * 64},
            {"environment": "", "packages": {"numpy": "1.0"}},
        ):
            with pytest.raises(Problems) as caught:
                check_nodes(needs, platform_facts() | other)
            for node in ray.nodes():
                assert node["NodeID"][:8] in str(caught.value)
            assert "same lock" in str(caught.value)
    finally:
        ray.shutdown()


@pytest.mark.long
def test_a_cluster_that_is_not_there_is_one_clear_error(small_slice, tmp_path):
    where = ["cluster=existing", "cluster.address=127.0.0.1:9"]
    done = run_desa(
        tmp_path, tmp_path / "home", "run", *dataset(small_slice), "tracking.enabled=false", *where
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "127.0.0.1:9" in done.stderr


def test_auto_with_the_address_of_a_dead_cluster(
    monkeypatch,
):
    """Auto with the address of a dead cluster in the environment says where it stands."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    started = time.monotonic()
    with (
        pytest.raises(DesaError) as caught,
        session(ClusterConfig(kind="existing", address="auto")),
    ):
        pass
    assert (caught.value.where, caught.value.hint.startswith("unset it")) == ("RAY_ADDRESS", True)
    assert "127.0.0.1:9" in caught.value.what
    assert time.monotonic() - started < 30  # Ray alone tries for minutes


def _doctor(cluster, folder: Path, *arguments: str):
    where = [
        "--cluster",
        cluster.address,
        "--store",
        str(folder / "store"),
        "--tracking",
        f"sqlite:///{folder}/m.db",
    ]
    done = run_desa(folder, folder / "home", "doctor", "--json", *where, *arguments)
    assert done.returncode in (0, 1), done.stderr
    findings = json.loads(done.stdout)["findings"]
    names = ("ray", "node", "devices ray")
    return done.returncode, [f for f in findings if f["name"].startswith(names)]


@pytest.mark.slow
def test_the_doctor_visits_every_node(cluster, tmp_path):
    code, (finding, devices) = _doctor(cluster, tmp_path)
    assert (code, finding["status"], devices["status"]) == (0, "ok", "ok")
    assert finding["what"].startswith("3 nodes, Ray ")
    assert devices["what"].startswith("the cluster has no GPU: ")
    # A node whose environment has another polars first on its path.
    other = tmp_path / "other" / "polars-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: polars\nVersion: 0.0.1\n")
    environment = {"PYTHONPATH": str(other.parent)}
    node = cluster.add_node(num_cpus=1, object_store_memory=100 << 20, env_vars=environment)
    try:
        code, findings = _doctor(cluster, tmp_path)
    finally:
        cluster.remove_node(node)
    assert code == 1
    assert [("polars 0.0.1" in f["what"], f["status"]) for f in findings] == [(True, "fail")]
