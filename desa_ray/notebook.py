"""Experiments from Python: `plan` and `run` take the overrides of the command line and return
polars frames.

The work happens in a child process, which composes and runs as `desa` does. So nothing in the
caller's process changes: not its working folder, signal handlers, logging, environment, Hydra, Ray
session or JVM. Any thread may call, several at once, with or without an event loop.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.errors import Crashed, DesaError
from desa_ray.report.load import as_numbers
from desa_ray.report.stored import StoredFusion
from desa_ray.store.artifacts import Store

SERVER = "desa_ray.jobs.cli.served"  # the child's side; named, not imported: jobs are above us
SWEEP_FLAGS = ("-m", "--multirun")
ENDING_S = 60.0  # for an interrupted child to close what it started


@dataclass(frozen=True)
class Progress:
    """One step of a run. A note has no stage and 0 shards.

    Attributes:
        stage: the kind of stage that is computed.
        text: which part of it, or the note.
        done: shards stored, including those of earlier runs.
        total: its shards.
    """

    stage: str
    text: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.stage} {self.text}: {self.done}/{self.total}" if self.stage else self.text


@dataclass(frozen=True, repr=False)
class Plan:
    """What a run would reuse and compute.

    Attributes:
        cells: one row per cell: its labels.
        stages: one row per stage, inputs first: `stage`, `label`, `key`, `state` (stored, compute,
            resume or not needed), `unit` and `items` left, and estimates of `seconds` and `bytes`
            (null if no similar stage was computed before).
    """

    cells: pl.DataFrame
    stages: pl.DataFrame

    @property
    def to_compute(self) -> int:
        """How many stages a run would compute."""
        return self.stages.filter(pl.col("state").is_in(["compute", "resume"])).height

    def __repr__(self) -> str:
        sizes = f"{self.cells.height} cells, {self.stages.height} stages"
        return f"<Plan of {sizes}, {self.to_compute} to compute>"


@dataclass(frozen=True, repr=False)
class Results:
    """What a run wrote, in the order of its cells.

    Attributes:
        folder: the output folder; that of the sweep if there are several cells.
        cells: the summaries of the cells, as in `summary.json`.
        folders: the output folder of each cell.
        store: where the artifacts are.
    """

    folder: Path
    cells: Sequence[Mapping[str, Any]]
    folders: Sequence[Path]
    store: str

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row per cell: `cell` (its number), its labels and counts, and every metric."""
        rows = []
        for number, entry in enumerate(self.cells):
            plain = {name: value for name, value in entry.items() if not isinstance(value, dict)}
            given = entry["kappa"]  # none where the rule has none
            kappa = None if given is None else float(Fraction(str(given)))
            rows.append({"cell": number} | plain | {"kappa": kappa} | entry["metrics"])
        return pl.from_dicts(rows, infer_schema_length=None)

    @cached_property
    def records(self) -> pl.DataFrame:
        """One row per cell, query and draw, as in `records.parquet`, with the number of the
        `cell`; kappa and weights are float64.
        """
        return pl.concat(self._records(number) for number in range(len(self.cells)))

    def rankings(self, cell: int = 0, *, draw: int = 0, channel: str | None = None) -> pl.DataFrame:
        """The ranking of every query: `query_id`, `rank` (from 1) and `doc_id`, best first.

        Args:
            cell: its number.
            draw: which generated texts; methods without any have only draw 0.
            channel: the name of a channel, for its complete ranking; by default the fused run, as
                deep as `evaluation.run_depth`.

        Raises:
            DesaError: there is no such cell, draw or channel; or the run has no complete
                rankings (lazy, counted).
        """
        if cell not in range(len(self.cells)):
            raise DesaError(f"there is no cell {cell}", hint=f"use 0 to {len(self.cells) - 1}")
        digests = self._records(cell).filter(pl.col("draw") == draw)["fusion_key"].unique()
        if digests.is_empty():
            hint = f"use 0 to {self.cells[cell]['draws'] - 1}"
            raise DesaError(f"cell {cell} has no draw {draw}", hint=hint)
        fusion = StoredFusion(Store(self.store), digests[0], complete=channel is not None)
        return fusion.fused() if channel is None else fusion.channel(channel)

    def _records(self, number: int) -> pl.DataFrame:
        frame = pl.read_parquet(self.folders[number] / "records.parquet", glob=False)
        frame = as_numbers(frame)
        return frame.select(pl.lit(number, pl.Int32).alias("cell"), pl.all())

    def __repr__(self) -> str:
        return f"<Results of {len(self.cells)} cells in {self.folder}>"


def plan(overrides: Sequence[str] = (), *, config_dir: str | PathLike[str] | None = None) -> Plan:
    """What `run` would reuse and compute; only the collection is read and stored.

    Args:
        overrides: as for `run`.
        config_dir: as for `run`.

    Raises:
        DesaError: as for `run`; also if this machine or cluster could not run the plan.
    """
    cells, stages = _served("plan", overrides, config_dir, None)
    return Plan(
        pl.from_dicts(cells, infer_schema_length=None), pl.DataFrame(stages, STAGES, orient="row")
    )


def run(
    overrides: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
    *,
    config_dir: str | PathLike[str] | None = None,
) -> Results:
    """Run cells as `desa run` does, with the same store, output folders and log.

    Args:
        overrides: as on the command line, one string each: `["method=original,desa", "draws=1"]`.
            Commas between values, `-m`, and an experiment that sweeps make several cells.
        progress: called in this thread with every step. An exception that it raises ends the run.
        config_dir: a folder with YAML files of your own, as `--config-dir`.

    Returns:
        Summaries, records and rankings of all cells.

    Raises:
        DesaError: as the command line reports it. In a sweep the other cells are finished first.
        KeyboardInterrupt: the run was interrupted; the same call continues from what is stored.
    """
    return Results(*_served("run", overrides, config_dir, progress))


STAGES = pl.Schema(
    {
        "stage": pl.String,
        "label": pl.String,
        "key": pl.String,
        "state": pl.String,
        "unit": pl.String,
        "items": pl.Int64,
        "seconds": pl.Float64,
        "bytes": pl.Float64,
    }
)


def _served(
    verb: str,
    overrides: Sequence[str],
    config_dir: str | PathLike[str] | None,
    progress: Callable[[Progress], None] | None,
) -> Any:
    """The answer of a child process that ran the verb; raises the error that it met."""
    given = _checked(overrides)
    with tempfile.TemporaryFile() as said, _child(said) as (process, line):
        with suppress(BrokenPipeError):  # it died meanwhile: the line's end tells
            line.send((verb, given, None if config_dir is None else os.fspath(config_dir)))
        while True:
            try:
                kind, content = line.recv()
            except (EOFError, OSError):
                raise _died(process.wait(), said) from None
            if kind == "progress":
                if progress is not None:
                    progress(content)
            elif kind == "failed":
                raise content
            else:
                return content


def _checked(overrides: Sequence[str]) -> list[str]:
    listed = isinstance(overrides, Sequence) and not isinstance(overrides, str)
    if not listed or not all(isinstance(text, str) for text in overrides):
        hint = 'give a list of strings: ["method=desa", "fusion.kappa=20"]'
        raise DesaError(
            f"{repr(overrides)[:80]} is not a list of strings", where="overrides", hint=hint
        )
    for text in overrides:
        if text.startswith("-") and text not in SWEEP_FLAGS:
            hint = "give KEY=VALUE; name a folder with files of your own with config_dir="
            raise DesaError(f"{text!r} is a flag", where="overrides", hint=hint)
    return list(overrides)


@contextmanager
def _child(said: Any) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """A child that serves one request. It is interrupted where the block is left before its end.

    It has a session of its own: a Ctrl-C at the terminal reaches the caller, which passes it on.
    """
    line, theirs = Pipe()
    with line:
        with theirs:
            code = f"from {SERVER} import serve; serve({theirs.fileno()}, {os.getpid()})"
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        try:
            yield process, line
        except BaseException:
            line.close()  # so that it does not wait to be read
            process.send_signal(signal.SIGINT)
            raise
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for it to close what it started; kill it after that, or at a second interrupt."""
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
    finally:
        process.kill()
        process.wait()


def _died(status: int, said: Any) -> DesaError:
    said.seek(0)
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    how = signal.Signals(-status).name if status < 0 else f"code {status}"
    what = f"the process of the run ended without an answer ({how})"
    hint = "run again: finished work is kept"
    return Crashed(f"{what}: {lines[-1]}" if lines else what, hint=hint)
