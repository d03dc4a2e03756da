"""Addresses of SQLite files: built and read as SQLAlchemy does, so that every name of a folder
leads to its own file.

Pasted together, `?` would begin options, `%41` would be an `A`, and the database would lie
elsewhere. Reading and writing are each other's inverse for every path; addresses of plain paths
look as they always did.
"""

from pathlib import Path
from urllib.parse import quote, unquote

from desa_ray.errors import DesaError

SCHEMES = ("sqlite:///", "sqlite+pysqlite:///")
HINT = "write ? in a path as %3F, and options as ?timeout=30"


def sqlite_uri(file: Path) -> str:
    """The address of a SQLite file.

    Raises:
        DesaError: the path has no UTF-8 form, which neither SQLAlchemy nor MLflow can open.
    """
    try:
        path = quote(str(file), safe=" +/")
    except UnicodeEncodeError:
        hint = "choose a folder whose name is valid UTF-8 (DESA_HOME)"
        raise DesaError(
            "a database cannot be created there", where=repr(str(file)), hint=hint
        ) from None
    return f"{SCHEMES[0]}{path}"


def sqlite_file(uri: str) -> Path | None:
    """The file that a SQLite address leads to; None for other addresses, and for databases in
    memory.

    Raises:
        DesaError: what follows a `?` is not a list of options, so that a path was cut off there.
    """
    scheme = next((own for own in SCHEMES if uri.startswith(own)), None)
    if scheme is None:
        return None
    path, _, options = uri.removeprefix(scheme).partition("?")
    if options and ("/" in options or "=" not in options):
        raise DesaError(f"{uri} has unknown options", where="tracking.uri", hint=HINT)
    return Path(unquote(path)) if path and path != ":memory:" else None


def for_mlflow(uri: str) -> str:
    """The same address with its driver's name, where it is quoted.

    For `sqlite:///` MLflow makes the folder that the letters spell, `%3F` and all, before it opens
    the file.
    """
    plain, driven = SCHEMES
    return uri.replace(plain, driven, 1) if uri.startswith(plain) and "%" in uri else uri
