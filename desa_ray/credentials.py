"""Credentials come from the environment: an address that contains a password is refused, or shown
without it.

Addresses travel into manifests, params, logs and process lists; what the client libraries read from
the environment (`MLFLOW_TRACKING_USERNAME`, `PGPASSWORD`, `AWS_SECRET_ACCESS_KEY`, ...) does not.
"""

import re
from collections.abc import Iterable

from desa_ray.errors import DesaError
from desa_ray.redaction import has_credentials, redacted

__all__ = ["has_credentials", "redacted", "refuse_credentials"]

VARIABLES = {
    "http": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "https": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "postgresql": "PGUSER and PGPASSWORD",
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
}
# Names of what is an address
_ADDRESSED = re.compile(r"(?i)(url|uri|address|root|--store|--tracking|--cluster)$")


def refuse_credentials(named: Iterable[tuple[str, str | None]]) -> None:
    """Raises DesaError, without the secret, for the first (name, address) that carries one."""
    for name, text in named:
        if text is not None and has_credentials(text, bare=_ADDRESSED.search(name) is not None):
            joined = re.sub(r"\s+", "", text)
            scheme = (
                re.split(r"[+:]", joined, maxsplit=1)[0].rpartition("=")[2].strip("'\"").lower()
            )
            variables = VARIABLES.get(scheme, "the variables that its library reads")
            raise DesaError(
                f"{redacted(joined)} holds credentials, which would end up in logs and manifests",
                where=name,
                hint=f"leave them out of the address and set {variables} in the environment",
            )
