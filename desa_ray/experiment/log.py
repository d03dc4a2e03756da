"""Opens and closes a sweep's log in MLflow, whatever happens to the sweep in between."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from desa_ray.config import RunConfig
from desa_ray.credentials import redacted
from desa_ray.errors import DesaError, Problems, counted
from desa_ray.experiment.build import Cell
from desa_ray.experiment.cell_files import write_json
from desa_ray.experiment.finish import cell_digest
from desa_ray.experiment.places import home, tracking_uri
from desa_ray.experiment.records import labels
from desa_ray.pipeline.provenance import provenance
from desa_ray.tracking.last import FILE, links
from desa_ray.types import sha256_json

if TYPE_CHECKING:
    from desa_ray.tracking.sweeps import SweepLog

SHOWN = 50


@contextmanager
def logged(
    config: RunConfig, cells: Sequence[Cell], summary: Path | None, note: Callable[[str], None]
) -> "Iterator[SweepLog | None]":
    """The sweep's log, ended as FINISHED, FAILED (a cell failed) or KILLED (interrupted).

    None without tracking.
    """
    if not config.tracking.enabled:
        yield None
        return
    from desa_ray.tracking.sweeps import SweepLog

    uri = tracking_uri(config.tracking)
    offline, sample_s = config.tracking.offline, config.tracking.system_metrics_s
    log = SweepLog(
        sweep_run(config, cells, parent=summary is not None),
        uri=uri,
        home=home(),
        offline=offline,
        sample_s=sample_s,
    )
    write_json(home() / FILE, {"uri": uri})
    status, errors, problems = "KILLED", [], []
    try:
        yield log
        status = "FINISHED"
    except DesaError as error:
        status = "FAILED"
        problems = [*error.problems] if isinstance(error, Problems) else [error]
        errors = [str(problem) for problem in problems]
    except Exception as error:
        status, errors = "FAILED", [str(error)]
        raise
    finally:
        metrics = {"cells": float(len(cells)), "cells_failed": float(len(errors))}
        files = [*log.plots, *([summary] if summary is not None and summary.exists() else [])]
        try:
            log.end(status, metrics, errors, files)
        except DesaError as unlogged:
            problems.append(unlogged)
            if status == "KILLED":  # the interrupt itself is what is raised
                note(str(unlogged))
        noted = {"uri": uri, "experiment_id": log.experiment_id, "run_ids": log.run_ids}
        noted |= {"sweep": summary is not None, "compared": log.compared}
        write_json(home() / FILE, noted)
        if uri.startswith(("http://", "https://")):
            for line in links(redacted(uri), noted):
                note(f"MLflow {line}")
        elif log.run_ids:
            note("MLflow: `desa ui` serves the log and prints the addresses of this run")
        if log.unsent and not offline:
            waiting = counted(log.unsent, "log entry", "log entries")
            note(f"{waiting} could not be sent to {redacted(uri)}: {log.outbox.trouble}")
        if log.unsent:
            waiting = counted(log.unsent, "log entry waits", "log entries wait")
            note(f"{waiting} in {log.outbox.folder}: `desa sync` or the next run sends them")
    if problems:
        raise problems[0] if len(problems) == 1 else Problems(problems)


def sweep_run(config: RunConfig, cells: Sequence[Cell], *, parent: bool):
    """What the sweep is: the same cells in the same experiment are the same sweep."""
    from desa_ray.tracking.sweeps import SweepRun

    experiment = config.tracking.experiment
    digest = sweep_digest(config, cells, parent=parent)
    named = [labels(cell) for cell in cells]
    # Sorted, as the same cells in another order are the same sweep.
    values: dict[str, list[str]] = {}
    for name in named[0]:
        there = {str(own[name]) for own in named if own[name] is not None}
        values[name] = sorted(there, key=_in_order)
    varying = [name for name, found in values.items() if len(found) > 1]
    made = provenance()
    return SweepRun(
        experiment=experiment,
        sweep=digest,
        name=f"sweep {'/'.join(values['dataset'])} over {', '.join(varying) or 'one cell'}",
        parent=parent,
        params={
            name: ", ".join(found) if len(found) <= SHOWN else f"{len(found)} values"
            for name, found in values.items()
        },
        tags={
            "commit": str(made["commit"]),
            "dirty": str(made["dirty"]),
            "environment_sha256": made["environment"],
        },
        command=spoken(),
    )


def sweep_digest(config: RunConfig, cells: Sequence[Cell], *, parent: bool) -> str:
    """The identity of a sweep; its first eight digits are the label `run` of its metrics."""
    digests = sorted({cell_digest(cell) for cell in cells})
    return sha256_json([config.tracking.experiment, parent, digests])


def spoken() -> str:
    """The command line of this process, as `desa` was given it; empty where it is another
    program's.
    """
    verb, *rest = sys.argv
    return " ".join([verb, *map(shlex.quote, rest)]) if verb.startswith("desa ") else ""


def _in_order(value: str) -> tuple[float, str]:
    """Numbers by value, before words."""
    try:
        return float(Fraction(value)), value
    except ValueError:
        return float("inf"), value
