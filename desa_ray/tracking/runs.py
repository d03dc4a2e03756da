"""A connection to an MLflow tracking store, checked when made. Only the driver has one."""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock
from mlflow.exceptions import MlflowException

from desa_ray.errors import DesaError
from desa_ray.tracking.opening import artifact_folder, open_client

logging.getLogger("mlflow").setLevel(logging.WARNING)  # database migrations are not news

LOCK_TIMEOUT_S = 300.0


@contextmanager
def tracker_lock(uri: str, artifacts: Path) -> Iterator[None]:
    """One process of this machine at a time: MLflow migrates a new database, and looks before it makes, unguarded.

    The lock of a sqlite store lies beside its file, so that it holds for every home that uses it.
    """
    path = Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else artifacts
    with ExitStack() as stack:
        # A place where no lock can be made takes no database either: opening it says so.
        with suppress(OSError, NotImplementedError):
            stack.enter_context(FileLock(path.with_name(f".{path.name}.lock"), timeout=LOCK_TIMEOUT_S))
        yield


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
            if found is not None and found.lifecycle_stage == "active":
                return found.experiment_id
            if found is not None:
                break
            try:
                place = (self.artifacts / name).resolve().as_uri() if self.local else None
                return self.client.create_experiment(full, artifact_location=place)
            except MlflowException:  # somebody else made it in between
                time.sleep(0.2)
        raise DesaError(
            f"experiment {full} can neither be found nor made", where="experiment", mend="undelete it in MLflow"
        )
