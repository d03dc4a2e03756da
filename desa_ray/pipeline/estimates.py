"""What a plan expects: which stages are stored, how much is left of the others, and what that will
take.

Items are counted, not guessed: sizes of the collection and of the texts are known beforehand.
Seconds and bytes come from the store's own manifests, from the artifact of the same stage that is
most like the one to come (same engine or nothing at all), in proportion to the work; if there is
none, they are unknown.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from desa_ray.config import ClusterConfig
from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.feasible import capacity
from desa_ray.pipeline.history import History, StoredRun, size_of
from desa_ray.pipeline.machine import Machine
from desa_ray.pipeline.sizes import Size
from desa_ray.pipeline.stage import Pool, Stage, ancestors
from desa_ray.store.artifacts import Store

State = Literal["stored", "compute", "resume", "not needed"]


@dataclass(frozen=True)
class Planned:
    """One stage of a plan.

    Attributes:
        state: `resume` is to compute, with some shards stored; `not needed` is absent, and so is
            all need of it.
        items: what is left to compute, in `unit`; None where it cannot be known yet.
        at_most: the items are a bound, as texts that are still to be generated may repeat.
        seconds, bytes: estimates for what is left; None where nothing like it was ever computed
            here.
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


def plan_stages(
    store: Store, targets: Sequence[Stage], cluster: ClusterConfig, machine: Machine
) -> list[Planned]:
    """Every stage behind the targets, inputs before users; reads manifests and computes nothing."""
    todo = {stage.key.digest for stage in missing(targets)}
    planner = _Planner(store, cluster, machine)
    planned = []
    for stage in ancestors(targets):
        if stage.key.digest in todo:
            planned.append(planner.planned(stage))
        else:
            planned.append(Planned(stage, "stored" if stage.artifact.exists() else "not needed"))
    return planned


def stored_shards(stage: Stage) -> tuple[int, int, float]:
    """Shards stored and shards in all of an unfinished stage, and the share of its rows that is
    left.
    """
    artifact = stage.artifact
    layout = artifact.stored_layout()
    if layout is None or artifact.exists():
        # Whole, but built from other inputs: all is to be computed again
        return 0, 0, 1.0
    contents = {role: _content(source) for role, source in stage.inputs.items()}
    if any(layout["inputs"][role] != content for role, content in contents.items() if content):
        return 0, 0, 1.0
    shards = stage.work.shards(layout)
    left = [shard for shard in shards if not all(map(artifact.has_part, shard.parts))]
    rows = sum(shard.stop - shard.start for shard in shards)
    return (
        len(shards) - len(left),
        len(shards),
        sum(s.stop - s.start for s in left) / rows if rows else 1.0,
    )


def _content(stage: Stage) -> str | None:
    artifact = stage.artifact
    return artifact.manifest()["content"] if artifact.exists() else None


class _Planner:
    def __init__(self, store: Store, cluster: ClusterConfig, machine: Machine):
        self.cluster, self.machine = cluster, machine
        self.history = History(store)
        self._rows: dict[str, int | None] = {}

    def planned(self, stage: Stage) -> Planned:
        done, shards, left = stored_shards(stage)
        state: State = "resume" if done else "compute"
        inputs = self._input_rows(stage)
        size = None
        at_most = False
        if stage.work.unit and inputs is not None:
            distinct, at_most = stage.work.distinct_texts(stage)
            size = size_of(stage.work, stage.params, inputs, distinct)
        if size is None or inputs is None:
            workers = self._workers(stage.work.pool, shards)
            return Planned(stage, state, shards=(done, shards), workers=workers)
        workers = self._workers(stage.work.pool, shards or _shards(stage, size, inputs))
        estimate = self._estimate(stage, inputs, size, left, workers)
        return Planned(
            stage,
            state,
            stage.work.unit,
            round(size.items * left),
            at_most,
            estimate.seconds,
            estimate.bytes,
            estimate.rough,
            workers,
            (done, shards),
        )

    def _input_rows(self, stage: Stage) -> Mapping[str, int] | None:
        rows: dict[str, int] = {}
        for role, source in stage.inputs.items():
            count = self._row_count(source)
            if count is None:
                return None
            rows[role] = count
        return rows

    def _row_count(self, stage: Stage) -> int | None:
        """Rows of a stage as its users will see them, stored or not."""
        digest = stage.key.digest
        if digest not in self._rows:
            artifact = stage.artifact
            if artifact.exists():
                counts = artifact.manifest()["counts"]
                self._rows[digest] = counts.get("rows", counts.get("documents"))
            else:
                source = stage.inputs.get(stage.work.sized_by)
                self._rows[digest] = self._row_count(source) if source else None
        return self._rows[digest]

    def _workers(self, pool: Pool | None, shards: int) -> int:
        if pool is None:
            return 0
        if self.cluster.kind == "serial":
            return 1
        local = self.cluster.kind == "local"
        held = capacity(pool, self.cluster, self.machine) if local else pool.size
        limits = [count for count in (pool.size, held, shards or None) if count is not None]
        return max(1, min(limits))

    def _estimate(
        self, stage: Stage, inputs: Mapping[str, int], size: Size, left: float, workers: int
    ) -> "_Estimate":
        """What is left, in proportion to the comparable stored run that is most similar."""
        pool = stage.work.pool
        own_pool = (pool.cpus, pool.gpus) if pool else None
        wanted = stage.work.similarity(stage.params)

        def agreement(run: StoredRun) -> list[bool]:
            theirs = stage.work.similarity(run.key.params)
            return [a == b for a, b in zip(wanted, theirs, strict=True)]

        def closeness(pair: tuple[StoredRun, Size]) -> tuple[Any, ...]:
            run, other = pair
            ratio = abs(math.log(max(other.work, 1) / max(size.work, 1)))
            return *agreement(run), run.pool() == own_pool, -ratio

        comparable = self.history.comparable(stage, inputs)
        if not comparable:
            return _Estimate(None, None, rough=False)
        run, other = max(comparable, key=closeness)  # of equals the first, which is the newest
        rough = not all(agreement(run))
        volume = run.bytes * size.volume / other.volume * left if other.volume else None
        timed = [pair for pair in comparable if pair[0].share_computed and pair[1].work]
        if not timed:
            return _Estimate(None, volume, rough)
        run, other = max(timed, key=closeness)
        meta = run.manifest["meta"]
        effort = meta["seconds"] * meta["workers"] / run.share_computed
        seconds = effort * size.work / other.work * left / max(workers, 1)
        return _Estimate(seconds, volume, rough or not all(agreement(run)))


@dataclass(frozen=True)
class _Estimate:
    """Seconds and bytes of what is left; `rough` where the run they come from is only somewhat
    similar.
    """

    seconds: float | None
    bytes: float | None
    rough: bool


def _shards(stage: Stage, size: Size, inputs: Mapping[str, int]) -> int:
    """How many shards a stage that was not begun will have."""
    rows = stage.work.shard_rows(inputs) or size.items
    return max(1, math.ceil(size.items / max(rows, 1)))
