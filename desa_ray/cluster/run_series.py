"""What one run reports to Prometheus: gauges with its user and the short id of its sweep.

Ray's agents keep a counter for as long as they live, so a counter by run would grow without end. A
gauge lasts while it is told: these are told every few seconds, and are gone soon after their run.
Like counters they exist on a running cluster only (`cluster=existing`).
"""

import getpass
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from desa_ray.cluster.metrics import label
from desa_ray.locks import COUNTERS, inside

GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "run_shards": ("Shards of started stages (left, done), and lost shards", ("state",)),
    "run_stages": ("Stages of a run (left, done)", ("state",)),
    "run_held": ("CPUs and GPUs that the workers of a run hold", ("kind",)),
    "run_waits": ("1 while a run waits for capacity for a first worker, else 0", ()),
    "run_store_bytes": ("The disk of a run's store (free, total)", ("state",)),
}
OWNER = ("run", "user")  # labels of every one of them
BEAT_S = 5.0  # Ray's agents forget a gauge after twice the time between two reports, 20 s


class RunSeries:
    """The gauges of one run, told until the block ends.

    Args:
        run: the short id of its sweep.
        user: who runs it.
        store: a folder on the disk of its store; None where that is no disk.
        stages: how many stages are to be computed.
    """

    def __init__(self, run: str, user: str, store: Path | None = None, stages: int = 0):
        self.owner = {"run": label(run), "user": label(user)}
        self.store = store
        self._values: dict[tuple[str, str], float] = {
            ("run_shards", state): 0.0 for state in ("left", "done", "lost")
        } | {("run_stages", "left"): float(stages), ("run_stages", "done"): 0.0}
        self._lock, self._over = threading.RLock(), threading.Event()
        self._made: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._beat, name="desa-run-series", daemon=True)

    def __enter__(self) -> "RunSeries":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(BEAT_S)

    def add(self, name: str, kind: str, more: float = 1) -> None:
        """Add to a value of one of GAUGES."""
        with inside(COUNTERS, self._lock):
            self._values[name, kind] = self._values.get((name, kind), 0.0) + more

    def set(self, name: str, kind: str, value: float) -> None:
        """Replace a value of one of GAUGES."""
        with inside(COUNTERS, self._lock):
            self._values[name, kind] = value

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Name, labels and value of every series as it stands."""
        self._look_at_store()
        with inside(COUNTERS, self._lock):
            values = list(self._values.items())
        for (name, kind), value in values:
            (_, names) = GAUGES[name]
            yield name, self.owner | dict.fromkeys(names, kind), value

    def _look_at_store(self) -> None:
        if self.store is None:
            return
        with suppress(OSError):
            disk = shutil.disk_usage(self.store)
            self.set("run_store_bytes", "free", disk.free)
            self.set("run_store_bytes", "total", disk.total)

    def _beat(self) -> None:
        while True:
            ray = sys.modules.get("ray")
            if ray is not None and ray.is_initialized():
                with suppress(Exception):  # a cluster that is gone shows nothing
                    self._tell()
            if self._over.wait(BEAT_S):
                return

    def _tell(self) -> None:
        from ray.util.metrics import Gauge

        for name, labels, value in self.samples():
            if name not in self._made:
                text, kinds = GAUGES[name]
                keys = (*OWNER, *kinds)
                self._made[name] = Gauge(f"desa_{name}", description=text, tag_keys=keys)
            self._made[name].set(value, tags=labels)


def this_user() -> str:
    """The name of this process's user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return "unknown"
