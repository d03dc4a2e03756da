"""Explains failures between this machine and a tracking store: one line, and what to do about
it.
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from alembic.util import CommandError
from google.protobuf.json_format import ParseError
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from desa_ray.credentials import redacted
from desa_ray.errors import DesaError
from desa_ray.http_failures import Unanswered, chain, one_line

SAID = (
    DesaError,
    Unanswered,
    MlflowException,
    SQLAlchemyError,
    sqlite3.Error,
    CommandError,
    ImportError,
    OSError,
)
FULL = (
    "no space left on device",
    "database or disk is full",
    "disk quota exceeded",
    "507 insufficient storage",
)
SERVER = ("http://", "https://")
LOGIN = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment"
LATER = "use tracking.offline=true now, and `desa sync` once the server is up"
OFF = "use tracking.enabled=false"


class Nonsense(Exception):
    """The other side gave an answer that no tracking server gives."""


def told(error: Exception, *, theirs: bool = False) -> str:
    """What happened, on one line, without statements, addresses and passwords.

    What no server, network or disk says goes by its class: an answer that cannot be read, surely so
    where only the other side can be to blame (`theirs`), or a fault of ours.
    """
    if disk_full(error):
        return f"its disk is full: {_said(error)}"
    if theirs and not isinstance(error, (*SAID, ParseError, Nonsense)):
        return f"its answer cannot be read: {_said(error)}"
    return _said(error)


def _said(error: Exception) -> str:
    for cause in chain(error):
        if isinstance(cause, DesaError | Unanswered):
            return str(cause) if isinstance(cause, DesaError) else cause.what
    original = getattr(error, "orig", None) or error
    if isinstance(original, OSError) and original.strerror:
        return original.strerror
    said = next((line for line in str(original).splitlines() if line.strip()), "")
    if isinstance(original, ParseError | Nonsense):
        return f"its answer cannot be read: {one_line(said)}"
    name = type(original).__name__
    return (one_line(said) or name) if isinstance(error, SAID) else f"{name}: {one_line(said)}"


def hint(error: Exception, uri: str, otherwise: str = LATER) -> str:
    """How to fix it, for the tracking store `uri`; `otherwise` is what to do where that must wait,
    if anything.
    """
    first = _hint(error, uri)
    return f"{first}; or {otherwise}" if otherwise and first != LOGIN else first


def _hint(error: Exception, uri: str) -> str:
    causes = list(chain(error))
    message = " ".join(str(cause) for cause in causes).lower()
    if disk_full(error):
        whose = "the tracking server's disk" if uri.startswith(SERVER) else "its disk"
        return f"free space on {whose}"
    if "out-of-date database schema" in message:
        return (
            "it was created by another version of MLflow: back it up, then run `mlflow db upgrade"
            f" {redacted(uri)}`"
        )
    if "can't locate revision" in message:
        return "a newer version of MLflow created it: name another with tracking.uri"
    if (
        "error code 401" in message
        or "not authenticated" in message
        or "unauthenticated" in message
    ):
        return LOGIN
    if "invalid host header" in message:
        return (
            "start that server with --allowed-hosts and this name (MLFLOW_ALLOWED_HOSTS in"
            " infra/compose/.env), or use a name that it accepts"
        )
    if "error code 403" in message or "permission_denied" in message:
        return f"ask the server's owner for that permission, or {LOGIN}"
    known = next(
        (cause.hint for cause in causes if isinstance(cause, Unanswered) and cause.hint), None
    )
    return known or "start the server or fix the address"


def disk_full(error: BaseException) -> bool:
    """Whether a disk is full: this machine's, or the tracking server's, which says so in its
    answer.
    """
    for cause in chain(error):
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        said = str(cause)[:100_000].lower()
        if any(words in said for words in FULL):
            return True
    return False


@contextmanager
def answers(uri: str, failed: str, otherwise: str = "") -> Iterator[None]:
    """Makes one line of whatever MLflow's client raises: the other side may answer anything.

    Args:
        uri: the tracking store.
        failed: what could not be done, in front of why.
        otherwise: as for `hint`.

    Raises:
        DesaError: in place of any other exception.
    """
    try:
        yield
    except DesaError:
        raise
    except Exception as error:
        todo = hint(error, uri, otherwise)
        raise DesaError(
            f"{failed}: {told(error, theirs=True)}", where=redacted(uri), hint=todo
        ) from error
