"""Asks the nodes of a running cluster which GPUs they have and which libraries for them."""

from contextlib import suppress
from typing import Any

from desa_ray.cluster.session import session
from desa_ray.config import ClusterConfig
from desa_ray.pipeline.devices import DeviceNode, Devices, local_devices

ANSWER_TIMEOUT_S = 90.0
THE_CLUSTER = "the cluster"
# The files of a submitted run, its working folder among them, belong to the first driver that takes
# them and go when it ends: the one that asks takes none.
OF_THE_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
# What a node is taken to have that does not exist yet: requirements/gpu.txt.
OF_ADDED = frozenset({"", "torch", "sentence-transformers", "faiss-gpu"})


def devices_of(config: ClusterConfig) -> Devices:
    """What workers of this configuration could have; connects to a running cluster for it.

    Raises:
        DesaError: the cluster cannot be reached.
    """
    if config.kind != "existing":
        return local_devices()
    from desa_ray.cluster.local import settings_in_place

    with settings_in_place({OF_THE_JOB: None}), session(config):
        return connected_devices(config)


def connected_devices(config: ClusterConfig) -> Devices:
    """What the nodes of the connected cluster have, and those that it may be given."""
    import ray

    from desa_ray.cluster.placement import ADDED, cluster_nodes

    found = cluster_nodes(config)
    names = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in ray.nodes()}
    living = [name for name, node in found.items() if node.gpus and not name.startswith(ADDED)]
    told = _told(living)
    nodes: list[DeviceNode] = []
    for name, node in found.items():
        of_added: tuple[int, frozenset[str]] = (0, OF_ADDED)
        memory, libraries = (
            of_added if name.startswith(ADDED) else told.get(name, (0, frozenset[str]()))
        )
        shown = names.get(name, name)
        nodes.append(DeviceNode(shown, node.cpus, node.gpus, memory, libraries))
    return Devices(THE_CLUSTER, nodes)


def _task() -> Any:
    """Made inside a function so that it travels by value: a node may have other code, which the
    check of nodes tells.
    """

    def look() -> tuple[int, frozenset[str]]:
        from desa_ray.engines.gpu_engines import gpu_libraries
        from desa_ray.pipeline.machine import gpu_memory

        return gpu_memory(), gpu_libraries()

    return look


def _told(nodes: list[str]) -> dict[str, tuple[int, frozenset[str]]]:
    """Memory and libraries of nodes; one that does not answer is left out."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(_task())
    asked = {
        node: look.options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote()
        for node in nodes
    }
    if asked:
        ray.wait([*asked.values()], num_returns=len(asked), timeout=ANSWER_TIMEOUT_S)
    found: dict[str, tuple[int, frozenset[str]]] = {}
    for node, reference in asked.items():
        with suppress(RayError):
            found[node] = ray.get(reference, timeout=0.1)
    return found
