"""Inspects a tracking store without changing it: whether it exists, and whether its database fits
this version of MLflow.
"""

import os
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.store.db import utils
from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError

from desa_ray.credentials import redacted
from desa_ray.errors import DesaError
from desa_ray.tracking.failures import answers
from desa_ray.tracking.runs import Tracker
from desa_ray.tracking.sqlite_uri import sqlite_file


def look_at_tracking(uri: str) -> str:
    """What is at `uri`, in a few words.

    Raises:
        DesaError: nobody answers, access is refused, or the database is not migrated.
    """
    if uri.startswith(("http://", "https://")):
        tracker = Tracker(uri, Path())
        return f"a server answers at {redacted(uri)} and lists {_experiments(tracker)}"
    path = sqlite_file(uri)
    if path is not None and not path.exists():
        return f"no database yet: the first run creates {path}"
    return f"{redacted(uri)} has the schema of MLflow {mlflow.__version__} ({_revision(uri)})"


def _experiments(tracker: Tracker) -> str:
    with answers(tracker.uri, "its experiments cannot be listed"):
        count = len(tracker.client.search_experiments(max_results=1000))
    return f"{count} experiments"


def _revision(uri: str) -> str:
    try:
        engine = utils.create_sqlalchemy_engine(uri)
        try:
            tables = inspect(engine).get_table_names()
            found = utils._get_schema_version(engine) if tables else None
        finally:
            engine.dispose()
        head = utils._get_latest_schema_revision()
    except (SQLAlchemyError, MlflowException, ImportError) as error:
        what = f"cannot be opened: {redacted(str(error).splitlines()[0])}"
        raise DesaError(
            what, where="tracking.uri", hint="check the address and the credentials"
        ) from error
    if tables and found != head:
        what = f"its schema is {found}, MLflow {mlflow.__version__} needs {head}"
        hint = f"back it up, then run: mlflow db upgrade {redacted(uri)}"
        raise DesaError(what, where="tracking.uri", hint=hint)
    return f"schema {head}" if tables else "empty: the first run fills it"
