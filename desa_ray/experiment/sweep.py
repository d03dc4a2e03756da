"""The state of a sweep: which cells still need which stages, what they gave, and what
failed them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.build import Cell
from desa_ray.experiment.cell_files import write_json
from desa_ray.experiment.finish import finish_cell, log_failure
from desa_ray.experiment.spec import CellSpec
from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.stage import Stage
from desa_ray.tracking.entries import now_ms

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
    ):
        self.specs, self.cells, self.log, self.summary, self.note = specs, cells, log, summary, note
        self.started_ms = now_ms()
        self.needs: list[set[str]] = []
        for cell in cells:
            self.needs.append({stage.key.digest for stage in missing(cell.targets)})
        # A stage that several cells share counts as computed for the first of them.
        self.fresh = [
            len(own - set().union(*self.needs[:number])) for number, own in enumerate(self.needs)
        ]
        self.computed: set[str] = set()
        self.broken: dict[str, DesaError] = {}
        self.entries: dict[int, dict[str, Any]] = {}
        self.failures: dict[int, DesaError] = {}

    def on_stage_done(self, stage: Stage, error: DesaError | None) -> None:
        """Note that a stage is stored or has failed; finish what is complete."""
        if error is not None:
            self.broken[stage.key.digest] = error
        else:
            self.computed.add(stage.key.digest)
        self.finish_ready()

    def finish_ready(self) -> None:
        """Write and log the cells whose stages are all stored; note the cells that cannot be any
        more.
        """
        for number in range(len(self.cells)):
            if number in self.entries or number in self.failures:
                continue
            if lost := self.needs[number] & self.broken.keys():
                self._fail(number, self.broken[next(iter(lost))])
            elif self.needs[number] <= self.computed:
                self._finish(number)
            else:
                continue
            self._write()

    def _finish(self, number: int) -> None:
        spec, cell = self.specs[number], self.cells[number]
        try:
            self.entries[number] = finish_cell(
                spec, cell, self.fresh[number], self.log, self.started_ms, self.note
            )
        except DesaError as error:
            self._fail(number, error)
        except OSError as error:
            self._fail(number, _not_written(error, spec.folder))

    def _fail(self, number: int, error: DesaError) -> None:
        self.failures[number] = error
        if self.log is not None:
            try:
                log_failure(self.log, self.cells[number], error, self.started_ms)
            except DesaError as unlogged:  # the other cells go on all the same
                self.failures[number] = Problems([error, unlogged])

    def _name(self, number: int) -> str:
        config = self.specs[number].config
        return (
            f"cell {number} ({config.dataset.name} {config.method.name} kappa"
            f" {config.fusion.kappa})"
        )

    def _write(self) -> None:
        if self.summary is None:
            return
        failed = [
            {"cell": self._name(number), "error": str(error)}
            for number, error in sorted(self.failures.items())
        ]
        write_json(
            self.summary, {"cells": self.summaries(), **({"failed": failed} if failed else {})}
        )

    def summaries(self) -> list[dict[str, Any]]:
        """The summaries of the finished cells, in their order."""
        return [self.entries[number] for number in sorted(self.entries)]

    def raise_failures(self) -> None:
        """One error for a single cell; for a sweep, one line per failed cell."""
        if len(self.cells) == 1 and self.failures:
            raise self.failures[0]
        if self.failures:
            raise Problems(
                self._named(number, error) for number, error in sorted(self.failures.items())
            )

    def _named(self, number: int, error: DesaError) -> DesaError:
        named = DesaError(str(error), where=f"failed: {self._name(number)}")
        named.exit_code = error.exit_code
        return named


def _not_written(error: OSError, folder: Path) -> DesaError:
    what = f"its files cannot be written: {error.strerror or error}"
    return DesaError(
        what,
        where=str(folder),
        hint="free the disk or fix the folder, then rerun: only this is redone",
    )
