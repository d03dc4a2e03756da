"""Where workers fit on the nodes of the connected cluster, each on one node.

A cluster that grows on demand counts with the size to which it may grow: the node groups that its
autoscaler reports, else `cluster.max_nodes`. The demand itself is the pending workers.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

import ray

from desa_ray.cluster.node_watch import NodeWatch
from desa_ray.cluster.run_series import RunSeries
from desa_ray.cluster.sharing import ClaimBoard
from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError, Problems
from desa_ray.pipeline.feasible import GB, check_limit
from desa_ray.pipeline.packing import Node
from desa_ray.pipeline.stage import Pool
from desa_ray.pipeline.transport import Share

ADDED = "may be added"  # what the names of such nodes begin with
GROUP_LIMIT = 1000  # nodes of a group without a limit of its own
LOWER = {
    "encoder": "lower cluster.encoder_cpus or cluster.encoder_gpus",
    "generator": "lower cluster.generator_cpus",
    "scorer": "lower cluster.memory_gb",
    "replayer": "lower cluster.memory_gb",
    "lucene": "lower sparse.heap",
}


class ClusterPlacement:
    """Places on the nodes of the connected cluster.

    Args:
        check: raises where the cluster itself is dead; a dead one holds no worker, and that is not
            the pool's fault.
        series: told what the run holds and whether it waits.
        watch: knows the nodes that take no work.
    """

    def __init__(
        self,
        check: Callable[[], None],
        config: ClusterConfig,
        series: RunSeries | None = None,
        watch: NodeWatch | None = None,
    ):
        self.check, self.config, self.series = check, config, series
        self.watch = watch or NodeWatch()
        self.shared = config.kind == "existing"
        self.board = ClaimBoard() if self.shared else None

    def capacity(self, pool: Pool) -> int:
        """How many workers of this kind all nodes could hold; see `held`."""
        self.check()
        try:
            check_limit(pool, self.config)
            return held(pool, self.nodes())
        except Exception:
            self.check()
            raise

    def nodes(self) -> Mapping[str, Node]:
        found = cluster_nodes(self.config)
        return self.watch.taking(found) if self.shared else found

    def share(self, held: tuple[float, float], waiting: Pool | None) -> Share:
        if self.board is None:
            return Share()
        if self.series is not None:
            self.series.set("run_held", "CPU", held[0])
            self.series.set("run_held", "GPU", held[1])
            self.series.set("run_waits", "", float(waiting is not None))
        total = ray.cluster_resources()
        return self.board.share(held, waiting, (total.get("CPU", 0.0), total.get("GPU", 0.0)))

    def usage(self) -> str:
        """`the cluster has 4 CPUs (0 free) and 1 GPU (0 free)`, and who else is there."""
        total, free = ray.cluster_resources(), ray.available_resources()
        parts = [
            f"{total[kind]:g} {kind}s ({free.get(kind, 0):g} free)"
            for kind in ("CPU", "GPU")
            if total.get(kind)
        ]
        others = self.board.seen() if self.board is not None else ""
        return f"the cluster has {' and '.join(parts) or 'no capacity for workers yet'}{others}"

    def close(self) -> None:
        if self.board is not None:
            self.board.withdraw()


def alive_nodes() -> dict[str, Node]:
    """What each living node of the connected cluster has, by its id."""
    nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    return {
        name: Node(has.get("CPU", 0), has.get("GPU", 0), has.get("memory", 0))
        for name, has in nodes.items()
    }


def cluster_nodes(config: ClusterConfig) -> dict[str, Node]:
    """The living nodes, and those that an autoscaler may add."""
    living = alive_nodes()
    if config.kind != "existing":
        return living
    groups = _reported_groups()
    if not groups:
        there = sum(node.cpus > 0 or node.gpus > 0 for node in living.values())
        kind = Node(config.node_cpus, config.node_gpus)  # with as much memory as it takes
        return living | _added(kind, config.max_nodes - there, 0)
    found = dict(living)
    for number, (kind, limit) in enumerate(groups):
        there = sum((one.cpus, one.gpus) == (kind.cpus, kind.gpus) for one in living.values())
        found |= _added(kind, limit - there, number)
    return found


def _added(kind: Node, count: int, group: int) -> dict[str, Node]:
    return {f"{ADDED}: {group}/{number}": kind for number in range(count)}


def _reported_groups() -> list[tuple[Node, int]]:
    """Node groups that the cluster's autoscaler reported: what a node has, and how many there may
    be.
    """
    from ray._private.state import state  # where Ray's own libraries ask for it

    reported: Any = state.get_cluster_config()
    if reported is None:
        return []
    groups = []
    for group in reported.node_group_configs:
        has = [float(group.resources.get(name, 0)) for name in ("CPU", "GPU", "memory")]
        kind = Node(has[0], has[1], has[2] or inf)
        limit = group.max_count if group.max_count >= 0 else GROUP_LIMIT
        if kind.cpus or kind.gpus:
            groups.append((kind, limit))
    return groups


def held(pool: Pool, nodes: Mapping[str, Node]) -> int:
    """How many workers of this kind these nodes could hold; a worker cannot be split over two
    nodes.

    Raises:
        DesaError: not one; says what the nodes have, or that there is none.
    """
    if not nodes:
        raise DesaError(
            "no node of the cluster is alive",
            where="cluster",
            hint="check `ray status`, then rerun",
        )
    total = sum(node.holds(pool) for node in nodes.values() if node.holds(pool) > 0)
    if total < 1:
        kinds = " or ".join(sorted({_amounts(node, pool) for node in nodes.values()}))
        hint = LOWER.get(pool.name.partition(":")[0])
        grow = "add nodes, or set what an autoscaler may add (cluster.max_nodes, cluster.node_cpus,"
        grow += " cluster.node_gpus)"
        raise DesaError(
            f"a worker of pool {pool.name} needs {_amounts(pool, pool)} on one node, but the"
            f" cluster's nodes have {kinds}",
            where="cluster",
            hint=f"{hint}, or {grow}" if hint else grow,
        )
    return total


def _amounts(has: Node | Pool, pool: Pool) -> str:
    """In words; memory only where the pool asks for some."""
    words = [f"{has.cpus:g} CPUs", f"{has.gpus:g} GPUs"]
    if pool.memory and has.memory < inf:
        words.append(f"{has.memory / GB:.3g} GB of memory")
    return " and ".join(words)


def check_pools(
    pools: Iterable[Pool],
    config: ClusterConfig,
    nodes: Mapping[str, Node] | None = None,
) -> None:
    """Raises `Problems` with every pool of which no node could hold a worker, now or when the
    cluster has grown.

    Args:
        nodes: in place of the connected cluster's.
    """
    nodes = cluster_nodes(config) if nodes is None else nodes
    problems = []
    for pool in {pool.name: pool for pool in pools}.values():
        try:
            check_limit(pool, config)
            held(pool, nodes)
        except DesaError as problem:
            problems.append(problem)
    if problems:
        raise Problems(problems)
