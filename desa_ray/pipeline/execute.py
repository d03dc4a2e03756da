"""Runs a plan: every missing stage once, inputs first; a stored shard is never computed again.

A file whose bytes no longer match their hash stops the run by name; a store opened with `repair`
drops it when the plan meets it, and only that part is computed again.

A stage is *there* when its manifest is, and when the manifest's note of its inputs' content agrees
with the inputs that are stored now. The second half matters where one input was recomputed to other
bits (another CPU, say): what was built on the old bits is then built again, rather than silently
mixed.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from desa_ray.pipeline.backend import Backend
from desa_ray.pipeline.provenance import provenance
from desa_ray.pipeline.stage import Shard, Stage, Task


class StageListener(Protocol):
    """Told what happens, shows it or not."""

    def begin(self, stage: Stage, shards: int, stored: int) -> None: ...

    def advance(self, stage: Stage) -> None: ...

    def end(self, stage: Stage, seconds: float) -> None: ...


class Quiet:
    """Shows nothing."""

    def begin(self, stage: Stage, shards: int, stored: int) -> None: ...

    def advance(self, stage: Stage) -> None: ...

    def end(self, stage: Stage, seconds: float) -> None: ...


def present(stage: Stage) -> bool:
    """True when the stage's artifact is whole and was built from the inputs as they are
    stored now.
    """
    artifact = stage.artifact
    if not artifact.exists():
        return False
    manifest = artifact.manifest()
    noted: Mapping[str, str] = manifest["meta"].get("inputs", {})
    for role, source in stage.inputs.items():
        upstream = source.artifact
        if not upstream.exists():
            if role in stage.work.read_through(manifest["layout"] or {}):
                return False
        elif upstream.manifest()["content"] != noted.get(role):
            return False
    return True


def missing(targets: Sequence[Stage]) -> list[Stage]:
    """The stages that must be computed for the targets, inputs first; a stored stage needs none of
    its inputs.
    """
    needed: dict[str, Stage] = {}
    verdicts: dict[str, bool] = {}

    def visit(stage: Stage) -> None:
        digest = stage.key.digest
        if digest in verdicts:
            return
        verdicts[digest] = present(stage)
        if not verdicts[digest]:
            for source in stage.inputs.values():
                visit(source)
            needed[digest] = stage

    for target in targets:
        visit(target)
    return list(needed.values())


def ready(remaining: Mapping[str, Stage]) -> list[Stage]:
    """Those of the remaining stages (by key) that wait for none of the others."""
    ready = []
    for stage in remaining.values():
        if not any(source.key.digest in remaining for source in stage.inputs.values()):
            ready.append(stage)
    return ready


def schedule(todo: Sequence[Stage]) -> Iterator[Stage]:
    """The stages, inputs before users, in an order that seldom changes pools (each change loads a
    model again).
    """
    remaining = {stage.key.digest: stage for stage in todo}
    current: str | None = None
    while remaining:
        choices = ready(remaining)
        pools = [stage.work.pool.name if stage.work.pool else None for stage in choices]
        # Work without a pool first: it is cheap and others wait for it. Then the pool at hand, then
        # the first one.
        choice = next((name for name in (None, current) if name in pools), pools[0])
        stage = choices[pools.index(choice)]
        current = choice or current
        del remaining[stage.key.digest]
        yield stage


def run_stage(stage: Stage, backend: Backend, progress: StageListener) -> None:
    """Compute the shards that are not stored, then publish the manifest."""
    started = time.perf_counter()
    artifact = stage.artifact
    if present(stage):  # another run on this store finished it since the plan was made
        progress.begin(stage, 1, 1)
        progress.end(stage, 0.0)
        return
    sources = {role: source.artifact.manifest() for role, source in stage.inputs.items()}
    contents = {role: manifest["content"] for role, manifest in sources.items()}
    with stage.store.exclusive(stage.key):
        # Two runs that find it out of date must not discard each other's new parts
        artifact = stage.artifact
        if artifact.exists() and not present(stage):  # whole, but built from other inputs
            artifact.discard()
        layout = artifact.layout({**stage.work.layout(stage), "inputs": contents})
        if layout.get("inputs") != contents:  # half built from other inputs
            artifact.discard()
            layout = artifact.layout({**stage.work.layout(stage), "inputs": contents})
    shards = stage.work.shards(layout)
    open_shards = [shard for shard in shards if not all(map(artifact.has_part, shard.parts))]
    tasks, pool, workers = [Task(stage, shard) for shard in open_shards], stage.work.pool, 1
    if pool is None or not tasks:
        progress.begin(stage, len(shards), len(shards) - len(open_shards))
        for task in tasks:
            stage.work.run(None, stage, task.shard)
            progress.advance(stage)
    else:
        asked = time.perf_counter()
        waited_s = 0.0

        def begin() -> None:
            nonlocal waited_s
            waited_s = time.perf_counter() - asked
            progress.begin(stage, len(shards), len(shards) - len(open_shards))

        workers = backend.compute(pool, tasks, begin, lambda task: progress.advance(task.stage))
        started += waited_s  # for the session to start, or for the stage before: no time of its own
    finished = stage.work.finish(stage, layout)
    seconds = time.perf_counter() - started
    meta: dict[str, Any] = {"inputs": contents, "seconds": seconds, "shards_computed": len(tasks)}
    meta |= {
        **_effort(stage, sources, shards, open_shards, workers),
        **provenance(),
        **finished.meta,
    }
    parts = {*artifact.parts(), *(name for shard in shards for name in shard.parts)}
    artifact.finish(finished.content, counts=finished.counts, meta=meta, parts=parts)
    progress.end(stage, seconds)


def _effort(
    stage: Stage,
    sources: Mapping[str, Mapping[str, Any]],
    shards: Sequence[Shard],
    computed: Sequence[Shard],
    workers: int,
) -> dict[str, Any]:
    """What a later plan estimates from: the sizes of the inputs, the share computed, and by how
    many workers.
    """
    counts = {role: manifest["counts"] for role, manifest in sources.items()}
    pool = stage.work.pool
    rows = sum(shard.stop - shard.start for shard in computed)
    all_rows = sum(shard.stop - shard.start for shard in shards)
    return {
        "input_rows": {role: own.get("rows", own.get("documents")) for role, own in counts.items()},
        "share_computed": rows / all_rows if all_rows else 1.0,
        "workers": workers,
        "pool": {"name": pool.name, "cpus": pool.cpus, "gpus": pool.gpus} if pool else None,
    }
