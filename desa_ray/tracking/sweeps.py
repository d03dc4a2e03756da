"""The log of one sweep: a parent run, one child per cell, the load of the machine; safe however the
process dies.

The sweep's identity is what it computes, so a sweep that is started again continues in its existing
parent run. Everything passes through the outbox: while the server is down the sweep continues, and
what waits is sent later.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from desa_ray.errors import DesaError, Problems
from desa_ray.printable import printable
from desa_ray.tracking.comparison import Varied
from desa_ray.tracking.entries import CellRun, cell_document, now_ms, params, shortened, tags
from desa_ray.tracking.left_behind import left_behind, resend
from desa_ray.tracking.notes import HEADLINE
from desa_ray.tracking.outbox import Outbox, Target, kept_on_disk
from desa_ray.tracking.runs import Tracker, tracker_lock
from desa_ray.tracking.system import SystemSampler
from desa_ray.tracking.watchdog import Watchdog


@dataclass(frozen=True)
class SweepRun:
    """What a sweep is.

    Attributes:
        sweep: hex digest over its cells; the same command gives the same one.
        name: the parent's name.
        parent: whether there is a parent run; a single run has none.
        command: the command line that computes it.
    """

    experiment: str
    sweep: str
    name: str
    parent: bool
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    command: str = ""


class SweepLog:
    """Logs one sweep; made before any work, so that a wrong address stops it at once.

    Args:
        run: what is logged.
        uri: address of the tracking store.
        home: folder of the outbox and, for sqlite stores, of the artifacts.
        offline: send nothing now.
        sample_s: seconds between two samples of the machine's load; 0 for none.

    Raises:
        DesaError: there is no such tracking store (unless `offline`), or a value that MLflow could
            not hold.
    """

    def __init__(
        self, run: SweepRun, *, uri: str, home: Path, offline: bool = False, sample_s: float = 10.0
    ):
        self.run, self.offline = run, offline
        self.results: list[dict[str, Any]] = []
        self.plots: Sequence[Path] = ()  # files for the parent, written when its cells are finished
        self.varied = Varied()
        self.compared = False  # whether the log has a view that compares the cells
        self.run_ids: list[str] = []  # of what was logged and sent: the parent, then the cells
        self.experiment_id: str | None = None
        artifacts = home / "mlartifacts"
        with kept_on_disk(home):
            home.mkdir(parents=True, exist_ok=True)
        self._connect: Callable[[], Tracker] = lambda: Tracker(uri, artifacts)
        root = home / "outbox"
        if not offline:
            with tracker_lock(uri, artifacts):
                self.experiment_id = self._connect().experiment(run.experiment)
            for box in left_behind(root, uri):
                resend(box, self._connect)
        attempt = uuid4().hex[:12]
        target = Target(uri, str(artifacts), run.experiment, run.sweep, attempt)
        self.outbox = Outbox.create(root, target)
        self.watchdog = Watchdog(self.outbox.folder) if run.parent else None
        self.sampler = SystemSampler(sample_s) if run.parent and sample_s else None
        if run.parent:
            number = self.outbox.put(
                {
                    "kind": "begin",
                    "name": printable(run.name),
                    "params": params(run.params),
                    "tags": tags(
                        {
                            **run.tags,
                            "desa.host": socket.gethostname(),
                            "desa.pid": str(os.getpid()),
                        }
                    ),
                    "started_ms": now_ms(),
                }
            )
            self._send()
            self._sent(number)

    def cell(self, cell: CellRun) -> str | None:
        """Log a cell; returns its run's id, None while it waits to be sent.

        Raises:
            DesaError: MLflow cannot hold a value of it, or the disk cannot hold the entry.
        """
        cell = replace(cell, command=self.run.command)
        document = {**cell_document(cell), "child": self.run.parent}
        if cell.error is None:
            shown = {n: v for n, v in document["metrics"].items() if n in HEADLINE}
            self.results.append({"name": document["name"], "metrics": shown})
            self.varied.add(document["params"])
        number = self.outbox.put(document, cell.artifacts, linked=not self.offline)
        self._sample()
        self._send()
        self.outbox.keep(number)
        if number in self.outbox.refusals:
            raise DesaError(self.outbox.refusals.pop(number))
        return self._sent(number)

    def _sent(self, number: int) -> str | None:
        run_id = self.outbox.sent.get(number)
        self.run_ids += [] if run_id is None else [run_id]
        return run_id

    def end(
        self,
        status: str,
        metrics: Mapping[str, float],
        errors: Sequence[str],
        artifacts: Sequence[Path],
    ) -> None:
        """Close the sweep as FINISHED, FAILED or KILLED; what cannot be sent now stays in the
        outbox.

        Raises:
            DesaError: MLflow refused waiting entries, or the disk cannot hold the last one.
        """
        try:
            if self.sampler:
                self.sampler.stop()
            number = -1
            if self.run.parent:
                self._sample()
                number = self.outbox.put(
                    {
                        "kind": "end",
                        "status": status,
                        "metrics": dict(metrics),
                        "tags": tags(
                            {"desa.errors": shortened("\n".join(errors))} if errors else {}
                        ),
                        "artifacts": [path.name for path in artifacts],
                        "ended_ms": now_ms(),
                        "results": self.results,
                        "command": printable(self.run.command),
                        "swept": self.varied.names(),
                    },
                    artifacts,
                )
            self.outbox.say_ended()
            self._send(now=True)
            self.compared = number in self.outbox.sent
            if self.outbox.refusals:
                raise Problems(map(DesaError, self.outbox.refusals.values()))
        finally:
            self.outbox.close()
            if self.watchdog:
                self.watchdog.dismiss()

    @property
    def unsent(self) -> int:
        """Documents that wait in the outbox."""
        return len(self.outbox.waiting())

    def _sample(self) -> None:
        if self.sampler and (taken := self.sampler.take()):
            self.outbox.put({"kind": "metrics", "metrics": taken})

    def _send(self, *, now: bool = False) -> None:
        if not self.offline:
            self.outbox.send(self._connect, now=now)
