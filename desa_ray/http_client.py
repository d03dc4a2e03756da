"""The HTTP client of the platform: `requests`, with one limit on the whole of each exchange and
without retries of its own.

An exchange is one request and its whole answer on a connection of its own: time and size are
limited whatever the server does (`exchange.py`), nothing is sent twice, no redirect is followed, no
key goes to another host. Certificates are checked; proxies are those of the environment,
and are named when they are to blame.
"""

import io
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from desa_ray.exchange import CallStopped, Exchange, Stop, current, run
from desa_ray.http_failures import Unanswered, explained

BLOCK = 1 << 16
IN_MEMORY = 8 << 20  # of a file that is being fetched
LOOPBACK = ("localhost", "127.0.0.1", "::1")

logging.getLogger("urllib3").setLevel(logging.ERROR)  # odd headers of foreign servers are no news


@dataclass(frozen=True)
class Bounds:
    """What one exchange may take.

    Attributes:
        seconds: for all of it, with whatever comes before: name, connection, handshake.
        body_bytes: of an answer, unpacked.
        file_bytes: of an answer that is fetched as a file (`stream=True`).
        rate: bytes per second that buy more time while they are sent, or received as a file; None
            for none.
        stop: ends it early.
        sink: takes the blocks of a file as they come, each with the size that was announced, if one
            was; the answer's body is empty then.
    """

    seconds: float
    body_bytes: int = 32 << 20
    file_bytes: int = 4 << 30
    rate: float | None = None
    stop: Stop | None = None
    sink: Callable[[bytes, int | None], object] | None = None


class _Watched(HTTPConnection):
    """A connection that its exchange can close, and that reports to it what was sent."""

    def _new_conn(self):
        opened = super()._new_conn()
        exchange = current()
        if exchange is not None:
            try:
                exchange.hold(opened)
            except BaseException:
                opened.close()
                raise
        return opened

    def send(self, data: Any) -> None:
        exchange = current()
        if exchange is None or not isinstance(data, bytes | bytearray | memoryview):
            super().send(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), BLOCK):
            super().send(view[start : start + BLOCK])
            exchange.moved(min(BLOCK, len(view) - start))


class _WatchedTls(_Watched, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Watched  # pyright: ignore[reportAssignmentType]


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedTls  # pyright: ignore[reportAssignmentType]


class BoundedAdapter(HTTPAdapter):
    """Sends requests of a session within bounds.

    Raises (from `send`):
        Unanswered: there is no whole answer, and why.
    """

    def __init__(self, bounds: Bounds):
        self.bounds = bounds
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
        return manager

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        bounds = self.bounds
        seconds = float(timeout) if isinstance(timeout, int | float) else bounds.seconds
        # A connection kept open may be closed by the server just when the next request is sent,
        # which then is lost.
        request.headers["Connection"] = "close"
        # Of connecting, and of a read: whoever is left behind in one has its socket closed
        inner = (
            seconds,
            None,
        )

        def exchange() -> requests.Response:
            response = super(BoundedAdapter, self).send(
                request, True, inner, verify, cert, dict(proxies or {})
            )
            with closing(response.raw) as raw:
                # Whoever reads the answer later reads what is here already.
                response.raw = _body(raw, bounds, as_file=stream and response.status_code == 200)
            # Where no charset is named, `text` would guess one for as long as that takes.
            response.encoding = "utf-8"
            return response

        try:
            return run(exchange, seconds, bounds.rate, bounds.stop)
        except (Unanswered, CallStopped):
            raise
        # ValueError: what urllib3 and http.client make of lengths, names and headers that are none.
        except (OSError, HTTPError, ValueError, ArithmeticError) as error:
            url = request.url or ""
            raise explained(error, url, select_proxy(url, dict(proxies or {})), seconds) from error


def _body(raw: BaseHTTPResponse, bounds: Bounds, *, as_file: bool) -> IO[bytes]:
    """The unpacked answer, at its beginning; a large file is on the disk."""
    exchange = current() or Exchange(bounds.seconds)
    body: Any = tempfile.SpooledTemporaryFile(IN_MEMORY) if as_file else io.BytesIO()  # noqa: SIM115 (the caller's)
    limit, size = bounds.file_bytes if as_file else bounds.body_bytes, 0
    announced = getattr(raw, "length_remaining", None)
    for block in raw.stream(BLOCK, decode_content=True):
        size += len(block)
        if size > limit:
            raise Unanswered(
                f"the answer is longer than {limit} bytes", "is this the right address?"
            )
        if as_file:
            exchange.moved(len(block))
        if as_file and bounds.sink is not None:
            bounds.sink(block, announced)
        else:
            body.write(block)
    body.seek(0)
    return body


class Session(requests.Session):
    """A session whose exchanges stay within bounds, and that follows redirects only
    where told to.
    """

    def __init__(self, bounds: Bounds, *, follow: bool = False):
        super().__init__()
        self.follow = follow
        for scheme in ("http://", "https://"):
            self.mount(scheme, BoundedAdapter(bounds))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        return super().get_redirect_target(resp) if self.follow else None


def session(base_url: str, bounds: Bounds, *, follow: bool = False) -> Session:
    """A session for one server: certificates as this machine trusts them, no password out of
    ~/.netrc.
    """
    opened = Session(bounds, follow=follow)
    opened.auth = lambda request: request
    opened.verify = _trusted()
    # No proxy can reach this machine's own loopback, whatever the environment says.
    opened.trust_env = not near(base_url)
    return opened


def near(url: str) -> bool:
    """Whether it is this machine's own loopback."""
    return urlsplit(url).hostname in LOOPBACK


def _trusted() -> str | bool:
    """The certificates that the user names, else those that this machine trusts, else those of
    certifi.
    """
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if named := os.environ.get(name):
            return named
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        return paths.cafile
    return paths.capath if paths.capath and any(Path(paths.capath).iterdir()) else True
