"""A stage is data: its identity (name, version, parameters, inputs) decides its key; its work says
how to compute it.

Two stages with one key are the same artifact. Nothing that leaves a result unchanged (pool sizes,
batches, shards, paths) is part of the identity; such settings live in `work` and `Pool` and may
differ between runs. A stage knows the store that its artifact lies in; the kinds of stages are in
`desa_ray.stages`, one file each.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.store.artifact import Artifact
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key


@dataclass(frozen=True)
class PoolSettings:
    """Which settings say what a pool takes; named where it cannot have that.

    Attributes:
        size: a field of the cluster's settings; empty where none sets it.
        cpus, gpus: by their whole names.
    """

    size: str = ""
    cpus: str = "cluster.cpus"
    gpus: str = "cluster"


@dataclass(frozen=True)
class Pool:
    """A kind of worker: which engine it holds and what it takes.

    Attributes:
        name: equal names mean interchangeable workers; a session starts each pool once.
        factory: importable, picklable callable that returns the loaded engine.
        size: workers; None for as many as the cluster holds.
        cpus, gpus: resources of one worker.
        memory: bytes of main memory that one worker may come to hold, by which a shared cluster
            places it; 0 where that is not known.
        isolated: the engine must have a process of its own (a JVM and OpenMP code in one process
            corrupt each other).
        light: the engine holds nothing but what it reads from the store, and is loaded at once.
        in_flight: shards that one worker may compute at once, each in a thread of its own; the
            loaded engine says how many it wants (`rows_at_once`).
        settings: where the user says how many workers there are, and what one takes.
    """

    name: str
    factory: Callable[[], Any]
    size: int | None = 1
    cpus: float = 1
    gpus: float = 0
    memory: int = 0
    isolated: bool = False
    light: bool = False
    in_flight: int = 1
    settings: PoolSettings = PoolSettings()

    @property
    def kind(self) -> str:
        """What people call its workers: the first word of the name."""
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class Shard:
    """One unit of work: rows `start:stop` of a stage, done when all its parts are stored."""

    number: int
    start: int
    stop: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Finished:
    """What a stage's last step found: the hash over its logical rows in order, and counts for the
    manifest.
    """

    content: str
    counts: Mapping[str, int] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)


class Count(NamedTuple):
    """`value` more of the metric `name`, of the kind that `labels` say."""

    name: str
    value: int
    labels: dict[str, str]


class Work(ABC):
    """How a kind of stage is computed, and what plans and metrics need to know of it.

    Implementations are small picklable dataclasses that hold no results; every method takes the
    stage as an argument.

    Attributes:
        pool: the pool that runs the shards; None runs them in the calling process.
        unit: what people count of it in a plan; empty for stages that plans do not estimate.
        sized_by: the role of the input that it has as many rows as.
        smaller: the setting under which a worker holds less of the collection; empty for none.
    """

    pool: Pool | None
    unit: ClassVar[str] = ""
    sized_by: ClassVar[str] = "queries"
    smaller: ClassVar[str] = ""

    @abstractmethod
    def layout(self, stage: "Stage") -> Mapping[str, Any]:
        """The shard boundaries to propose; the first writer's stay for ever. May write parts all
        shards need.
        """

    @abstractmethod
    def shards(self, layout: Mapping[str, Any]) -> Sequence[Shard]:
        """The shards of a layout, in the order of their rows."""

    @abstractmethod
    def run(self, engine: Any, stage: "Stage", shard: Shard) -> None:
        """Compute one shard and write its parts."""

    @abstractmethod
    def finish(self, stage: "Stage", layout: Mapping[str, Any]) -> Finished:
        """Hash the logical rows of all shards in order, and count them."""

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size | None:
        """How large a stage with these parameters is.

        Args:
            rows: rows of its inputs by role.
            distinct: distinct texts among them, where the kind counts those.
        """
        del params, rows, distinct
        return None

    @classmethod
    def comparable_key(cls, params: Params, rows: Rows) -> Any:
        """Equal for two stages of which one tells something about how long the other takes."""
        del params, rows
        return None

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        """What two comparable stages should agree in, most important first."""
        del params
        return ()

    def read_through(self, layout: Mapping[str, Any]) -> Sequence[str]:
        """Roles of the inputs that readers of a stored stage read too; it is not there without
        these.
        """
        del layout
        return ()

    def distinct_texts(self, stage: "Stage") -> tuple[int | None, bool]:
        """The `distinct` of `size`, and whether it is an upper bound only."""
        del stage
        return None, False

    def shard_rows(self, rows: Rows) -> int | None:
        """Rows per shard of a stage that has no layout yet; None for one shard."""
        del rows
        return None

    def worker_bytes(self, stage: "Stage", queries: int) -> int | None:
        """What one worker holds for so many queries at once; None where it never grows with the
        collection.
        """
        del stage, queries
        return None

    def plan_group(self, stage: "Stage") -> str:
        """What a plan calls the stages of one line, in addition to the stage's name."""
        return stage.label

    def metrics(self, stage: "Stage", parts: Sequence[str]) -> Iterator[Count]:
        """What the stored parts of a shard amount to, in addition to their rows and bytes."""
        del stage, parts
        return iter(())


@dataclass(frozen=True)
class Stage:
    """One artifact to be computed: identity plus work, and the store that holds it. `label` is for
    people.
    """

    store: Store = field(repr=False, compare=False)
    name: str
    version: int
    params: Mapping[str, Any]
    work: Work = field(repr=False)
    inputs: Mapping[str, "Stage"] = field(default_factory=dict, repr=False)
    label: str = ""

    @cached_property
    def key(self) -> Key:
        return Key(
            self.name,
            self.version,
            self.params,
            {role: stage.key.digest for role, stage in self.inputs.items()},
        )

    @property
    def artifact(self) -> Artifact:
        """Its artifact, made again at each use: what is on the disk counts."""
        return self.store.artifact(self.key)

    @property
    def rows(self) -> int:
        """Rows of its stored artifact, as its manifest counts them."""
        return self.artifact.manifest()["counts"]["rows"]

    def rows_of(self, parts: Sequence[str]) -> int:
        """Rows of the longest of some stored parts: those of a shard hold the same rows."""
        infos = [self.artifact.part(part) for part in parts]
        return max((info.rows for info in infos if info is not None), default=0)

    def stored_layout(self) -> Mapping[str, Any]:
        """The layout that the stage's first writer fixed; a complete artifact's manifest holds it
        too.
        """
        artifact = self.artifact
        if artifact.exists():
            return artifact.manifest()["layout"]
        layout = artifact.stored_layout()
        assert layout, f"{self} has no layout yet"
        return layout

    def stored_shards(self) -> Sequence[Shard]:
        """The shards of the stored layout."""
        return self.work.shards(self.stored_layout())

    def __str__(self) -> str:
        return f"{self.name} {self.label} [{self.key.short}]".replace("  ", " ")


@dataclass(frozen=True)
class Task:
    """What travels to a worker: the stage (identity and work, no data) and the shard to compute."""

    stage: Stage
    shard: Shard

    def __str__(self) -> str:
        return (
            f"{self.stage} shard {self.shard.number} (rows"
            f" {self.shard.start}-{self.shard.stop - 1})"
        )


def bounds(total: int, size: int) -> list[int]:
    """Shard boundaries from 0 to total: as few shards as hold `size` rows each at most, of nearly
    the same size, so that workers end together; a stage without rows has one empty shard.
    """
    count = max(1, -(-total // size))
    return [total * number // count for number in range(count + 1)]


def shards_of(layout: Mapping[str, Any], *names: str) -> list[Shard]:
    """Shards from stored boundaries; `{}` in a part name becomes the five-digit shard number."""
    shards = []
    for number, (start, stop) in enumerate(pairwise(layout["bounds"])):
        parts = tuple(name.format(f"{number:05d}") for name in names)
        shards.append(Shard(number, start, stop, parts))
    return shards


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
