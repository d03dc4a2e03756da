"""Where workers find a place on the nodes of the connected cluster, each on one node."""

from collections.abc import Callable, Iterable, Sequence

import ray

from desa_ray.errors import DesaError, Problems
from desa_ray.pipeline.stage import Pool

Node = tuple[float, float]  # its CPUs and its GPUs
UNLIMITED = 1 << 20  # workers of a pool that takes nothing of a kind
LOWER = {
    "encoder": "lower cluster.encoder_cpus or cluster.encoder_gpus",
    "generator": "lower cluster.generator_cpus",
}


class ClusterPlacement:
    """Places on the nodes of the connected cluster.

    Args:
        check: raises where the cluster itself is dead; a dead one holds no worker, and that is not
            the pool's fault.
    """

    def __init__(self, check: Callable[[], None]):
        self.check = check

    def capacity(self, pool: Pool) -> int:
        """How many workers of this kind all nodes could hold; see `held`."""
        self.check()
        try:
            return held(pool, alive_nodes())
        except Exception:
            self.check()
            raise

    def fits(self, workers: Sequence[tuple[Pool, int]]) -> bool:
        """Whether so many workers of each pool fit side by side, counted over all nodes."""
        total = ray.cluster_resources()
        cpus = sum(count * pool.cpus for pool, count in workers)
        gpus = sum(count * pool.gpus for pool, count in workers)
        return cpus <= total.get("CPU", 0) and gpus <= total.get("GPU", 0)


def alive_nodes() -> list[Node]:
    """What each living node of the connected cluster has."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [(node.get("CPU", 0), node.get("GPU", 0)) for node in nodes]


def held(pool: Pool, nodes: Sequence[Node]) -> int:
    """How many workers of this kind these nodes could hold; a worker cannot be split over two
    nodes.

    Raises:
        DesaError: not one; says what the nodes have, or that there is none.
    """
    if not nodes:
        raise DesaError(
            "no node of the cluster is alive",
            where="cluster",
            hint="look at `ray status`, then rerun",
        )
    total = int(sum(_fitting(pool, cpus, gpus) for cpus, gpus in nodes))
    if total < 1:
        kinds = " or ".join(sorted({f"{cpus:g} CPUs and {gpus:g} GPUs" for cpus, gpus in nodes}))
        hint = LOWER.get(pool.name.partition(":")[0])
        raise DesaError(
            f"a worker of pool {pool.name} needs {pool.cpus:g} CPUs and {pool.gpus:g} GPUs on one"
            f" node, the cluster's nodes have {kinds}",
            where="cluster",
            hint=f"{hint}, or add nodes" if hint else "add nodes",
        )
    return total


def _fitting(pool: Pool, cpus: float, gpus: float) -> float:
    by_cpus = cpus // pool.cpus if pool.cpus else UNLIMITED
    by_gpus = gpus // pool.gpus if pool.gpus else UNLIMITED
    return min(by_cpus, by_gpus)


def check_pools(pools: Iterable[Pool], nodes: Sequence[Node] | None = None) -> None:
    """Raises `Problems` with every pool of which no node could hold a worker; without `nodes`, the
    cluster's.
    """
    nodes = alive_nodes() if nodes is None else nodes
    problems = []
    for pool in {pool.name: pool for pool in pools}.values():
        try:
            held(pool, nodes)
        except DesaError as problem:
            problems.append(problem)
    if problems:
        raise Problems(problems)
