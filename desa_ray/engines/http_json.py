"""JSON over HTTP with patience: what may pass is tried again, what will not is one clear error.

Connection errors, 408, 429, 5xx, time-outs and bodies that make no sense are tried again after a growing, jittered
wait that honours Retry-After. Other refusals are final at once. An address where nobody has ever answered is given up
within seconds. The key is sent, and appears nowhere else.
"""

import email.utils
import http.client
import json
import random
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any, TypeVar

from desa_ray.errors import DesaError

BODY_LIMIT = 32 << 20
BLOCK = 1 << 16
EXCERPT = 300
FIRST_ATTEMPTS, FIRST_WAIT_S = 3, 1.0  # of a connection that is refused before the server was ever met
LOOPBACK = ("localhost", "127.0.0.1", "::1")
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Patience:
    """How long and how often: seconds an attempt, attempts, first wait, longest wait (also of a Retry-After)."""

    timeout_s: float
    attempts: int
    backoff_s: float
    max_backoff_s: float


class Passing(Exception):
    """An attempt failed in a way that may pass; never seen by a user."""

    def __init__(self, what: str, mend: str, wait_s: float = 0.0, *, nobody: bool = False):
        super().__init__(what)
        self.what, self.mend, self.wait_s, self.nobody = what, mend, wait_s, nobody


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another server."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


@dataclass(frozen=True)
class JsonClient:
    """Posts JSON to one server; used from several threads.

    Attributes:
        base_url: without a slash at the end.
        key: bearer token, or None.
        where: for errors: what is being asked.
        met: set once somebody has answered, whatever it was.
    """

    base_url: str
    patience: Patience
    where: str
    key: str | None = field(default=None, repr=False)
    met: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def post(
        self, path: str, payload: Mapping[str, Any], parse: Callable[[Any], Parsed], stop: threading.Event
    ) -> Parsed:
        """The parsed answer to one request.

        Args:
            path: begins with a slash.
            payload: the body.
            parse: makes sense of the answer; LookupError, TypeError and ValueError mean that there is none.
            stop: once set, no further attempt begins.

        Raises:
            DesaError: refused for good, or `patience` is at its end.
        """
        body = json.dumps(payload).encode()
        started, failures = time.monotonic(), 0
        while True:
            try:
                return self._attempt(path, body, parse)
            except Passing as failure:
                failures += 1
                attempts, wait_s = self.patience.attempts, self._wait(failures, failure)
                if failure.nobody and not self.met.is_set():
                    attempts, wait_s = min(attempts, FIRST_ATTEMPTS), min(wait_s, FIRST_WAIT_S)
                if failures >= attempts or stop.is_set() or stop.wait(wait_s):
                    spent = f"{failures} attempts in {time.monotonic() - started:.0f} s"
                    raise self._error(f"{failure.what} ({spent})", failure.mend) from None

    def _wait(self, failures: int, failure: Passing) -> float:
        """Seconds before the next attempt: doubled each time, by half at random, so that clients spread."""
        growing = self.patience.backoff_s * 2 ** (failures - 1) * random.uniform(0.5, 1)  # noqa: S311
        return min(max(growing, failure.wait_s), self.patience.max_backoff_s)

    def _attempt(self, path: str, body: bytes, parse: Callable[[Any], Parsed]) -> Parsed:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.base_url + path, body, headers, method="POST")  # noqa: S310
        try:
            text = self._read(request)
            self.met.set()
        except urllib.error.HTTPError as error:
            self.met.set()
            with error:
                raise self._refusal(error) from None
        except (TimeoutError, urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise self._unreachable(error) from None
        try:
            return parse(json.loads(text))
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            what = f"the answer makes no sense: {type(error).__name__}: {error}: {self._excerpt(text)}"
            raise Passing(what, "is this an OpenAI-compatible server?") from None

    def _read(self, request: urllib.request.Request) -> bytes:
        """The body. The socket's limit holds for each read, so that of the whole is kept here."""
        deadline = time.monotonic() + self.patience.timeout_s
        near = urllib.parse.urlsplit(self.base_url).hostname in LOOPBACK
        # No proxy can reach this machine's own loopback, whatever the environment says.
        opener = urllib.request.build_opener(_NoRedirect, *([urllib.request.ProxyHandler({})] if near else []))
        blocks: list[bytes] = []
        with opener.open(request, timeout=self.patience.timeout_s) as response:
            while block := response.read1(BLOCK):
                blocks.append(block)
                if time.monotonic() > deadline:
                    raise TimeoutError
                if sum(map(len, blocks)) > BODY_LIMIT:
                    raise Passing(f"the answer is longer than {BODY_LIMIT} bytes", "is this the right address?")
        return b"".join(blocks)

    def _unreachable(self, error: Exception) -> Passing:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            what = f"no answer within {self.patience.timeout_s:g} s"
            return Passing(what, "raise generator.request_timeout_s or lower generator.concurrency")
        what = f"the server cannot be reached: {self._excerpt(str(reason) or type(reason).__name__)}"
        nobody = isinstance(reason, ConnectionRefusedError | socket.gaierror)
        return Passing(what, "is it running? check generator.base_url", nobody=nobody)

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        try:
            said = self._excerpt(error.read(BLOCK))
        except (OSError, http.client.HTTPException):
            said = ""
        what = f"the server answered {error.code} {error.reason}" + (f": {said}" if said else "")
        if error.code == 429:
            return Passing(what, "lower generator.concurrency, or wait", _retry_after(error.headers))
        if error.code == 408 or error.code >= 500:
            return Passing(what, "look into the server's log", _retry_after(error.headers))
        return self._error(what, MENDS.get(error.code, "check the generator's settings against the server's"))

    def _error(self, what: str, mend: str) -> DesaError:
        return DesaError(what, where=f"{self.where}, {self.base_url}", mend=mend)

    def _excerpt(self, text: bytes | str) -> str:
        """The beginning of what a server said, on one line; some servers repeat the key."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        text = text.replace(self.key, "***") if self.key else text
        return " ".join(text.split())[:EXCERPT]


MENDS = {
    301: "set generator.base_url to the address it moved to",
    302: "set generator.base_url to the address it moved to",
    307: "set generator.base_url to the address it moved to",
    308: "set generator.base_url to the address it moved to",
    400: "does the server know these options (generator.extended_sampling), and is its context long enough?",
    401: "check the key in the variable that generator.api_key_env names",
    403: "check the key in the variable that generator.api_key_env names",
    404: "check generator.base_url (it ends in /v1 mostly) and generator.model",
}


def _retry_after(headers: Message) -> float:
    """Seconds that a Retry-After header asks for, as a number or a date; 0 where it says nothing useful."""
    value = headers.get("Retry-After") or ""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
