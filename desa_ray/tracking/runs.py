"""One MLflow run a cell: what decided it as params, what came out as metrics, hashes as tags, records as artifacts.

Only the driver calls this. Values that MLflow would cut or choke on (long params, non-finite metrics) are refused or
left out by name, never silently changed.
"""

import logging
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from desa_ray.errors import DesaError
from desa_ray.tracking.opening import artifact_folder, open_client

logging.getLogger("mlflow").setLevel(logging.WARNING)  # database migrations are not news

PARAM_LIMIT, TAG_LIMIT = 6000, 8000
BATCH = 90


@dataclass(frozen=True)
class CellRun:
    """Everything one cell logs. `metrics` may hold None (no value); `per_draw` gets a `/drawN` suffix."""

    name: str
    params: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    per_draw: Sequence[Mapping[str, float | None]]
    tags: Mapping[str, str]
    artifacts: Sequence[Path]


class Tracker:
    """A connection to one tracking store, checked when made."""

    def __init__(self, uri: str, artifacts: Path):
        """Connect to `uri`; runs of a sqlite store keep their artifacts under the folder `artifacts`."""
        self.uri, self.artifacts = uri, artifacts
        self.local = uri.startswith("sqlite:")
        if self.local:
            artifact_folder(artifacts)
        self.client = open_client(uri)

    def experiment(self, name: str) -> str:
        """Id of the experiment `desa/<name>`, made if missing."""
        full = f"desa/{name}"
        for _ in range(3):
            found = self.client.get_experiment_by_name(full)
            if found is not None:
                return found.experiment_id
            try:
                place = (self.artifacts / name).resolve().as_uri() if self.local else None
                return self.client.create_experiment(full, artifact_location=place)
            except MlflowException:  # somebody else made it in between
                time.sleep(0.2)
        raise DesaError(
            f"experiment {full} can neither be found nor made", where="experiment", mend="undelete it in MLflow"
        )

    def log(self, experiment: str, cell: CellRun) -> str:
        """Log a finished cell; returns the run's id. A run that cannot be logged whole is marked FAILED."""
        params = _params(cell.params)
        metrics = _metrics(cell)
        tags = _tags(cell.tags)
        run = self.client.create_run(self.experiment(experiment), run_name=cell.name)
        run_id = run.info.run_id
        try:
            for start in range(0, max(len(params), len(tags), len(metrics)), BATCH):
                stop = start + BATCH
                self.client.log_batch(run_id, metrics[start:stop], params[start:stop], tags[start:stop])
            for path in cell.artifacts:
                self.client.log_artifact(run_id, str(path))
        except BaseException:
            self.client.set_terminated(run_id, "FAILED")
            raise
        self.client.set_terminated(run_id, "FINISHED")
        return run_id


def _params(values: Mapping[str, Any]) -> list[Param]:
    params = []
    for name, value in values.items():
        text = str(value)
        if len(text) > PARAM_LIMIT:
            raise DesaError(
                f"a value of {len(text)} characters does not fit an MLflow param ({PARAM_LIMIT})",
                where=name,
                mend="shorten it or switch tracking off",
            )
        params.append(Param(_name(name), text))
    return params


def _metrics(cell: CellRun) -> list[Metric]:
    now = int(time.time() * 1000)
    named = dict(cell.metrics)
    for draw, values in enumerate(cell.per_draw):
        named |= {f"{name}/draw{draw}": value for name, value in values.items()}
    # A metric without a finite value breaks MLflow's run page: it is absent there, and null in summary.json.
    finite = {name: float(value) for name, value in named.items() if value is not None and math.isfinite(value)}
    return [Metric(_name(name), value, now, 0) for name, value in finite.items()]


def _tags(values: Mapping[str, str]) -> list[RunTag]:
    for name, value in values.items():
        if len(value) > TAG_LIMIT:
            raise DesaError(f"a tag of {len(value)} characters does not fit MLflow", where=name, mend="shorten it")
    return [RunTag(_name(name), value) for name, value in values.items()]


def _name(name: str) -> str:
    """MLflow allows letters, digits and `_ - . / : space` in names."""
    return re.sub(r"[^\w\-./: ]", "_", name, flags=re.ASCII)
