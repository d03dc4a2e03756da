"""JSON over HTTP with retries: transient errors are tried again, others are reported at once.

Connection errors, 408, 429, 5xx, time-outs and bodies that make no sense are tried again after a
growing, jittered wait that honours Retry-After. Other refusals are final at once. An address where
nobody has ever answered is given up within seconds. The key is sent, and appears nowhere else.
"""

import email.utils
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import requests

from desa_ray.errors import DesaError
from desa_ray.exchange import CallStopped, Stop
from desa_ray.http_client import Bounds, near, session
from desa_ray.http_failures import GATEWAYS, Unanswered, one_line, through_proxy

BODY_LIMIT = 32 << 20
# Of a connection that is refused before the server was ever met
FIRST_ATTEMPTS, FIRST_WAIT_S = (
    3,
    1.0,
)
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class RetryPolicy:
    """How long and how often: seconds an attempt, attempts, first wait, longest wait (also of a
    Retry-After).
    """

    timeout_s: float
    attempts: int
    backoff_s: float
    max_backoff_s: float


class TransientError(Exception):
    """An attempt failed in a way that may pass; never seen by a user."""

    def __init__(self, what: str, hint: str, wait_s: float = 0.0, *, nobody: bool = False):
        super().__init__(what)
        self.what, self.hint, self.wait_s, self.nobody = what, hint, wait_s, nobody


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
    retry_policy: RetryPolicy
    where: str
    key: str | None = field(default=None, repr=False)
    met: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def post(
        self, path: str, payload: Mapping[str, Any], parse: Callable[[Any], Parsed], stop: Stop
    ) -> Parsed:
        """The parsed answer to one request.

        Args:
            path: begins with a slash.
            payload: the body.
            parse: makes sense of the answer; ValueError means that there is none.
            stop: once set, the attempt under way ends and no further one begins.

        Raises:
            DesaError: refused, or `retry_policy` allows no further attempt.
            CallStopped: `stop` was set.
        """
        body = json.dumps(payload).encode()
        started, failures = time.monotonic(), 0
        while True:
            try:
                return self._attempt(path, body, parse, stop)
            except TransientError as failure:
                failures += 1
                attempts, wait_s = self.retry_policy.attempts, self._wait(failures, failure)
                if failure.nobody and not self.met.is_set():
                    attempts, wait_s = min(attempts, FIRST_ATTEMPTS), min(wait_s, FIRST_WAIT_S)
                if failures >= attempts:
                    spent = f"{failures} attempts in {time.monotonic() - started:.0f} s"
                    raise self._error(f"{failure.what} ({spent})", failure.hint) from None
            if stop.wait(wait_s):
                raise CallStopped

    def _wait(self, failures: int, failure: TransientError) -> float:
        """Seconds before the next attempt: doubled each time, by half at random, so that clients
        spread.
        """
        growing = self.retry_policy.backoff_s * 2 ** min(failures - 1, 60) * random.uniform(0.5, 1)  # noqa: S311
        return min(max(growing, failure.wait_s), self.retry_policy.max_backoff_s)

    def _attempt(
        self, path: str, body: bytes, parse: Callable[[Any], Parsed], stop: Stop
    ) -> Parsed:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        bounds = Bounds(self.retry_policy.timeout_s, body_bytes=BODY_LIMIT, stop=stop)
        try:
            with session(self.base_url, bounds) as server:
                response = server.post(self.base_url + path, body, headers=headers)
        except Unanswered as failure:
            self._raise(failure)
        self.met.set()
        if response.status_code >= 300:
            raise self._refusal(response)
        try:
            return parse(json.loads(response.content, parse_constant=_no_number))
        except (ValueError, RecursionError) as error:
            what = (
                f"the answer cannot be read: {self._excerpt(str(error))}:"
                f" {self._excerpt(response.content)}"
            )
            raise TransientError(what, "is this an OpenAI-compatible server?") from None

    def _raise(self, failure: Unanswered) -> NoReturn:
        what = self._excerpt(failure.what)
        if failure.final:
            raise self._error(what, failure.hint or "check generator.base_url") from None
        hint = "is it running? check generator.base_url"
        if failure.late:
            hint = "raise generator.request_timeout_s or lower generator.concurrency"
        raise TransientError(what, failure.hint or hint, nobody=failure.nobody) from None

    def _refusal(self, response: requests.Response) -> Exception:
        said = self._excerpt(response.content)
        code = response.status_code
        what = f"the server answered {code} {self._excerpt(response.reason or '')}".rstrip()
        if code in GATEWAYS and not near(self.base_url):
            what += through_proxy(self.base_url)
        what += f": {said}" if said else ""
        if code == 429:
            return TransientError(
                what, "lower generator.concurrency, or wait", _retry_after(response.headers)
            )
        if code == 408 or code >= 500:
            return TransientError(what, "check the server's log", _retry_after(response.headers))
        hint = (
            "set generator.base_url to the address it moved to"
            if code < 400
            else HINTS.get(code, OTHER)
        )
        return self._error(what, hint)

    def _error(self, what: str, hint: str) -> DesaError:
        return DesaError(what, where=f"{self.where}, {self.base_url}", hint=hint)

    def _excerpt(self, text: bytes | str) -> str:
        """The beginning of what a server said, on one line; some servers repeat the key."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return one_line(text.replace(self.key, "***") if self.key else text)


OTHER = "check the generator's settings against the server's"
HINTS = {
    400: (
        "does the server know these options (generator.extended_sampling), and is its context long"
        " enough?"
    ),
    401: "check the key in the variable that generator.api_key_env names",
    403: "check the key in the variable that generator.api_key_env names",
    404: "check generator.base_url (it usually ends in /v1) and generator.model",
    407: "set HTTPS_PROXY (or HTTP_PROXY) to the proxy with its user and password",
}


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a Retry-After header asks for, as a number or a date; 0 where it says nothing
    useful.
    """
    value = headers.get("Retry-After") or ""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, LookupError, ArithmeticError, OSError):
        return 0.0
