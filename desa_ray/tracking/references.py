"""Which stored artifacts the runs of a tracking store refer to: the digests in their
`key.` tags.
"""

from collections.abc import Iterator
from pathlib import Path

from mlflow.entities import Run, ViewType
from mlflow.tracking import MlflowClient

from desa_ray.store.keys import DIGEST
from desa_ray.tracking.failures import SERVER, Nonsense, answers
from desa_ray.tracking.paging import paged
from desa_ray.tracking.runs import Tracker, sound_id
from desa_ray.tracking.sqlite_uri import sqlite_file

TAG = "key."
PAGE = 1000


def referred(uri: str, artifacts: Path) -> dict[str, dict[str, float]]:
    """Digest of a key -> runs that name it, by id, with their start (seconds since 1970); none from
    the trash.

    Args:
        uri: the tracking store; a sqlite file that is not there holds no runs, and is not made.
        artifacts: as `Tracker`.

    Raises:
        DesaError: nobody answers there, or a page of runs cannot be read.
    """
    path = sqlite_file(uri)
    if path is not None and not path.exists():
        return {}
    found: dict[str, dict[str, float]] = {}
    client = Tracker(uri, artifacts, otherwise="").client
    with answers(uri, "its runs cannot be read"):
        experiments = list(
            paged(lambda token: client.search_experiments(max_results=PAGE, page_token=token))
        )
        if uri.startswith(SERVER) and not experiments:
            # MLflow makes one for itself. What is referred to by nothing would be removed from the
            # artifact store.
            raise Nonsense("it lists no experiment at all")
        for experiment in experiments:
            for run in _runs(client, sound_id(experiment.experiment_id)):
                for name, value in run.data.tags.items():
                    if name.startswith(TAG) and DIGEST.fullmatch(value):
                        found.setdefault(value, {})[sound_id(run.info.run_id)] = (
                            run.info.start_time / 1000
                        )
    return found


def _runs(client: MlflowClient, experiment: str) -> Iterator[Run]:
    only = ViewType.ACTIVE_ONLY
    return paged(lambda token: client.search_runs([experiment], "", only, PAGE, page_token=token))
