"""What the nodes of the connected cluster can hold: workers of a pool, each on one node."""

from collections.abc import Iterable

import ray

from desa_ray.errors import DesaError, Problems
from desa_ray.pipeline.stage import Pool

UNLIMITED = 1 << 20  # workers of a pool that takes nothing of a kind
LOWER = {"encoder": "lower cluster.encoder_cpus or cluster.encoder_gpus", "generator": "lower cluster.generator_cpus"}


def room(pool: Pool) -> int:
    """How many workers of this kind all nodes could hold; a worker cannot be split over two nodes.

    Raises:
        DesaError: not one; says what the nodes have.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    owned = [(node.get("CPU", 0), node.get("GPU", 0)) for node in nodes]
    fitting = [
        min(cpus // pool.cpus if pool.cpus else UNLIMITED, gpus // pool.gpus if pool.gpus else UNLIMITED)
        for cpus, gpus in owned
    ]
    if (total := int(sum(fitting))) < 1:
        kinds = " or ".join(sorted({f"{cpus:g} CPUs and {gpus:g} GPUs" for cpus, gpus in owned}))
        mend = LOWER.get(pool.name.partition(":")[0])
        raise DesaError(
            f"a worker of pool {pool.name} needs {pool.cpus:g} CPUs and {pool.gpus:g} GPUs on one node, "
            f"the cluster's nodes have {kinds}",
            where="cluster",
            mend=f"{mend}, or add nodes" if mend else "add nodes",
        )
    return total


def check_pools(pools: Iterable[Pool]) -> None:
    """Raises `Problems` with every pool of which no node could hold a worker."""
    problems = []
    for pool in {pool.name: pool for pool in pools}.values():
        try:
            room(pool)
        except DesaError as problem:
            problems.append(problem)
    if problems:
        raise Problems(problems)
