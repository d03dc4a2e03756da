"""Ray's own autoscaler with its provider of made-up nodes: from no worker node to some and back,
and with the node groups of the shipped Kubernetes files.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import ray
import yaml

from tests.cluster.ray_nodes import RayHead, free_ports, token_in_this_process
from tests.cluster.run_process import Run
from tests.desa_fixtures import dataset, run_desa, summaries
from tests.infra.programs import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NODE = {"CPU": 1, "memory": 8 << 30, "object_store_memory": 100 << 20}
HEAD = "f" * 51 + "00000"  # the provider numbers its nodes from here
MAY_GROW = ["cluster.max_nodes=2", "cluster.node_cpus=1"]


def _autoscaling(address: str, groups: dict[str, dict]) -> dict:
    """A head without places, and groups of nodes that go when they were idle for six seconds."""
    head = "ray.head.default"
    nothing = ("initialization_commands", "setup_commands", "head_setup_commands")
    nothing += ("worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    return {
        "cluster_name": "made-up",
        "max_workers": sum(group["max_workers"] for group in groups.values()),
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 10.0,
        "provider": {
            "type": "external",  # by its module: the wheel lacks the defaults of its own type
            "module": "tests.infra.made_up_nodes.MadeUpNodes",
            "gcs_address": address,
            "head_node_id": HEAD,
            "launch_multiple": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "available_node_types": {
            head: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            **groups,
        },
        "head_node_type": head,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{name: [] for name in nothing},
    }


def _group(resources: dict, least: int, most: int) -> dict:
    return {
        "resources": resources,
        "node_config": {},
        "min_workers": least,
        "max_workers": most,
    }


@contextmanager
def _growing(folder: Path, groups: dict[str, dict]) -> Iterator[RayHead]:
    (port,) = free_ports(1)
    settings = folder / "autoscaling.yaml"
    settings.write_text(json.dumps(_autoscaling(f"127.0.0.1:{port}", groups)))
    environment = {
        "RAY_FAKE_CLUSTER": "1",
        "PYTHONPATH": str(REPOSITORY),
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    }
    with token_in_this_process():
        own = RayHead(folder, f"--autoscaling-config={settings}", port=port, **environment)
        try:
            yield own
        finally:
            own.end()


@pytest.fixture(scope="module")
def head(tmp_path_factory) -> Iterator[RayHead]:
    with _growing(tmp_path_factory.mktemp("grow"), {"worker": _group(NODE, 0, 2)}) as own:
        yield own


def _workers(head: RayHead) -> int:
    """Nodes beside the head, by their processes: a driver that joins to look would keep its node
    from being idle.
    """
    found, port = 0, head.address.partition(":")[2]
    for process in psutil.process_iter(["name", "cmdline"]):
        words = process.info["cmdline"] or []
        found += process.info["name"] == "raylet" and any(
            word.endswith(f":{port}") for word in words
        )
    return found - 1


@contextmanager
def _counted(head: RayHead) -> Iterator[list[int]]:
    """The numbers of nodes that were seen meanwhile; one may come and be gone before a run ends."""
    seen, over = [_workers(head)], threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            seen.append(_workers(head))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _await(found: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < deadline
        time.sleep(1)


def _run(folder: Path, data: Path, *arguments: str) -> str:
    folder.mkdir()
    common = [*dataset(data), "tracking.enabled=false", "draws=1"]
    if not any(word.startswith("cluster.shard_documents") for word in arguments):
        common.append("cluster.shard_documents=20")
    done = run_desa(folder, folder / "home", "run", *common, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return summaries(folder)[0]["artifacts"]["records.parquet"]


def test_a_run_grows_the_cluster_from_nothing_and_it_shrinks_again(head, small_slice, tmp_path):
    assert _workers(head) == 0
    serial = _run(tmp_path / "serial", small_slice, "cluster=serial")
    where = ["cluster=existing", f"cluster.address={head.address}", *MAY_GROW]
    assert _run(tmp_path / "grown", small_slice, *where) == serial
    assert _workers(head) > 0
    _await(lambda: _workers(head) == 0)


def test_after_a_kill_of_the_driver_the_cluster_shrinks(head, tmp_path):
    """Demand is the run's pending workers, which die with it."""
    run = Run(tmp_path, "anna", head.address, ("one", 1, 0, 600, 1.0), max_nodes=2, node_cpus=1)
    run.wait_for("done", "one")
    _await(lambda: _workers(head) == 2)
    run.process.kill()
    run.process.wait()
    _await(lambda: _workers(head) == 0)


def test_what_no_kind_of_node_can_hold_is_refused_at_once(head, small_slice, tmp_path):
    where = ["cluster=existing", f"cluster.address={head.address}", *MAY_GROW]
    command = [*dataset(small_slice), "tracking.enabled=false", *where, "cluster.encoder_cpus=2"]
    done = run_desa(tmp_path, tmp_path / "home", "run", *command)
    assert done.returncode == 2
    assert "needs 2 CPUs" in done.stderr
    assert "cluster.node_cpus" in done.stderr
    assert not ray.is_initialized()


def _shipped(name: str) -> dict[str, dict]:
    """The node groups of a shipped file, with the numbers that KubeRay hands to Ray."""
    manifest = yaml.safe_load((REPOSITORY / "infra/kubernetes" / f"{name}.yaml").read_text())
    cluster = manifest["spec"].get("rayClusterSpec", manifest["spec"])
    groups = {}
    for group in cluster["workerGroupSpecs"]:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        gpus = int(limits.get("nvidia.com/gpu", 0))
        has = {
            "CPU": int(limits["cpu"]),
            **({"GPU": gpus} if gpus else {}),
            "memory": int(limits["memory"].removesuffix("Gi")) << 30,
            "object_store_memory": 100 << 20,
        }
        groups[group["groupName"]] = _group(has, group["minReplicas"], group["maxReplicas"])
    return groups


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_the_shipped_groups_grow_and_shrink(name, small_slice, tmp_path, tmp_path_factory):
    """Three encoders that fill a node each: one node more than the two that stand."""
    groups = _shipped(name)
    least = sum(group["min_workers"] for group in groups.values())
    assert least == 2
    cpus = groups["cpu"]["resources"]["CPU"]
    serial = _run(tmp_path / "serial", small_slice, "cluster=serial")
    with _growing(tmp_path_factory.mktemp("own"), groups) as head:  # sockets: a short path
        _await(lambda: _workers(head) == least)
        where = ["cluster=existing", f"cluster.address={head.address}", "cluster.max_nodes=16"]
        where += [f"cluster.node_cpus={cpus}", "cluster.node_gpus=0"]
        filling = [
            f"cluster.encoder_cpus={cpus}",
            "cluster.encoders=3",
            "cluster.shard_documents=2",
        ]
        with _counted(head) as seen:
            assert _run(tmp_path / "grown", small_slice, *where, *filling) == serial
        assert max(seen) > least
        _await(lambda: _workers(head) == least)
