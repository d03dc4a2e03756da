"""Sends one document to MLflow, so that sending it again changes nothing.

MLflow chooses run ids itself; what makes a run *this* run are its tags: a parent is found by its sweep, a child by
sweep and cell. A child that ended well with the same records is left as it is; one that did not (its driver was killed,
or the cell failed) is taken up again, so a resumed sweep has one child a cell.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.tracking import MlflowClient

from desa_ray.tracking.entries import ATTEMPT, CELL, PARENT, RECORDS, SWEEP
from desa_ray.tracking.runs import Tracker

BATCH = 90


class Delivery:
    """Delivers the documents of one sweep to one tracking store.

    Args:
        tracker: the open tracking store.
        experiment: name without the prefix `desa/`.
        sweep: hex digest of what the sweep is.
        attempt: this run of it.
    """

    def __init__(self, tracker: Tracker, experiment: str, sweep: str, attempt: str):
        self.client: MlflowClient = tracker.client
        self.sweep, self.attempt = sweep, attempt
        self.experiment_id = tracker.experiment(experiment)
        self.parent: str | None = None

    def send(self, document: Mapping[str, Any], artifacts: Path) -> str:
        """Deliver a document whose artifacts lie in a folder; returns the id of the run that holds it."""
        return {"begin": self._begin, "cell": self._cell, "metrics": self._measured, "end": self._end}[
            document["kind"]
        ](document, artifacts)

    def kill(self) -> None:
        """Mark what this attempt left RUNNING as KILLED; a later attempt's runs are not touched."""
        for run in self._search({ATTEMPT: self.attempt}):
            if run.info.status == "RUNNING":
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _begin(self, document: Mapping[str, Any], _: Path) -> str:
        found = [run for run in self._search({SWEEP: self.sweep}) if PARENT not in run.data.tags]
        own = {**document["tags"], SWEEP: self.sweep, ATTEMPT: self.attempt}
        if found:
            self.parent = found[0].info.run_id
            for name, value in own.items():
                self.client.set_tag(self.parent, name, value)
            self.client.update_run(self.parent, status="RUNNING")
            known = found[0].data.params
        else:
            run = self.client.create_run(
                self.experiment_id, start_time=document["started_ms"], tags=own, run_name=document["name"]
            )
            self.parent, known = run.info.run_id, {}
        # Params cannot change: what another version of the platform said of the same sweep stands.
        fresh = {name: value for name, value in document["params"].items() if name not in known}
        self._log(self.parent, fresh, {}, {}, document["started_ms"])
        return self.parent

    def _cell(self, document: Mapping[str, Any], artifacts: Path) -> str:
        identity = {SWEEP: self.sweep, CELL: document["cell"]}
        if document["child"]:
            identity[PARENT] = self._parent()
        records = document["tags"].get(RECORDS)
        known = self._search(identity)
        for run in known:
            if run.info.status == "FINISHED" and records in (None, run.data.tags.get(RECORDS)):
                return run.info.run_id
        own = {**identity, ATTEMPT: self.attempt}
        # Finished with other records: the code computes something else now, which is another run.
        open_runs = [run for run in known if run.data.tags.get(RECORDS) in (None, records)]
        if open_runs:
            run_id = open_runs[0].info.run_id
            self.client.update_run(run_id, status="RUNNING")
        else:
            run_id = self.client.create_run(
                self.experiment_id, start_time=document["started_ms"], tags=own, run_name=document["name"]
            ).info.run_id
        self._log(run_id, document["params"], document["metrics"], {**document["tags"], **own}, document["ended_ms"])
        for name in document["artifacts"]:
            self.client.log_artifact(run_id, str(artifacts / name))
        if open_runs and document["status"] == "FINISHED" and "desa.error" in open_runs[0].data.tags:
            self.client.delete_tag(run_id, "desa.error")
        self.client.set_terminated(run_id, document["status"], end_time=document["ended_ms"])
        return run_id

    def _measured(self, document: Mapping[str, Any], _: Path) -> str:
        parent = self._parent()
        metrics = [Metric(name, value, time_ms, step) for name, value, time_ms, step in document["metrics"]]
        for start in range(0, len(metrics), BATCH):
            self.client.log_batch(parent, metrics[start : start + BATCH])
        return parent

    def _end(self, document: Mapping[str, Any], artifacts: Path) -> str:
        parent = self._parent()
        self._log(parent, {}, document["metrics"], document["tags"], document["ended_ms"])
        for name in document["artifacts"]:
            self.client.log_artifact(parent, str(artifacts / name))
        self.client.set_terminated(parent, document["status"], end_time=document["ended_ms"])
        return parent

    def _parent(self) -> str:
        if self.parent is None:
            found = [run for run in self._search({SWEEP: self.sweep}) if PARENT not in run.data.tags]
            # Removed by hand meanwhile, perhaps: the sweep gets a parent again rather than losing its cells.
            run = found[0] if found else self.client.create_run(self.experiment_id, tags={SWEEP: self.sweep})
            self.parent = run.info.run_id
        return self.parent

    def _search(self, identity: Mapping[str, str]) -> list[Run]:
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in identity.items())
        found, token = [], None
        while True:
            page = self.client.search_runs(
                [self.experiment_id], wanted, order_by=["attributes.start_time ASC"], page_token=token
            )
            found += page
            token = page.token
            if not token:
                return found

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
