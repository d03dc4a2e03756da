"""Logs a finished report: into the run of its sweep if it is about one sweep, else as a separate
run. Its folder becomes artifacts, its facts tags or params.
"""

import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from mlflow.entities import Run

from desa_ray.tracking.entries import PARAM_LIMIT, PARENT, TAG_LIMIT, shortened, spelled
from desa_ray.tracking.failures import OFF, answers
from desa_ray.tracking.last import FOLDER
from desa_ray.tracking.notes import NOTE, with_report
from desa_ray.tracking.paging import paged
from desa_ray.tracking.places import artifacts_of
from desa_ray.tracking.runs import ID, Tracker, sound_id

ENTRY = "desa.entry"
DIGEST = re.compile(r"[0-9a-f]{64}")
FUSION = "key.fusion.draw0"  # tag of a cell
LOOKS, LOOK_WAIT_S = 3, 0.5  # for a run whose answer was lost


def log_report(
    tracker: Tracker,
    experiment: str,
    folder: Path,
    facts: Mapping[str, str],
    tags: Mapping[str, str],
    fusions: Collection[str] = (),
) -> tuple[str, str]:
    """Log the folder under the artifact path `report`; returns the ids of experiment and run. A
    run of its own that is not logged whole is marked FAILED.

    Args:
        experiment: name without the prefix `desa/`, for a run of its own.
        facts: what the report is about; params of a run of its own, tags of a sweep's.
        tags: further tags, such as the hash of the records.
        fusions: keys of the first draws of all cells; a sweep that has them all gets the report.
    """
    client = tracker.client
    with answers(tracker.uri, "the report is written, but could not be logged", OFF):
        parent = _sweep_of(tracker, fusions)
        if parent is not None:
            _into(tracker, parent, folder, facts, tags)
            return sound_id(parent.info.experiment_id), sound_id(parent.info.run_id)
        experiment_id = tracker.experiment(experiment)
        run = _made(tracker, experiment_id, {**tags, ENTRY: uuid4().hex})
        run_id = sound_id(run.info.run_id)
        try:
            for name, value in facts.items():
                client.log_param(run_id, spelled(name), shortened(value, PARAM_LIMIT))
            _log_files(tracker, run, folder)
        except BaseException:
            with suppress(Exception):  # what went wrong first is what is told
                client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id, "FINISHED")
    return experiment_id, run_id


def _into(
    tracker: Tracker, parent: Run, folder: Path, facts: Mapping[str, str], tags: Mapping[str, str]
) -> None:
    """A later report about the same sweep replaces the files of an earlier one."""
    run_id = parent.info.run_id
    _log_files(tracker, parent, folder)
    for name, value in facts.items():
        tracker.client.set_tag(run_id, f"report.{spelled(name)}", shortened(value, TAG_LIMIT))
    for name, value in tags.items():
        tracker.client.set_tag(run_id, name, value)
    note = with_report(parent.data.tags.get(NOTE, ""), parent.info.experiment_id, run_id)
    tracker.client.set_tag(run_id, NOTE, note)


def _log_files(tracker: Tracker, run: Run, folder: Path) -> None:
    """All files of the folder but hidden ones: Hydra's notes are not part of a report."""
    artifacts = artifacts_of(run, tracker.uri)
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in place.parts):
            artifacts.log_artifact(str(path), (Path(FOLDER) / place.parent).as_posix())


def _sweep_of(tracker: Tracker, fusions: Collection[str]) -> Run | None:
    """The latest sweep whose cells have all these fusions, if there is one."""
    wanted = set(fusions)
    if not wanted or not all(map(DIGEST.fullmatch, wanted)):
        return None
    found = paged(
        lambda token: tracker.client.search_experiments(
            filter_string="name LIKE 'desa/%'", page_token=token
        )
    )
    experiments = [sound_id(own.experiment_id) for own in found]
    some = min(wanted)
    for cell in _runs(tracker, experiments, f"tags.`{FUSION}` = '{some}'"):
        parent = cell.data.tags.get(PARENT)
        if cell.data.tags.get(FUSION) != some or parent is None or not ID.fullmatch(parent):
            continue
        cells = _runs(tracker, experiments, f"tags.`{PARENT}` = '{parent}'")
        own = {run.data.tags.get(FUSION) for run in cells if run.data.tags.get(PARENT) == parent}
        if wanted <= own:
            run = tracker.client.get_run(parent)
            if run.info.run_id == parent and run.info.lifecycle_stage == "active":
                return run
    return None


def _runs(tracker: Tracker, experiments: list[str], wanted: str) -> Iterator[Run]:
    latest = ["attributes.start_time DESC"]
    return paged(
        lambda token: tracker.client.search_runs(
            experiments, wanted, order_by=latest, page_token=token
        )
    )


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
