"""Where the last runs of a home were logged: `last_tracking.json`, read without MLflow."""

import json
from pathlib import Path

from desa_ray.errors import DesaError

FILE = "last_tracking.json"


def last_uri(home: Path) -> str:
    """The tracking store that the last run in `home` logged to.

    Raises:
        DesaError: nothing has been logged there, or the note of it is damaged.
    """
    file = home / FILE
    try:
        uri = json.loads(file.read_text(encoding="utf-8"))["uri"]
        if not isinstance(uri, str):
            raise TypeError
    except FileNotFoundError:
        hint = "run `desa run` first, or set DESA_HOME, or tracking.uri"
        raise DesaError("no run has been logged here", where=str(home), hint=hint) from None
    except OSError as error:
        raise DesaError(
            f"cannot be read: {error.strerror or error}", where=str(file), hint="fix or delete it"
        ) from None
    except (ValueError, LookupError, TypeError, RecursionError):
        hint = "delete it: the next run writes it anew; or name the store with tracking.uri"
        raise DesaError(
            "is damaged: not the JSON that a run writes", where=str(file), hint=hint
        ) from None
    return uri
