"""The platform's own metrics, exported by Ray together with its own: counters
`ray_desa_<name>_total` and one histogram.

Workers count what they stored, the driver counts stages, hits and failures. Counts from before a
session exists are kept until it does. Only a running cluster (`cluster=existing`) exports: a local
one has no port for metrics, since anybody could read it. dashboards/ draws them.
"""

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import RLock
from typing import Any

from desa_ray.errors import DesaError
from desa_ray.locks import COUNTERS as COUNTERS_LOCK
from desa_ray.locks import inside
from desa_ray.pipeline.counts import Count, part_counts
from desa_ray.pipeline.stage import Pool, Stage, Task
from desa_ray.pipeline.worker import Worker
from desa_ray.printable import printable
from desa_ray.store.artifacts import Store

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "rows": ("Logical rows stored by workers and driver", ("stage",)),
    "bytes_written": ("Bytes of the parts stored", ("stage",)),
    "documents_encoded": ("Documents whose vectors were stored", ()),
    "queries_replayed": ("Queries fused and replayed, one per method, draw and kappa", ()),
    "generations": ("Generated records by outcome (valid, fallback)", ("generator", "outcome")),
    "generation_requests": ("Requests to engines, including retries", ("generator",)),
    "generation_retries": (
        "Requests that were repeated because the text was not valid",
        ("generator",),
    ),
    "tokens": ("Tokens by kind (prompt, completion)", ("generator", "kind")),
    "shards": ("Shards by outcome (computed, or stored: found in the store)", ("stage", "outcome")),
    "shard_failures": ("Shards lost with their worker or its node", ("pool",)),
    "shard_retries": ("Lost shards that were assigned again", ("pool",)),
    "stages": ("Stages by outcome (computed, reused)", ("stage", "outcome")),
    "stage_seconds": (
        "Seconds that stages took from their first shard to their manifest",
        ("stage",),
    ),
    # Also in the histogram, whose own sum Ray guesses from its buckets.
    "worker_seconds": (
        "Seconds that workers spent on shards, including loading the engine",
        ("stage",),
    ),
}
HISTOGRAM = "shard_duration_seconds"
BOUNDARIES_S = [0.05, 0.2, 1.0, 5.0, 20.0, 60.0, 300.0, 1200.0, 3600.0]
LABEL_LIMIT = 100

_lock = RLock()
_made: dict[str, Any] = {}
_waiting: list[tuple[str, float, dict[str, str]]] = []


def count(name: str, value: float = 1, **labels: str) -> None:
    """Add to one of COUNTERS. Labels may come out of data: they are made printable and cut."""
    _record(name, value, {key: label(text) for key, text in labels.items()})


def label(text: str) -> str:
    """A label's value as every reader of metrics can take it."""
    shown = printable(text)
    return shown if len(shown) <= LABEL_LIMIT else f"{shown[: LABEL_LIMIT - 3]}..."


def observe(seconds: float, stage: str) -> None:
    """Add a shard's duration to the histogram."""
    _record(HISTOGRAM, seconds, {"stage": stage})


def count_all(counts: Iterable[Count]) -> None:
    for name, value, labels in counts:
        count(name, value, **labels)


def _record(name: str, value: float, labels: dict[str, str]) -> None:
    if value <= 0:  # Ray refuses what is not an increase
        return
    ray = sys.modules.get("ray")
    with inside(COUNTERS_LOCK, _lock):
        _waiting.append((name, value, labels))
        if ray is None or not ray.is_initialized():
            return
        for waiting_name, waiting_value, tags in _waiting:
            metric = _metric(waiting_name)
            add = metric.inc if waiting_name in COUNTERS else metric.observe
            add(waiting_value, tags=tags)
        _waiting.clear()


def _metric(name: str) -> Any:
    if name not in _made:
        from ray.util.metrics import Counter, Histogram

        if name in COUNTERS:
            description, keys = COUNTERS[name]
            _made[name] = Counter(f"desa_{name}", description=description, tag_keys=keys)
        else:
            text = "How long workers took for one shard"
            _made[name] = Histogram(
                f"desa_{name}", description=text, boundaries=BOUNDARIES_S, tag_keys=("stage",)
            )
    return _made[name]


class BusyTime:
    """How long a worker was busy: time in which several shards overlap counts once, for the shard
    that ends first.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock, self._running, self._counted = clock, 0, 0.0

    def begin(self) -> None:
        with inside(COUNTERS_LOCK, _lock):
            if not self._running:
                self._counted = self._clock()
            self._running += 1

    def end(self) -> float:
        """The seconds up to now that no shard has counted yet."""
        with inside(COUNTERS_LOCK, _lock):
            before, self._counted = self._counted, self._clock()
            self._running -= 1
            return self._counted - before


class CountingWorker(Worker):
    """A worker that counts what each of its shards stored and how long it took."""

    def __init__(self, pool: Pool):
        super().__init__(pool)
        self._busy = BusyTime()

    def run(self, task: Task) -> None:
        started = time.perf_counter()
        self._busy.begin()
        try:
            super().run(task)
        finally:
            busy = self._busy.end()
        observe(time.perf_counter() - started, task.stage.name)
        count("worker_seconds", busy, stage=task.stage.name)
        count("shards", stage=task.stage.name, outcome="computed")
        with suppress(DesaError):
            # Parts that another run replaced meanwhile: counting must not fail the work
            count_all(part_counts(task.stage, task.shard.parts))


class CountingProgress:
    """Tells `shown` what it is told, and counts stages, hits and seconds; of stages without workers
    also the rows.

    Args:
        begun: told of every stage that begins.
        add: told the shards and stages that are left and done, for the run's own series.
    """

    def __init__(
        self,
        shown: Any,
        store: Store,
        reused: Iterable[Stage] = (),
        begun: Callable[[Stage], None] = lambda stage: None,
        add: Callable[[str, str, float], None] = lambda name, kind, more: None,
    ):
        self.shown, self.store, self.begun, self.add = shown, store, begun, add
        self.open: dict[str, int] = {}
        for stage in reused:
            count("stages", stage=stage.name, outcome="reused")

    def begin(self, stage: Stage, shards: int, stored: int) -> None:
        self.open[stage.key.digest] = shards - stored
        count("shards", stored, stage=stage.name, outcome="stored")
        self.begun(stage)
        self.add("run_shards", "left", shards - stored)
        self.shown.begin(stage, shards, stored)

    def advance(self, stage: Stage) -> None:
        self.add("run_shards", "left", -1)
        self.add("run_shards", "done", 1)
        self.shown.advance(stage)

    def end(self, stage: Stage, seconds: float) -> None:
        fresh = self.open.pop(stage.key.digest, 0)
        count("stages", stage=stage.name, outcome="computed" if fresh else "reused")
        count("stage_seconds", seconds, stage=stage.name)
        self.add("run_stages", "left", -1)
        self.add("run_stages", "done", 1)
        if stage.work.pool is None and fresh:
            count("shards", fresh, stage=stage.name, outcome="computed")
            with suppress(DesaError):
                count_all(part_counts(stage, list(stage.artifact.parts())))
        self.shown.end(stage, seconds)
