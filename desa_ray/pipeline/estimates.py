"""What a plan expects: which stages are stored, how much is left of the others, and what that will take.

Items are counted, not guessed: sizes of the collection and of the texts are known beforehand. Seconds and bytes come
from the store's own manifests, from the artifact of the same stage that is most like the one to come (same engine or
nothing at all), in proportion to the work; where there is none they are unknown and stay so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from desa_ray.config import ClusterConfig
from desa_ray.pipeline.collection import read_rows
from desa_ray.pipeline.execute import missing, present
from desa_ray.pipeline.feasible import room
from desa_ray.pipeline.fusing import FusionWork
from desa_ray.pipeline.generations import Generations, RecordedWork, read_generations
from desa_ray.pipeline.history import History, Past
from desa_ray.pipeline.machine import Machine
from desa_ray.pipeline.sizes import KINDS, Size, alike, nearness, size_of
from desa_ray.pipeline.stage import Pool, Stage, ancestors
from desa_ray.pipeline.vectors import made_texts
from desa_ray.store.artifacts import Store

State = Literal["stored", "compute", "resume", "not needed"]


@dataclass(frozen=True)
class Planned:
    """One stage of a plan.

    Attributes:
        state: `resume` is to compute, with some shards stored; `not needed` is absent, and so is all need of it.
        items: what is left to compute, in `unit`; None where it cannot be known yet.
        at_most: the items are a bound, as texts that are still to be generated may repeat.
        seconds, bytes: estimates for what is left; None where nothing like it was ever computed here.
        rough: the estimates come from another model or template.
        workers: how many compute it; 0 for none but this process.
    """

    stage: Stage
    state: State
    unit: str = ""
    items: int | None = None
    at_most: bool = False
    seconds: float | None = None
    bytes: float | None = None
    rough: bool = False
    workers: int = 0
    shards: tuple[int, int] = (0, 0)

    @property
    def to_compute(self) -> bool:
        return self.state in ("compute", "resume")


def plan_stages(store: Store, targets: Sequence[Stage], cluster: ClusterConfig, machine: Machine) -> list[Planned]:
    """Every stage behind the targets, inputs before users; reads manifests and computes nothing."""
    todo = {stage.key.digest for stage in missing(store, targets)}
    planner = _Planner(store, cluster, machine)
    planned = []
    for stage in ancestors(targets):
        if stage.key.digest in todo:
            planned.append(planner.planned(stage))
        else:
            planned.append(Planned(stage, "stored" if stage.artifact(store).exists() else "not needed"))
    return planned


def stored_shards(store: Store, stage: Stage) -> tuple[int, int, float]:
    """Shards stored and shards in all of an unfinished stage, and the share of its rows that is left."""
    artifact = stage.artifact(store)
    layout = artifact.stored_layout()
    if layout is None or artifact.exists():  # whole, but built from other inputs: all is to be computed again
        return 0, 0, 1.0
    contents = {role: _content(store, source) for role, source in stage.inputs.items()}
    if any(layout["inputs"][role] != content for role, content in contents.items() if content):
        return 0, 0, 1.0
    shards = stage.work.shards(layout)
    left = [shard for shard in shards if not all(artifact.has_part(name) for name in shard.parts)]
    rows = sum(shard.stop - shard.start for shard in shards)
    return len(shards) - len(left), len(shards), sum(s.stop - s.start for s in left) / rows if rows else 1.0


def _content(store: Store, stage: Stage) -> str | None:
    artifact = stage.artifact(store)
    return artifact.manifest()["content"] if artifact.exists() else None


class _Planner:
    def __init__(self, store: Store, cluster: ClusterConfig, machine: Machine):
        self.store, self.cluster, self.machine = store, cluster, machine
        self.history = History(store)
        self._rows: dict[str, int | None] = {}

    def planned(self, stage: Stage) -> Planned:
        done, shards, left = stored_shards(self.store, stage)
        state: State = "resume" if done else "compute"
        kind = KINDS.get(stage.name)
        inputs = self._input_rows(stage)
        if kind is None or inputs is None:
            return Planned(stage, state, shards=(done, shards), workers=self._workers(stage.work.pool, shards))
        distinct, at_most = self._distinct(stage)
        size = size_of(stage.name, stage.params, inputs, distinct)
        if size is None:
            return Planned(stage, state, shards=(done, shards), workers=self._workers(stage.work.pool, shards))
        workers = self._workers(stage.work.pool, shards or _shards(stage, size, inputs))
        items = round(size.items * left)
        seconds, grown, rough = self._estimate(stage, inputs, size, left, workers)
        return Planned(stage, state, kind.unit, items, at_most, seconds, grown, rough, workers, (done, shards))

    def _input_rows(self, stage: Stage) -> Mapping[str, int] | None:
        rows = {role: self._row_count(source) for role, source in stage.inputs.items()}
        return None if None in rows.values() else rows  # pyright: ignore[reportReturnType]

    def _row_count(self, stage: Stage) -> int | None:
        """Rows of a stage as its users will see them, stored or not."""
        digest = stage.key.digest
        if digest not in self._rows:
            artifact = stage.artifact(self.store)
            if artifact.exists():
                counts = artifact.manifest()["counts"]
                self._rows[digest] = counts.get("rows", counts.get("documents"))
            else:
                role = "corpus" if stage.name in ("vectors", "snapshot_vectors", "postings") else "queries"
                source = stage.inputs.get(role)
                self._rows[digest] = self._row_count(source) if source else None
        return self._rows[digest]

    def _distinct(self, stage: Stage) -> tuple[int | None, bool]:
        """Distinct texts of a text-vector stage; a bound where they are still to be generated."""
        if stage.name != "text_vectors":
            return None, False
        queries = read_rows(self.store, stage.inputs["queries"])["text"].to_list()
        generation = stage.inputs.get("generation")
        if generation is None:
            made = made_texts(stage, queries, None)
        elif present(self.store, generation):
            made = made_texts(stage, queries, read_generations(self.store, generation))
        elif isinstance(generation.work, RecordedWork):
            drawn = Generations(generation.work.drawn(self.store, generation), generation.params["count"])
            made = made_texts(stage, queries, drawn)
        else:
            return len(queries) * generation.params["count"], True
        return len({text for line in made for text in line}), False

    def _workers(self, pool: Pool | None, shards: int) -> int:
        if pool is None:
            return 0
        if self.cluster.kind == "serial":
            return 1
        held = room(pool, self.cluster, self.machine) if self.cluster.kind == "local" else pool.size
        return max(1, min(count for count in (pool.size, held, shards or None) if count is not None))

    def _estimate(
        self, stage: Stage, inputs: Mapping[str, int], size: Size, left: float, workers: int
    ) -> tuple[float | None, float | None, bool]:
        """Seconds and bytes of what is left, and whether they come from a stage that is only somewhat like it."""
        pool = stage.work.pool
        own_pool = (pool.cpus, pool.gpus) if pool else None
        wanted = nearness(stage.name, stage.params)

        def closeness(past: Past) -> tuple[Any, ...]:
            same = [a == b for a, b in zip(wanted, nearness(past.key.stage, past.key.params), strict=True)]
            ratio = abs(math.log(max(past.size.work, 1) / max(size.work, 1))) if past.size else math.inf
            return *same, past.pool() == own_pool, -ratio

        same_kind = alike(stage.name, stage.params, inputs)
        pasts = [
            past
            for past in self.history.of(stage.name)
            if past.size is not None and alike(past.key.stage, past.key.params, past.input_rows) == same_kind
        ]
        if not pasts:
            return None, None, False
        near = max(pasts, key=closeness)  # of equals the first, which is the newest
        rough = not all(closeness(near)[: len(wanted)])
        assert near.size is not None
        volume = near.bytes * size.volume / near.size.volume * left if near.size.volume else None
        timed = [past for past in pasts if past.share_computed and past.size and past.size.work]
        if not timed:
            return None, volume, rough
        near = max(timed, key=closeness)
        rough = rough or not all(closeness(near)[: len(wanted)])
        assert near.size is not None
        effort = near.manifest["meta"]["seconds"] * near.manifest["meta"]["workers"] / near.share_computed
        return effort * size.work / near.size.work * left / max(workers, 1), volume, rough


SHARD_ROWS = ("shard_documents", "shard_texts", "shard_queries")


def _shards(stage: Stage, size: Size, inputs: Mapping[str, int]) -> int:
    """How many shards a stage that was not begun will have."""
    if isinstance(stage.work, FusionWork):
        rows = stage.work.queries_a_shard(inputs["corpus"])
    else:
        rows = next((getattr(stage.work, name) for name in SHARD_ROWS if hasattr(stage.work, name)), size.items)
    return max(1, math.ceil(size.items / max(rows, 1)))
