"""Which stored artifacts the runs of a tracking store refer to: the digests in their `key.` tags."""

from pathlib import Path

from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException

from desa_ray.errors import DesaError
from desa_ray.store.keys import DIGEST
from desa_ray.tracking.runs import Tracker

TAG = "key."
PAGE = 1000


def referred(uri: str, artifacts: Path) -> dict[str, dict[str, float]]:
    """Digest of a key -> runs that name it, by id, with their start (seconds since 1970); none from the trash.

    Args:
        uri: the tracking store; a sqlite file that is not there holds no runs, and is not made.
        artifacts: as `Tracker`.

    Raises:
        DesaError: nobody answers there, or a page of runs cannot be read.
    """
    path = uri.removeprefix("sqlite:///")
    if path != uri and not Path(path).exists():
        return {}
    found: dict[str, dict[str, float]] = {}
    client = Tracker(uri, artifacts).client
    try:
        for experiment in _experiments(client):
            token = None
            while True:
                page = client.search_runs([experiment], "", ViewType.ACTIVE_ONLY, PAGE, page_token=token)
                for run in page:
                    for name, value in run.data.tags.items():
                        if name.startswith(TAG) and DIGEST.fullmatch(value):
                            found.setdefault(value, {})[run.info.run_id] = run.info.start_time / 1000
                token = page.token
                if not token:
                    break
    except MlflowException as error:
        what = f"its runs cannot be read: {str(error).splitlines()[0]}"
        raise DesaError(what, where=uri, mend="try again when the server answers") from error
    return found


def _experiments(client) -> list[str]:
    ids, token = [], None
    while True:
        page = client.search_experiments(max_results=PAGE, page_token=token)
        ids += [experiment.experiment_id for experiment in page]
        token = page.token
        if not token:
            return ids
