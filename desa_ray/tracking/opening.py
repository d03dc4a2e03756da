"""Opens a tracking store, or says in one line why it cannot: MLflow itself tries for minutes and
fails in many different ways.

What can be known without MLflow is asked first: whether a server answers, whether a database's
driver is installed and its server there, and whether a SQLite file is a whole, writable MLflow
database.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from mlflow.tracking import MlflowClient
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from desa_ray.credentials import redacted
from desa_ray.errors import DesaError
from desa_ray.tracking import transport
from desa_ray.tracking.failures import LATER, SERVER, disk_full, hint, told
from desa_ray.tracking.sqlite_uri import for_mlflow, sqlite_file

PROBE_TIMEOUT_S = 10  # of a database's first answer
LOCK_TIMEOUT_S = (
    30.0  # for which another program may hold a SQLite file; MLflow's own writes take far less
)
KNOWN = "sqlite:///PATH, http(s)://HOST:PORT, or a database such as postgresql://HOST/NAME"
ELSEWHERE = "choose another with tracking.uri, or use tracking.enabled=false"


def open_client(uri: str, otherwise: str = LATER) -> MlflowClient:
    """A client of the tracking store `uri`, which has answered once. A missing SQLite file is made
    by MLflow.

    Args:
        uri: its address.
        otherwise: what a user can do if it is not available now.

    Raises:
        DesaError: no such store, not one of MLflow's, damaged, locked, not writable, or its driver
            is not installed.
    """
    try:
        if uri.startswith(SERVER):
            transport.trust(uri)
        else:
            _check_database(uri)
        client = MlflowClient(tracking_uri=for_mlflow(uri))
        client.search_experiments(max_results=1)
    except DesaError:
        raise
    except Exception as error:
        # A server may answer anything, and MLflow's client then raise anything
        raise _refused(
            uri, told(error, theirs=uri.startswith(SERVER)), hint(error, uri, otherwise)
        ) from error
    return client


def artifact_folder(folder: Path) -> Path:
    """The folder where runs of a local store keep their artifacts, made if missing; DesaError where
    it cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be created: {error.strerror or error}"
        todo = (
            "free space on that disk"
            if disk_full(error)
            else "MLflow keeps artifacts there: move or delete the file"
        )
        raise DesaError(what, where=str(folder), hint=todo) from error
    return folder


def _refused(uri: str, what: str, hint: str) -> DesaError:
    return DesaError(
        f"no tracking store at {redacted(uri)}: {what}", where="tracking.uri", hint=hint
    )


def _check_database(uri: str) -> None:
    try:
        url = make_url(uri)
        dialect = url.get_dialect()
    except (ArgumentError, NoSuchModuleError):
        raise _refused(uri, "not an address of a tracking store", f"use {KNOWN}") from None
    if url.get_backend_name() == "sqlite":
        _check_sqlite(uri)
        return
    driver = dialect.import_dbapi.__module__.rpartition(".")[2]
    try:
        dialect.import_dbapi()
    except ImportError as error:
        name = error.name or driver
        hint = (
            f"pip install {'psycopg[binary]' if name == 'psycopg' else name}, or use an MLflow"
            " server"
        )
        raise _refused(uri, f"the database driver {name} is not installed", hint) from None
    # Once, where MLflow would try ten times with growing pauses.
    engine = create_engine(url, connect_args={"connect_timeout": PROBE_TIMEOUT_S})
    try:
        engine.connect().close()
    finally:
        engine.dispose()


def _check_sqlite(uri: str) -> None:
    file = sqlite_file(uri)
    if file is None:
        raise _refused(
            uri, "a database in memory would be lost with the run", "name a file: sqlite:///PATH"
        )
    if file.is_dir():
        raise _refused(uri, "it is a folder", "name a file in it")
    if not file.parent.is_dir():
        raise _refused(uri, f"there is no folder {file.parent}", "create it, or fix the address")
    if file.exists() and not file.is_file():
        raise _refused(uri, "it is not a plain file", ELSEWHERE)
    try:
        with closing(
            sqlite3.connect(file, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        ) as database:
            database.execute("BEGIN IMMEDIATE")
            verdict = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            tables = {
                name
                for (name,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            }
            database.execute("ROLLBACK")
    except sqlite3.Error as error:
        verdict, tables = str(error), set()
    if "locked" in verdict:
        what = f"another program has kept it locked for more than {LOCK_TIMEOUT_S:g} s"
        raise _refused(uri, what, f"end that program; or {ELSEWHERE}")
    if "full" in verdict:
        raise _refused(
            uri, f"its disk is full: {verdict}", f"free space on the disk of {file}; or {ELSEWHERE}"
        )
    if verdict in (
        "unable to open database file",
        "attempt to write a readonly database",
        "disk I/O error",
    ):
        raise _refused(uri, f"{verdict}: it cannot be written", f"grant permission; or {ELSEWHERE}")
    if verdict != "ok":
        what = f"it is damaged or not a database: {verdict.splitlines()[-1]}"
        raise _refused(uri, what, f"move it elsewhere, and a new one is created; or {ELSEWHERE}")
    if tables and not tables & {"experiments", "alembic_version"}:
        raise _refused(uri, "it is the database of another program", ELSEWHERE)
