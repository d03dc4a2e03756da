"""A stage is data: its identity (name, version, parameters, inputs) decides its key, its work says how to compute it.

Two stages with one key are the same artifact. Nothing that leaves a result unchanged (pool sizes, batches, shards,
paths) is part of the identity; such settings live in `work` and `Pool` and may differ between runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

from desa_ray.store.artifacts import Artifact, Store
from desa_ray.store.keys import Key


@dataclass(frozen=True)
class Pool:
    """A kind of worker: which engine it holds and what it takes.

    Attributes:
        name: equal names mean interchangeable workers; a session starts each pool once.
        factory: importable, picklable callable that returns the loaded engine.
        size: workers; None for as many as the cluster holds.
        cpus, gpus: resources of one worker.
        isolated: the engine must have a process of its own (a JVM beside OpenMP code corrupts both).
        light: the engine holds nothing but what it reads from the store, and is loaded at once.
    """

    name: str
    factory: Callable[[], Any]
    size: int | None = 1
    cpus: float = 1
    gpus: float = 0
    isolated: bool = False
    light: bool = False


@dataclass(frozen=True)
class Shard:
    """One unit of work: rows `start:stop` of a stage, done when all its parts are stored."""

    number: int
    start: int
    stop: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Finished:
    """What a stage's last step found: the hash over its logical rows in order, and counts for the manifest."""

    content: str
    counts: Mapping[str, int] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)


class Work(Protocol):
    """How a stage is computed. Implementations are small picklable dataclasses without data."""

    @property
    def pool(self) -> Pool | None:
        """The pool that runs the shards; None runs them in the calling process."""
        ...

    def layout(self, store: Store, stage: "Stage") -> Mapping[str, Any]:
        """The shard boundaries to propose; the first writer's stay for ever. May write parts all shards need."""
        ...

    def shards(self, layout: Mapping[str, Any]) -> Sequence[Shard]: ...

    def run(self, engine: Any, store: Store, stage: "Stage", shard: Shard) -> None:
        """Compute one shard and write its parts."""
        ...

    def finish(self, store: Store, stage: "Stage", layout: Mapping[str, Any]) -> Finished: ...


@dataclass(frozen=True)
class Stage:
    """One artifact to be: identity plus work. `label` is for people."""

    name: str
    version: int
    params: Mapping[str, Any]
    work: Work = field(repr=False)
    inputs: Mapping[str, "Stage"] = field(default_factory=dict, repr=False)
    label: str = ""

    @cached_property
    def key(self) -> Key:
        return Key(
            self.name, self.version, self.params, {role: stage.key.digest for role, stage in self.inputs.items()}
        )

    def artifact(self, store: Store) -> Artifact:
        return store.artifact(self.key)

    def __str__(self) -> str:
        return f"{self.name} {self.label} [{self.key.short}]".replace("  ", " ")


@dataclass(frozen=True)
class Task:
    """What travels to a worker: the stage (identity and work, no data) and the shard to compute."""

    stage: Stage
    shard: Shard

    def __str__(self) -> str:
        return f"{self.stage} shard {self.shard.number} (rows {self.shard.start}-{self.shard.stop - 1})"


def stored_layout(store: Store, stage: Stage) -> Mapping[str, Any]:
    """The layout that the stage's first writer fixed; a complete artifact's manifest holds it too."""
    artifact = stage.artifact(store)
    if artifact.exists():
        return artifact.manifest()["layout"]
    layout = artifact.stored_layout()
    assert layout, f"{stage} has no layout yet"
    return layout


def bounds(total: int, size: int) -> list[int]:
    """Shard boundaries from 0 to total: as few shards as hold `size` rows each at most, of nearly the same size, so
    that workers end together; a stage without rows has one empty shard.
    """
    count = max(1, -(-total // size))
    return [total * number // count for number in range(count + 1)]


def shards_of(layout: Mapping[str, Any], *names: str) -> list[Shard]:
    """Shards from stored boundaries; `{}` in a part name becomes the five-digit shard number."""
    edges = layout["bounds"]
    return [
        Shard(number, start, stop, tuple(name.format(f"{number:05d}") for name in names))
        for number, (start, stop) in enumerate(pairwise(edges))
    ]


def ancestors(targets: Sequence[Stage]) -> Iterator[Stage]:
    """Every stage the targets depend on and the targets, each key once, inputs before users."""
    seen: set[str] = set()

    def visit(stage: Stage) -> Iterator[Stage]:
        if stage.key.digest in seen:
            return
        seen.add(stage.key.digest)
        for source in stage.inputs.values():
            yield from visit(source)
        yield stage

    for target in targets:
        yield from visit(target)
