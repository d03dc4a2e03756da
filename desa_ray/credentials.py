"""Credentials come from the environment: an address that carries a password is refused, or shown without it.

Addresses travel into manifests, params, logs and process lists; what the client libraries read from the environment
(`MLFLOW_TRACKING_USERNAME`, `PGPASSWORD`, `AWS_SECRET_ACCESS_KEY`, ...) does not.
"""

import re
from collections.abc import Iterable

from desa_ray.errors import DesaError

# `user:password@`, `:password@` and `token@` before a host; a plain user name is no secret in database addresses.
_USERINFO = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^\s/?#@:]*)(?P<rest>:(?!\d+(?:[/?#]|$))[^\s?#]*)?@"
)
_QUERY = re.compile(r"(?i)([?&](?:password|passwd|token|secret|key|sig|signature|x-amz-[a-z-]+)=)[^&\s]+")
_NAMED = ("postgresql", "mysql", "mssql")
VARIABLES = {
    "http": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "https": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "postgresql": "PGUSER and PGPASSWORD",
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
}


def redacted(text: str) -> str:
    """`text` with everything that stands before an `@` host, and secrets of queries, replaced by `***`."""
    return _QUERY.sub(r"\1***", _USERINFO.sub(r"\g<scheme>***@", text))


def has_credentials(text: str) -> bool:
    """Whether an address anywhere in `text` carries a password, a token or a secret."""
    if _QUERY.search(text):
        return True
    found = _USERINFO.finditer(text)
    return any(match["rest"] is not None or not match["scheme"].startswith(_NAMED) for match in found)


def refuse_credentials(named: Iterable[tuple[str, str | None]]) -> None:
    """Raises DesaError, without the secret, for the first (name, address) that carries one."""
    for name, text in named:
        if text is not None and has_credentials(text):
            scheme = re.split(r"[+:]", text, maxsplit=1)[0].rpartition("=")[2].strip("'\"")
            variables = VARIABLES.get(scheme, "the variables that its library reads")
            raise DesaError(
                f"{redacted(text)} carries credentials, which would end in logs and manifests",
                where=name,
                mend=f"leave them out of the address and set {variables} in the environment",
            )
