"""Sends one document to MLflow, so that sending it again changes nothing.

MLflow chooses run ids itself; what makes a run *this* run are its tags: a parent is found by its
sweep, a child by sweep and cell. A child that ended well with the same records is left as it is;
one that did not (its driver was killed, or the cell failed) is taken up again, so a resumed sweep
has one child per cell. An answer that is lost on the way leaves an unknown run: before
anything is sent again it is looked for, and what is left over of it removed.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from mlflow.tracking import MlflowClient

from desa_ray.files import whole
from desa_ray.tracking.comparison import compared_view
from desa_ray.tracking.entries import ATTEMPT, CELL, PARENT, RECORDS, SWEEP
from desa_ray.tracking.failures import Nonsense
from desa_ray.tracking.notes import (
    NOTE,
    about,
    cell_note,
    data_sets,
    has_report,
    sweep_note,
    with_report,
)
from desa_ray.tracking.paging import paged
from desa_ray.tracking.places import artifacts_of
from desa_ray.tracking.runs import Tracker, sound_id

BATCH = 90


class Delivery:
    """Delivers the documents of one sweep to one tracking store.

    Args:
        tracker: the open tracking store.
        experiment: name without the prefix `desa/`.
        sweep: hex digest of what the sweep is.
        attempt: this run of it.
        repeats: some of it may have been sent before, without an answer.
    """

    def __init__(
        self, tracker: Tracker, experiment: str, sweep: str, attempt: str, *, repeats: bool = False
    ):
        self.client: MlflowClient = tracker.client
        self.uri, self.sweep, self.attempt, self.repeats = tracker.uri, sweep, attempt, repeats
        self.experiment_id = tracker.experiment(experiment)
        self.parent: str | None = None

    def send(self, document: Mapping[str, Any], artifacts: Path) -> str:
        """Deliver a document whose artifacts lie in a folder; returns the id of the run that holds
        it.
        """
        return {
            "begin": self._begin,
            "cell": self._cell,
            "metrics": self._measured,
            "end": self._end,
        }[document["kind"]](document, artifacts)

    def kill(self) -> None:
        """Mark what this attempt left RUNNING as KILLED; a later attempt's runs are not touched."""
        for run in self._search({ATTEMPT: self.attempt}):
            if run.info.status == "RUNNING":
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _begin(self, document: Mapping[str, Any], _: Path) -> str:
        found = self._parents()
        own = {**document["tags"], SWEEP: self.sweep, ATTEMPT: self.attempt}
        if found:
            self.parent = found[0].info.run_id
            for name, value in own.items():
                self.client.set_tag(self.parent, name, value)
            self.client.update_run(self.parent, status="RUNNING")
            known = found[0].data.params
        else:
            self.parent, known = self._create(own, document["started_ms"], document["name"]), {}
        # Params cannot change: what another version of the platform said of the same sweep stands.
        fresh = {name: value for name, value in document["params"].items() if name not in known}
        self._log(self.parent, fresh, {}, about(document), document["started_ms"])
        self._confirm(self.parent, "RUNNING", document["params"], (), own)
        self._remove_doubles(self.parent, {SWEEP: self.sweep}, parents=True)
        return self.parent

    def _cell(self, document: Mapping[str, Any], artifacts: Path) -> str:
        identity = {SWEEP: self.sweep, CELL: document["cell"]}
        if document["child"]:
            identity[PARENT] = self._parent()
        records = document["tags"].get(RECORDS)
        known = self._search(identity)
        for run in known:
            if run.info.status == "FINISHED" and records in (None, run.data.tags.get(RECORDS)):
                self._remove_doubles(run.info.run_id, identity)
                return run.info.run_id
        own = {**identity, ATTEMPT: self.attempt}
        # Finished with other records: the code computes something else now, which is another run.
        open_runs = [run for run in known if run.data.tags.get(RECORDS) in (None, records)]
        if open_runs:
            run_id = open_runs[0].info.run_id
            self.client.update_run(run_id, status="RUNNING")
        else:
            run_id = self._create(own, document["started_ms"], document["name"])
        note = {NOTE: cell_note(document), **about(document)}
        self._log(
            run_id,
            document["params"],
            document["metrics"],
            {**document["tags"], **own, **note},
            document["ended_ms"],
        )
        series = document.get("series") or {}
        self._log_series(run_id, series, document["ended_ms"])
        if document.get("inputs"):
            self.client.log_inputs(run_id, data_sets(document["inputs"]))
        self._upload(run_id, document, artifacts)
        if (
            open_runs
            and document["status"] == "FINISHED"
            and "desa.error" in open_runs[0].data.tags
        ):
            self.client.delete_tag(run_id, "desa.error")
        self.client.set_terminated(run_id, document["status"], end_time=document["ended_ms"])
        self._confirm(
            run_id,
            document["status"],
            document["params"],
            [*document["metrics"], *series],
            document["tags"] | own,
        )
        self._remove_doubles(run_id, identity)
        return run_id

    def _measured(self, document: Mapping[str, Any], _: Path) -> str:
        parent = self._parent()
        metrics = [
            Metric(name, value, time_ms, step) for name, value, time_ms, step in document["metrics"]
        ]
        for start in range(0, len(metrics), BATCH):
            self.client.log_batch(parent, metrics[start : start + BATCH])
        return parent

    def _end(self, document: Mapping[str, Any], artifacts: Path) -> str:
        parent = self._parent()
        text = sweep_note(document)
        if has_report(self.client.get_run(parent).data.tags.get(NOTE, "")):
            text = with_report(text, self.experiment_id, parent)
        note = {NOTE: text}
        if document.get("swept"):
            logged = set[str]().union(*(row["metrics"] for row in document["results"]))
            tag, view = compared_view(parent, document["swept"], logged)
            self.client.set_experiment_tag(self.experiment_id, tag, view)
        self._log(parent, {}, document["metrics"], document["tags"] | note, document["ended_ms"])
        self._upload(parent, document, artifacts)
        self.client.set_terminated(parent, document["status"], end_time=document["ended_ms"])
        self._confirm(parent, document["status"], (), document["metrics"], document["tags"])
        self._remove_doubles(parent, {SWEEP: self.sweep}, parents=True)
        return parent

    def _parent(self) -> str:
        if self.parent is None:
            found = self._parents()
            # Perhaps a user removed it meanwhile: the sweep gets a parent again rather than losing
            # its cells.
            self.parent = (
                found[0].info.run_id
                if found
                else self._create({SWEEP: self.sweep, ATTEMPT: self.attempt}, None, None)
            )
        return self.parent

    def _create(self, own: Mapping[str, str], started_ms: int | None, name: str | None) -> str:
        """A new run, which has its tags from the start: whoever repeats this without having seen an
        answer finds it.
        """
        run = self.client.create_run(
            self.experiment_id, start_time=started_ms, tags=dict(own), run_name=name
        )
        return sound_id(run.info.run_id)

    def _upload(self, run_id: str, document: Mapping[str, Any], folder: Path) -> None:
        if not document["artifacts"]:
            return
        place = artifacts_of(self.client.get_run(run_id), self.uri)
        for name in document["artifacts"]:
            if not _linked(place, folder / name):
                place.log_artifact(str(folder / name))
        there = {file.path: file.file_size for file in place.list_artifacts()}
        for name in document["artifacts"]:
            if name not in there or there[name] not in (None, (folder / name).stat().st_size):
                raise Nonsense(f"run {run_id} has no complete {name} after it was uploaded")

    def _confirm(
        self,
        run_id: str,
        status: str,
        params: Collection[str],
        metrics: Collection[str],
        tags: Mapping[str, str],
    ) -> None:
        """The document leaves the disk now: a server that only says yes must not have it."""
        run = self.client.get_run(run_id)
        if run.info.run_id != run_id or run.info.status != status:
            raise Nonsense(
                f"run {run_id} should be {status}, the server shows {run.info.run_id} that is"
                f" {run.info.status}"
            )
        lacking = [name for name in params if name not in run.data.params]
        lacking += [name for name in metrics if name not in run.data.metrics]
        lacking += [name for name, value in tags.items() if run.data.tags.get(name) != value]
        if lacking:
            raise Nonsense(f"run {run_id} has no {lacking[0]} after it was logged")

    def _remove_doubles(
        self, run_id: str, identity: Mapping[str, str], *, parents: bool = False
    ) -> None:
        """Runs that this attempt made for the same document and never filled, as their answer came
        too late or never.

        They go to MLflow's trash.
        """
        if not self.repeats:
            return
        for run in self._search({**identity, ATTEMPT: self.attempt}):
            other = run.info.run_id != run_id and (not parents or PARENT not in run.data.tags)
            if (
                other
                and not run.data.params
                and not run.data.metrics
                and run.info.status != "FINISHED"
            ):
                try:
                    self.client.delete_run(run.info.run_id)
                except MlflowException as error:
                    if error.get_http_status_code() != 403:
                        raise
                    # This user may delete nothing
                    self.client.set_terminated(run.info.run_id, "KILLED")

    def _search(self, identity: Mapping[str, str]) -> list[Run]:
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in identity.items())
        oldest = ["attributes.start_time ASC"]
        found = paged(
            lambda token: self.client.search_runs(
                [self.experiment_id], wanted, order_by=oldest, page_token=token
            )
        )
        # A server that knows no filters must not have another's run taken for this one.
        own = [run for run in found if identity.items() <= run.data.tags.items()]
        # What is empty may be a double, to be removed
        return sorted(own, key=lambda run: not run.data.params)

    def _parents(self) -> list[Run]:
        return [run for run in self._search({SWEEP: self.sweep}) if PARENT not in run.data.tags]

    def _log_series(
        self, run_id: str, series: Mapping[str, Sequence[Sequence[float]]], time_ms: int
    ) -> None:
        points = []
        for name, values in series.items():
            points += [Metric(name, value, time_ms, int(step)) for step, value in values]
        for start in range(0, len(points), BATCH):
            self.client.log_batch(run_id, points[start : start + BATCH])

    def _log(
        self,
        run_id: str,
        params: Mapping[str, str],
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
        time_ms: int,
    ) -> None:
        all_params = [Param(name, value) for name, value in params.items()]
        all_metrics = [Metric(name, value, time_ms, 0) for name, value in metrics.items()]
        all_tags = [RunTag(name, value) for name, value in tags.items()]
        for start in range(0, max(len(all_params), len(all_metrics), len(all_tags)), BATCH):
            part = slice(start, start + BATCH)
            self.client.log_batch(run_id, all_metrics[part], all_params[part], all_tags[part])


def _linked(place: ArtifactRepository, file: Path) -> bool:
    """Whether a run was put into a folder of this disk as a link: rankings are most of what a sweep
    writes, and are kept once. They are replaced, never edited, so the log's own stays as it is.
    """
    if not (file.name.startswith("run.") and isinstance(place, LocalArtifactRepository)):
        return False
    target = Path(place.artifact_dir) / file.name
    with suppress(OSError):  # another disk, or one without links
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole(target) as temporary:
            temporary.hardlink_to(file)
        return target.stat().st_ino == file.stat().st_ino
    return False
