"""The state of a sweep: which cells still need which stages, what has finished, and what has
failed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.build import Cell
from desa_ray.experiment.cell_files import write_json
from desa_ray.experiment.finish import finish_cell, log_failure
from desa_ray.experiment.plots import write_plots
from desa_ray.experiment.run_names import run_names, settings_apart
from desa_ray.experiment.spec import CellSpec
from desa_ray.pipeline.backend import LostCluster
from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.stage import Stage
from desa_ray.tracking.entries import now_ms
from desa_ray.writing import not_written

if TYPE_CHECKING:
    from desa_ray.tracking.sweeps import SweepLog


class Sweep:
    """Finishes each cell as soon as its stages are stored, and keeps what failed until the end."""

    def __init__(
        self,
        specs: Sequence[CellSpec],
        cells: Sequence[Cell],
        log: "SweepLog | None",
        summary: Path | None,
        note: Callable[[str], None],
        earlier: Sequence[dict[str, Any]] = (),
    ):
        self.specs, self.cells, self.log, self.summary, self.note = specs, cells, log, summary, note
        self.earlier = list(earlier)
        # Runs are named where there is a log.
        self.names = [""] * len(cells) if log is None else run_names(cells)
        self.needs: list[set[str]] = []  # stages that a cell still waits for
        self.waiting: dict[str, list[int]] = {}  # cells that wait for a stage
        # A stage that several cells share counts as computed for the first of them.
        self.own: list[set[str]] = []
        for number, cell in enumerate(cells):
            own = {stage.key.digest for stage in missing(cell.targets)}
            self.own.append(own - self.waiting.keys())
            self.needs.append(own)
            for digest in own:
                self.waiting.setdefault(digest, []).append(number)
        self.begun: dict[str, int] = {}  # stage -> Unix time in ms
        self.next_write = 0.0  # of the summary, on the monotonic clock
        self.entries: dict[int, dict[str, Any]] = {}
        self.failures: dict[int, DesaError] = {}

    def on_stage_begun(self, stage: Stage) -> None:
        """Note when a stage began; may be called from several threads."""
        self.begun.setdefault(stage.key.digest, now_ms())

    def _started_ms(self, number: int) -> int:
        """When the first stage that counts as this cell's own began; now if it had none."""
        own = [self.begun[digest] for digest in self.own[number] if digest in self.begun]
        return min(own, default=now_ms())

    def on_stage_done(self, stage: Stage, error: DesaError | None) -> None:
        """Note that a stage is stored or has failed; finish the cells that waited for it alone."""
        digest = stage.key.digest
        for number in self.waiting.pop(digest, []):
            if number in self.failures:
                continue
            self.needs[number].discard(digest)
            if error is not None:
                self._fail(number, error)
                self._write()
            elif not self.needs[number]:
                self._finish(number)
                self._write()

    def finish_ready(self) -> None:
        """Write and log the cells of which everything is stored already."""
        for number, own in enumerate(self.needs):
            if not own and number not in self.entries and number not in self.failures:
                self._finish(number)
                self._write()

    def _finish(self, number: int) -> None:
        spec, cell = self.specs[number], self.cells[number]
        try:
            self.entries[number] = finish_cell(
                spec,
                cell,
                len(self.own[number]),
                self.log,
                self._started_ms(number),
                self.names[number],
            )
        except DesaError as error:
            self._fail(number, error)
        except OSError as error:
            hint = "free disk space or fix the folder, then rerun: only this step is repeated"
            where = str(spec.folder)
            self._fail(number, not_written(error, where=where, hint=hint, whose="its files"))

    def _fail(self, number: int, error: DesaError) -> None:
        self.failures[number] = error
        if self.log is not None:
            try:
                began = self._started_ms(number)
                log_failure(self.log, self.cells[number], error, began, self.names[number])
            except DesaError as unlogged:  # the other cells go on
                self.failures[number] = Problems([error, unlogged])

    def close(self) -> None:
        """Write the summary of what is finished, if anything is."""
        if self.entries or self.failures:
            self._write(at_once=True)

    def _write(self, *, at_once: bool = False) -> None:
        """The summary grows with the sweep: writing it takes a twentieth of the time at most."""
        began = monotonic()
        if self.summary is None or (began < self.next_write and not at_once):
            return
        failed = [
            {"cell": f"cell {number} ({self.names[number]})", "error": str(error)}
            for number, error in sorted(self.failures.items())
        ]
        write_json(
            self.summary, {"cells": self.summaries(), **({"failed": failed} if failed else {})}
        )
        self.next_write = monotonic() + 20 * (monotonic() - began)

    def summaries(self) -> list[dict[str, Any]]:
        """The summaries of the finished cells, in their order, after those of earlier batches."""
        return [*self.earlier, *(self.entries[number] for number in sorted(self.entries))]

    def rows(self) -> list[dict[str, Any]]:
        """The summaries with what tells cells of equal labels apart, for a table."""
        apart = settings_apart(self.cells)
        own = [{**self.entries[number], "apart": apart[number]} for number in sorted(self.entries)]
        return [*self.earlier, *own]

    def draw(self) -> None:
        """Write the plots of the finished cells for the log's parent run, if there is one."""
        if self.log is not None and self.summary is not None:
            folders = [self.specs[number].folder for number in sorted(self.entries)]
            records = [folder / "records.parquet" for folder in folders]
            self.log.plots = write_plots(records, self.summary.parent, self.note)

    def raise_failures(self) -> None:
        """One error for a single cell; for a sweep, one line per failed cell. A cluster that is
        gone is told once, whatever it takes along.
        """
        if len(self.cells) == 1 and self.failures:
            raise self.failures[0]
        gone = [error for error in self.failures.values() if isinstance(error, LostCluster)]
        own = [
            self._named(number, error)
            for number, error in sorted(self.failures.items())
            if not isinstance(error, LostCluster)
        ]
        if gone and not own:
            raise gone[0]
        if own:
            raise Problems([*own, *gone[:1]])

    def _named(self, number: int, error: DesaError) -> DesaError:
        named = DesaError(str(error), where=f"failed: cell {number} ({self.names[number]})")
        named.exit_code = error.exit_code
        return named
