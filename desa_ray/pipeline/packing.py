"""Which workers fit on which nodes: a worker runs on one node and cannot span two."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from desa_ray.pipeline.stage import Pool


@dataclass(frozen=True)
class Node:
    """What a node has for workers: CPUs and GPUs, in whole devices or shares of them, and bytes of
    main memory.
    """

    cpus: float
    gpus: float = 0.0
    memory: float = inf

    def holds(self, pool: Pool) -> int:
        """How many workers of this kind it could hold, were it empty."""
        limits = [
            int(has / takes + 1e-9)  # tenths of a GPU do not add up in floats
            for has, takes in (
                (self.cpus, pool.cpus),
                (self.gpus, pool.gpus),
                (self.memory, pool.memory),
            )
            if takes and has < inf
        ]
        return min(limits, default=UNLIMITED)

    def without(self, pool: Pool) -> "Node":
        return Node(self.cpus - pool.cpus, self.gpus - pool.gpus, self.memory - pool.memory)

    def along(self, pool: Pool) -> "Node":
        return Node(self.cpus + pool.cpus, self.gpus + pool.gpus, self.memory + pool.memory)


UNLIMITED = 1 << 20  # workers that take nothing


@dataclass(frozen=True)
class Standing:
    """A worker and the node it stands on; None while it is coming up and Ray may choose."""

    worker: int
    pool: Pool
    node: str | None


@dataclass(frozen=True)
class Arrangement:
    """How many more workers find a place, and which idle ones end for them."""

    placed: int
    ended: tuple[int, ...]


def arrange(
    nodes: Mapping[str, Node],
    pool: Pool,
    wanted: int,
    *,
    kept: Iterable[Standing],
    idle: Sequence[Standing],
) -> Arrangement:
    """Place up to `wanted` more workers of a pool, node by node.

    A worker goes where it fits beside all others, the fullest such node first, which keeps whole
    nodes free for workers that take many devices. Where there is no such node, idle workers of one
    node end for it: of the node that loses the fewest.

    Args:
        nodes: all of them, with everything they have; nobody else's work is counted.
        kept: workers that stay where they are.
        idle: workers that may end, the least recently used first.
    """
    free = dict(nodes)
    standing = [*kept, *idle]
    for other in standing:
        if other.node in free:
            free[other.node] = free[other.node].without(other.pool)
    homes = {other.worker: other.node for other in standing}
    for other in standing:
        if other.node not in free:  # coming up, or its node is gone: assume the fullest that fits
            node = _fullest(free, other.pool)
            homes[other.worker] = node
            if node is not None:
                free[node] = free[node].without(other.pool)
    may_end: dict[str, list[Standing]] = {}
    for other in idle:
        home = homes[other.worker]
        if home is not None:
            may_end.setdefault(home, []).append(other)
    ended: list[int] = []
    for placed in range(wanted):
        node = _fullest(free, pool)
        if node is None:
            found = _cheapest(free, may_end, pool)
            if found is None:
                return Arrangement(placed, tuple(ended))
            node, leaving = found
            for other in leaving:
                free[node] = free[node].along(other.pool)
                may_end[node].remove(other)
                ended.append(other.worker)
        free[node] = free[node].without(pool)
    return Arrangement(wanted, tuple(ended))


def _fullest(free: Mapping[str, Node], pool: Pool) -> str | None:
    """The node with the least left of those that hold one more worker."""
    fitting = [name for name, node in free.items() if node.holds(pool) > 0]
    return min(fitting, key=lambda name: (free[name].gpus, free[name].cpus), default=None)


def _cheapest(
    free: Mapping[str, Node], may_end: Mapping[str, Sequence[Standing]], pool: Pool
) -> tuple[str, list[Standing]] | None:
    """The node where the fewest idle workers end for one of the pool, and which."""
    best: tuple[str, list[Standing]] | None = None
    for name, workers in may_end.items():
        node, leaving = free[name], list[Standing]()
        for other in workers:
            if node.holds(pool) > 0:
                break
            node = node.along(other.pool)
            leaving.append(other)
        if node.holds(pool) < 1:
            continue
        leaving = _needed(node, leaving, pool)
        if best is None or len(leaving) < len(best[1]):
            best = name, leaving
    return best


def _needed(node: Node, leaving: Sequence[Standing], pool: Pool) -> list[Standing]:
    """Those of `leaving` without whose place the pool's worker would not fit; `node` is without
    them all.
    """
    needed: list[Standing] = []
    for other in reversed(leaving):  # the one used last is the first to stay
        if node.without(other.pool).holds(pool) > 0:
            node = node.without(other.pool)
        else:
            needed.append(other)
    return needed
