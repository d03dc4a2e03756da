"""How a supervisor reaches its workers, and the interface that says where they fit.

A transport starts, reaches and ends workers, and reports what happened to them; it has no rules of
its own. Ray actors and processes of this machine are two transports. A placement says how many
workers fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from desa_ray.errors import DesaError
from desa_ray.pipeline.packing import Node
from desa_ray.pipeline.stage import Pool, Task


@dataclass(frozen=True)
class Up:
    """A worker's process runs, on this node. It takes tasks once its engine is loaded: from now on,
    or after `Loaded`.
    """

    worker: int
    node: str = ""
    loaded: bool = True


@dataclass(frozen=True)
class Loaded:
    """A worker's engine is there, or cannot be loaded, which its first task tells.

    `rows`: of how many rows it wants shards at once, so that it never waits for the next one; 0 for
    one shard at a time.
    """

    worker: int
    rows: int = 0


@dataclass(frozen=True)
class Answer:
    """A worker's task is over, with or without an error of its own; `task` may be left out where it
    has no other.
    """

    worker: int
    error: DesaError | None
    task: Task | None = None


@dataclass(frozen=True)
class Lost:
    """A worker is gone, with whatever it was doing; `reason` in the words of the transport.

    Attributes:
        with_node: its node went, was drained or refused: what it did is not to blame.
        memory: it was killed because memory ran out on its node.
    """

    worker: int
    reason: str
    with_node: bool = False
    memory: bool = False


Event = Up | Loaded | Answer | Lost


class Transport(Protocol):
    """Workers by number. All methods but `wake` are called by one thread."""

    def spawn(self, worker: int, pool: Pool) -> None:
        """Begin to start a worker and load its engine; `Up` follows, and `Loaded`, or `Lost`."""
        ...

    def send(self, worker: int, task: Task) -> None:
        """Give a worker that is up a task; `Answer` follows, or `Lost`. It has others where it
        wants several at once.
        """
        ...

    def poll(self, timeout_s: float) -> Sequence[Event]:
        """What happened since; waits up to `timeout_s` for something, or until `wake`."""
        ...

    def wake(self) -> None:
        """Make a `poll` that waits return; called by any thread."""
        ...

    def kill(self, worker: int) -> None:
        """End a worker at once, whatever it does; `Lost` follows."""
        ...

    def end(self, workers: Sequence[int]) -> None:
        """End workers; nothing more is reported about them."""
        ...

    def check(self) -> None:
        """Raises `LostCluster` where what the workers run on is gone as a whole."""
        ...

    def close(self) -> None:
        """Give back what the transport itself holds; all workers are ended before."""
        ...


@dataclass(frozen=True)
class Share:
    """What a run may hold of a shared cluster.

    Attributes:
        others_wait: whether another run waits for a place that workers of this one could make.
        cpus, gpus: how much of each is this run's share; unlimited while it is alone. More is its
            own while nobody waits.
        cpus_wanted, gpus_wanted: what the others wait for.
        waited_s: how long the longest waiting of them has waited, as far as this run has seen.
    """

    others_wait: bool = False
    cpus: float = inf
    gpus: float = inf
    cpus_wanted: bool = False
    gpus_wanted: bool = False
    waited_s: float = 0.0


class Placement(Protocol):
    """Where workers fit, and what other runs leave of it.

    Attributes:
        shared: whether other people's work may be there; only then the rest matters.
    """

    shared: bool

    def capacity(self, pool: Pool) -> int:
        """How many workers of this kind would fit if nobody else used the cluster.

        Raises:
            DesaError: not one; says what there is.
        """
        ...

    def nodes(self) -> Mapping[str, Node]:
        """What every node has, and every one that may still be added."""
        ...

    def share(self, held: tuple[float, float], waiting: Pool | None) -> Share:
        """Tell other runs the CPUs and GPUs that this one holds and what it waits for; learn its
        own share.
        """
        ...

    def usage(self) -> str:
        """How full the place is, in words."""
        ...
