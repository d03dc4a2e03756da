"""How a supervisor reaches its workers, and who says where they fit.

A transport starts, reaches and ends workers, and tells what happened to them; it has no rules of
its own. Ray actors and processes of this machine are two transports. A placement says how many
workers there is a place for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from desa_ray.errors import DesaError
from desa_ray.pipeline.stage import Pool, Task


@dataclass(frozen=True)
class Up:
    """A worker's process runs: from now on it takes tasks."""

    worker: int


@dataclass(frozen=True)
class Answer:
    """A worker's task is over, with or without an error of its own."""

    worker: int
    error: DesaError | None


@dataclass(frozen=True)
class Lost:
    """A worker is gone, with whatever it was doing; `reason` in the words of the transport."""

    worker: int
    reason: str


Event = Up | Answer | Lost


class Transport(Protocol):
    """Workers by number. All methods but `wake` are called by one thread."""

    def spawn(self, worker: int, pool: Pool) -> None:
        """Begin to start a worker; `Up` follows, or `Lost`."""
        ...

    def send(self, worker: int, task: Task) -> None:
        """Give a worker that is up and idle a task; `Answer` follows, or `Lost`."""
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
        """End workers; nothing more is told of them."""
        ...

    def check(self) -> None:
        """Raises `LostCluster` where what the workers run on is gone as a whole."""
        ...

    def close(self) -> None:
        """Give back what the transport itself holds; all workers are ended before."""
        ...


class Placement(Protocol):
    """Where workers fit, and how many."""

    def capacity(self, pool: Pool) -> int:
        """How many workers of this kind there is a place for, if nobody else were there.

        Raises:
            DesaError: not one; says what there is.
        """
        ...

    def fits(self, workers: Sequence[tuple[Pool, int]]) -> bool:
        """Whether so many workers of each pool have a place side by side."""
        ...
