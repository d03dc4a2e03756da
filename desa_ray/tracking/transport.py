"""How MLflow's client communicates: over the platform's HTTP client, once per call, with the key
for the tracking server only.

MLflow itself tries everything again, `runs/create` too: an answer lost on the way then makes a
second run. Here only what reads is tried again; whatever writes fails at once, and the outbox looks
before it repeats (`delivery.py`).
"""

import os
import time
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import requests
from mlflow.utils import request_utils

from desa_ray.http_client import BoundedAdapter, Bounds, Session
from desa_ray.http_failures import GATEWAYS, Unanswered, one_line, through_proxy

TIMEOUT_S = 30.0  # of one call, where MLFLOW_HTTP_REQUEST_TIMEOUT says nothing else
BODY_BYTES = 64 << 20
RATE = 32 << 10  # bytes per second: an artifact may take longer the larger it is
READ_TRIES, READ_WAIT_S = 3, 0.3
SAYS_LITTLE = 64 << 10  # of a refusal, that is read

_servers: set[tuple[str, str | None, int | None]] = set()


def trust(uri: str) -> None:
    """MLflow's user, password or token may go to this server from now on."""
    _servers.add(_server(uri))


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


class _Adapter(BoundedAdapter):
    """One call of MLflow's.

    Raises (from `send`):
        Unanswered: no whole answer, or one that is not the tracking server's own.
    """

    def send(
        self, request: requests.PreparedRequest, *arguments: Any, **options: Any
    ) -> requests.Response:
        url = request.url or ""
        # The server names the places of artifacts, and may name another host.
        if _server(url) not in _servers:
            request.headers.pop("Authorization", None)
        reads = request.method == "GET" or urlsplit(url).path.endswith("/search")
        tries = READ_TRIES if reads else 1
        while True:
            tries -= 1
            try:
                return _own(super().send(request, *arguments, **options))
            except Unanswered as failure:
                if not tries or failure.late or failure.nobody or failure.final:
                    raise
            time.sleep(READ_WAIT_S)


def _own(response: requests.Response) -> requests.Response:
    """The answer, if it can be the tracking server's."""
    code, place = response.status_code, response.headers.get("Location")
    if 300 <= code < 400:
        to = f", sending to {one_line(place)}" if place else ""
        raise Unanswered(
            f"it answered {code}{to}", "set tracking.uri to the address it moved to", final=True
        )
    if code >= 400:
        response.raw.seek(SAYS_LITTLE)
        response.raw.truncate()
        response.raw.seek(0)
    if code in (*GATEWAYS, 507):
        what = (
            f"it answered {code}"
            f" {one_line(response.reason or '')}{through_proxy(response.url or '')}"
        )
        raise Unanswered(f"{what}: {one_line(response.text)}".rstrip(" :"), final=True)
    if "/api/2.0/mlflow/" in (response.url or "") and not response.content.strip():
        # MLflow's client takes nothing for an empty object: no runs, no experiments, all is well.
        raise Unanswered(
            f"it answered {code} with an empty body", "is this an MLflow server?", final=True
        )
    return response


@lru_cache(maxsize=1)
def _session(_pid: int) -> Session:
    opened = Session(Bounds(TIMEOUT_S, BODY_BYTES, rate=RATE))
    for scheme in ("http://", "https://"):
        opened.mount(scheme, _Adapter(Bounds(TIMEOUT_S, BODY_BYTES, rate=RATE)))
    return opened


def _mlflows_session(*_: Any, **__: Any) -> Session:
    """In place of MLflow's own, which knows its retries and nothing of limits."""
    return _session(os.getpid())


def install() -> None:
    """From here on MLflow's client talks like this."""
    # Another MLflow than the one that is pinned
    assert hasattr(request_utils, "_cached_get_request_session")
    request_utils._cached_get_request_session = _mlflows_session


install()
