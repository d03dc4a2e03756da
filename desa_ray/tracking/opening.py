"""Opens a tracking store, or says in one line why not: MLflow itself tries for minutes and fails in many languages.

What can be known without MLflow is asked first: whether a server answers, whether a database's driver is installed and
its server there, and whether a SQLite file is a whole, writable MLflow database.
"""

import os
import sqlite3
import ssl
import urllib.error
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

from alembic.util import CommandError
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy import create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from desa_ray.credentials import redacted
from desa_ray.errors import DesaError

PROBE_TIMEOUT_S = 10  # of a server's first answer
LOCK_TIMEOUT_S = 30.0  # for which another program may hold a SQLite file; MLflow's own writes take far less
KNOWN = "sqlite:///PATH, http(s)://HOST:PORT, or a database such as postgresql://HOST/NAME"
ELSEWHERE = "name another with tracking.uri, or use tracking.enabled=false"
FAILURES = (MlflowException, SQLAlchemyError, sqlite3.Error, CommandError, ImportError, OSError)


def open_client(uri: str) -> MlflowClient:
    """A client of the tracking store `uri`, which has answered once. A missing SQLite file is made by MLflow.

    Raises:
        DesaError: no such store, not one of MLflow's, damaged, locked, not writable, or its driver is not installed.
    """
    try:
        if uri.startswith(("http://", "https://")):
            with suppress(urllib.error.HTTPError):  # somebody is there, if only to refuse (the scheme is checked)
                urllib.request.urlopen(uri, timeout=PROBE_TIMEOUT_S, context=_trust(uri)).close()  # noqa: S310
        else:
            _check_database(uri)
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
    except FAILURES as error:
        raise _refused(uri, _first_line(error), _mend(str(error), uri)) from error
    return client


def _trust(uri: str) -> ssl.SSLContext | None:
    """The certificates that MLflow's own client trusts, by the same variables."""
    if not uri.startswith("https://"):
        return None
    context = ssl.create_default_context(
        cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or os.environ.get("REQUESTS_CA_BUNDLE")
    )
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() == "true":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def artifact_folder(folder: Path) -> Path:
    """The folder where runs of a local store keep their artifacts, made if missing; DesaError where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be made: {error.strerror or error}"
        raise DesaError(what, where=str(folder), mend="MLflow keeps artifacts there: move what stands there") from error
    return folder


def _refused(uri: str, what: str, mend: str) -> DesaError:
    return DesaError(f"no tracking store at {redacted(uri)}: {what}", where="tracking.uri", mend=mend)


def _first_line(error: Exception) -> str:
    """What a library said, on one line and without statements, addresses and passwords."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    original = getattr(reason, "orig", None) or reason
    if isinstance(original, OSError) and original.strerror:
        return original.strerror
    lines = [line.strip() for line in str(original).splitlines() if line.strip()]
    return redacted(lines[0] if lines else type(original).__name__)


def _mend(message: str, uri: str) -> str:
    if "out-of-date database schema" in message:
        return f"another version of MLflow made it: back it up, then run `mlflow db upgrade {redacted(uri)}`"
    if "Can't locate revision" in message:
        return f"a newer version of MLflow made it; {ELSEWHERE}"
    if "401" in message or "not authenticated" in message.lower():
        return "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment"
    return "start the server, mend the address, or use tracking.enabled=false"


def _check_database(uri: str) -> None:
    try:
        url = make_url(uri)
        dialect = url.get_dialect()
    except (ArgumentError, NoSuchModuleError):
        raise _refused(uri, "not an address of a tracking store", f"use {KNOWN}") from None
    if url.get_backend_name() == "sqlite":
        _check_sqlite(uri, url)
        return
    driver = dialect.import_dbapi.__module__.rpartition(".")[2]
    try:
        dialect.import_dbapi()
    except ImportError as error:
        name = error.name or driver
        mend = f"pip install {'psycopg[binary]' if name == 'psycopg' else name}, or go through an MLflow server"
        raise _refused(uri, f"the database driver {name} is not installed", mend) from None
    # Once, where MLflow would try ten times with growing pauses.
    engine = create_engine(url, connect_args={"connect_timeout": PROBE_TIMEOUT_S})
    try:
        engine.connect().close()
    finally:
        engine.dispose()


def _check_sqlite(uri: str, url: URL) -> None:
    if not url.database or url.database == ":memory:":
        raise _refused(uri, "a database in memory would be lost with the run", "name a file: sqlite:///PATH")
    file = Path(url.database)
    if file.is_dir():
        raise _refused(uri, "it is a folder", "name a file in it")
    if not file.parent.is_dir():
        raise _refused(uri, f"there is no folder {file.parent}", "make it, or mend the address")
    if file.exists() and not file.is_file():
        raise _refused(uri, "it is not a plain file", ELSEWHERE)
    try:
        with closing(sqlite3.connect(file, timeout=LOCK_TIMEOUT_S, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            verdict = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            database.execute("ROLLBACK")
    except sqlite3.Error as error:
        verdict, tables = str(error), set()
    if "locked" in verdict:
        what = f"another program holds it locked for more than {LOCK_TIMEOUT_S:g} s"
        raise _refused(uri, what, f"end that program; or {ELSEWHERE}")
    if verdict in ("unable to open database file", "attempt to write a readonly database", "disk I/O error"):
        raise _refused(uri, f"{verdict}: it cannot be written", f"give the permission; or {ELSEWHERE}")
    if verdict != "ok":
        what = f"it is damaged or no database: {verdict.splitlines()[-1]}"
        raise _refused(uri, what, f"move it away, and a new one is made; or {ELSEWHERE}")
    if tables and not tables & {"experiments", "alembic_version"}:
        raise _refused(uri, "it is another program's database", ELSEWHERE)
