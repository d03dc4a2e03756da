"""Log entries as plain documents: each can be written to disk first and sent later, and sending it
twice is harmless.

A sweep logs `begin`, a `cell` for each finished or failed cell, `metrics` (what the machine did)
and `end`. Documents hold their own times, so that a late delivery shows when things happened, and a
second delivery of one adds nothing. Values that MLflow would cut or choke on (long params,
non-finite metrics) are refused or left out by name, never silently changed.
"""

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desa_ray.errors import DesaError
from desa_ray.printable import printable

PARAM_LIMIT, TAG_LIMIT = 6000, 8000

# Tags that say what a run is; they find it again when a sweep is resumed or a document is sent
# twice.
SWEEP, CELL, ATTEMPT, ERROR = "desa.sweep", "desa.cell", "desa.attempt", "desa.error"
PARENT = "mlflow.parentRunId"
RECORDS = "sha256.records.parquet"
AT_CUTOFF = re.compile(r"(?P<name>.+)/L(?P<cutoff>\d{1,9})")
Series = dict[str, list[tuple[int, float | None]]]


@dataclass(frozen=True)
class CellRun:
    """Everything one cell logs. `metrics` may hold None (no value).

    Attributes:
        cell: hex digest of what the cell is (its settings and stages), the same in every attempt.
        started_ms, ended_ms: Unix time.
        per_draw: values of single draws; a metric `draws/NAME` has them as steps. So has
            `NAME/L` the metrics named `NAME/L20`, `NAME/L100`, ...
        error: why the cell failed, None for a finished one.
        inputs: its data sets: name, digest (hex SHA-256), source and counts.
        command: the command line that computes it.
    """

    cell: str
    name: str
    params: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    per_draw: Sequence[Mapping[str, float | None]]
    tags: Mapping[str, str]
    artifacts: Sequence[Path]
    started_ms: int
    ended_ms: int
    error: str | None = None
    inputs: Sequence[Mapping[str, Any]] = ()
    command: str = ""


def now_ms() -> int:
    """Unix time in milliseconds."""
    return int(time.time() * 1000)


def cell_document(run: CellRun) -> dict[str, Any]:
    """The cell as a plain document, its artifacts by name; raises DesaError where MLflow could not
    hold a value.
    """
    named, series = {}, _draws(run.per_draw)
    for name, value in run.metrics.items():
        if step := AT_CUTOFF.fullmatch(name):
            series.setdefault(f"{step['name']}/L", []).append((int(step["cutoff"]), value))
        else:
            named[name] = value
    # A metric without a finite value breaks MLflow's run page: it is absent there, and null in
    # summary.json.
    finite = {
        name: float(value)
        for name, value in named.items()
        if value is not None and math.isfinite(value)
    }
    error = {} if run.error is None else {ERROR: shortened(run.error)}
    return {
        "kind": "cell",
        "cell": run.cell,
        "name": printable(run.name),
        "status": "FINISHED" if run.error is None else "FAILED",
        "params": params(run.params),
        "metrics": {spelled(name): value for name, value in finite.items()},
        "tags": tags({**run.tags, **error}),
        "artifacts": [path.name for path in run.artifacts],
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
        "series": _finite(series),
        "inputs": [dict(own) for own in run.inputs],
        "command": printable(run.command),
    }


def _draws(per_draw: Sequence[Mapping[str, float | None]]) -> Series:
    found: Series = {}
    for draw, values in enumerate(per_draw):
        for name, value in values.items():
            found.setdefault(f"draws/{name}", []).append((draw, value))
    return found


def _finite(series: Series) -> dict[str, list[list[float]]]:
    """Without the values that break MLflow's page, and without series that have no other."""
    found = {}
    for name, points in series.items():
        kept = [[step, float(v)] for step, v in points if v is not None and math.isfinite(v)]
        if kept:
            found[spelled(name)] = kept
    return found


def params(values: Mapping[str, Any]) -> dict[str, str]:
    """Params as MLflow holds them, printable; raises DesaError for one that it would cut."""
    found = {}
    for name, value in values.items():
        text = printable(value)
        if len(text) > PARAM_LIMIT:
            raise DesaError(
                f"a value of {len(text)} characters does not fit an MLflow param ({PARAM_LIMIT})",
                where=name,
                hint="shorten it or switch tracking off",
            )
        found[spelled(name)] = text
    return found


def tags(values: Mapping[str, str]) -> dict[str, str]:
    """Tags as MLflow holds them, printable; raises DesaError for one that it would cut."""
    values = {name: printable(value) for name, value in values.items()}
    for name, value in values.items():
        if len(value) > TAG_LIMIT:
            raise DesaError(
                f"a tag of {len(value)} characters does not fit MLflow",
                where=name,
                hint="shorten it",
            )
    return {spelled(name): value for name, value in values.items()}


def shortened(text: str, limit: int = TAG_LIMIT) -> str:
    """Foreign text, such as an error message, printable and as long as a tag may be; a cut is
    visible, and the written files have all of it.
    """
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 6]} [...]"


def spelled(name: str) -> str:
    """MLflow allows letters, digits and `_ - . / : space` in names, and no name that is another
    one when it is read as a path.
    """
    plain = re.sub(r"[^\w\-./: ]", "_", name, flags=re.ASCII)
    return "/".join("_" if part in ("", ".", "..") else part for part in plain.split("/"))
