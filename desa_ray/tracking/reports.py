"""Logs a finished report as one run: its facts as params, its folder as artifacts."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from mlflow.entities import Run

from desa_ray.tracking.entries import PARAM_LIMIT, shortened, spelled
from desa_ray.tracking.failures import OFF, answers
from desa_ray.tracking.places import artifacts_of
from desa_ray.tracking.runs import Tracker, sound_id

ENTRY = "desa.entry"
LOOKS, LOOK_WAIT_S = 3, 0.5  # for a run whose answer was lost


def log_report(
    tracker: Tracker,
    experiment: str,
    folder: Path,
    facts: Mapping[str, str],
    tags: Mapping[str, str],
) -> str:
    """Log the folder under the artifact path `report`; returns the run's id. A run not logged whole
    is marked FAILED.

    Args:
        experiment: name without the prefix `desa/`.
        facts: what the report is about; becomes params.
        tags: further tags, such as the hash of the records.
    """
    client = tracker.client
    with answers(tracker.uri, "the report is written, but could not be logged", OFF):
        run = _made(tracker, tracker.experiment(experiment), {**tags, ENTRY: uuid4().hex})
        run_id = sound_id(run.info.run_id)
        try:
            for name, value in facts.items():
                client.log_param(run_id, spelled(name), shortened(value, PARAM_LIMIT))
            artifacts_of(run, tracker.uri).log_artifacts(str(folder), "report")
        except BaseException:
            with suppress(Exception):  # what went wrong first is what is told
                client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id, "FINISHED")
    return run_id


def _made(tracker: Tracker, experiment_id: str, tags: dict[str, str]) -> Run:
    """A new run; one whose answer was lost is found by its own tag and not made twice."""
    try:
        return tracker.client.create_run(experiment_id, run_name="report", tags=tags)
    except Exception:
        for _ in range(LOOKS):
            time.sleep(LOOK_WAIT_S)
            found = tracker.client.search_runs([experiment_id], f"tags.`{ENTRY}` = '{tags[ENTRY]}'")
            for run in found:
                if run.data.tags.get(ENTRY) == tags[ENTRY]:
                    return run
        raise
