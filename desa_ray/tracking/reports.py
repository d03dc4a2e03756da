"""Logs a written report as one run: its facts as params, its folder as artifacts."""

from collections.abc import Mapping
from pathlib import Path

from mlflow.exceptions import MlflowException

from desa_ray.errors import DesaError
from desa_ray.tracking.runs import Tracker


def log_report(
    tracker: Tracker, experiment: str, folder: Path, facts: Mapping[str, str], tags: Mapping[str, str]
) -> str:
    """Log the folder under the artifact path `report`; returns the run's id. A run not logged whole is marked FAILED.

    Args:
        experiment: name without the prefix `desa/`.
        facts: what the report is about; becomes params.
        tags: further tags, such as the hash of the records.
    """
    client = tracker.client
    try:
        run_id = client.create_run(tracker.experiment(experiment), run_name="report", tags=dict(tags)).info.run_id
        try:
            for name, value in facts.items():
                client.log_param(run_id, name, value)
            client.log_artifacts(run_id, str(folder), "report")
        except BaseException:
            client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id, "FINISHED")
    except MlflowException as error:
        what = f"the report is written, but could not be logged: {str(error).splitlines()[0]}"
        raise DesaError(what, where=tracker.uri, mend="start the server, or use tracking.enabled=false") from error
    return run_id
