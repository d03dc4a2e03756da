"""A connection to an MLflow tracking store, checked when made. Only the driver has one."""

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from desa_ray.errors import DesaError
from desa_ray.http_failures import one_line
from desa_ray.locks import TRACKING, held
from desa_ray.tracking.failures import LATER, Nonsense, answers
from desa_ray.tracking.opening import artifact_folder, open_client
from desa_ray.tracking.sqlite_uri import sqlite_file

logging.getLogger("mlflow").setLevel(logging.WARNING)  # database migrations are not news

# The kind of experiment whose page opens on its table of runs; others open on GenAI traces.
KIND, CLASSIC = "mlflow.experimentKind", "custom_model_development"
ID = re.compile(r"[a-zA-Z0-9][\w-]{0,255}", re.ASCII)


@contextmanager
def tracker_lock(uri: str, artifacts: Path) -> Iterator[None]:
    """One process of this machine at a time: MLflow migrates a new database, and looks before it
    makes, unguarded.

    The lock of a sqlite store is next to its file, so that it holds for every home that uses it.

    Raises:
        DesaError: another process had it for too long, or this file system does not support locks.
    """
    path = sqlite_file(uri) or artifacts
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        yield  # a place that takes no lock takes no database either: opening it says so
        return
    with held(TRACKING, path.with_name(f".{path.name}.lock")):
        yield


def sound_id(found: object) -> str:
    """An id as MLflow gives them; raises Nonsense for anything else that a server answers."""
    if isinstance(found, str) and ID.fullmatch(found):
        return found
    raise Nonsense(f"{one_line(str(found))!r} is not an id")


class Tracker:
    """A connection to one tracking store, checked when made."""

    def __init__(self, uri: str, artifacts: Path, otherwise: str = LATER):
        """Connect to `uri`; runs of a sqlite store keep their artifacts under the folder
        `artifacts`.
        """
        self.uri, self.artifacts, self.otherwise = uri, artifacts, otherwise
        self.local = sqlite_file(uri) is not None
        if self.local:
            artifact_folder(artifacts)
        self.client = open_client(uri, otherwise)

    def experiment(self, name: str) -> str:
        """Id of the experiment `desa/<name>`, made if missing.

        Raises:
            DesaError: it was deleted, or the store does not answer as one.
        """
        full = f"desa/{name}"
        place = (self.artifacts / name).resolve().as_uri() if self.local else None
        with answers(
            self.uri, f"experiment {full} can neither be found nor created", self.otherwise
        ):
            for wait_s in (0.2, 0.2, 0.0):
                found = self._found(full)
                if found is not None:
                    return found
                try:
                    made = self.client.create_experiment(full, place, tags={KIND: CLASSIC})
                    return sound_id(made)
                # somebody else made it in between, or the answer was lost: it is looked for again
                except Exception:
                    if not wait_s:
                        raise
                    time.sleep(wait_s)
        raise AssertionError

    def _found(self, full: str) -> str | None:
        found = self.client.get_experiment_by_name(full)
        if found is None:
            return None
        if found.name != full:
            raise Nonsense(f"asked for {full}, the answer is about {one_line(str(found.name))!r}")
        if found.lifecycle_stage != "active":
            raise DesaError(
                f"{full} is {one_line(found.lifecycle_stage)}",
                where="experiment",
                hint="undelete it in MLflow",
            )
        experiment_id = sound_id(found.experiment_id)
        # Those of earlier versions have none, or what the UI guessed. Who may not write reads on.
        kind = (found.tags or {}).get(KIND)
        if kind is None or kind.endswith("_inferred") or kind == "no_inferred_type":
            with suppress(Exception):
                self.client.set_experiment_tag(experiment_id, KIND, CLASSIC)
        return experiment_id
