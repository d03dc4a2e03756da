"""Why there is no answer, in one line: the server, the proxy before it, the certificate, the name
or the time.
"""

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from http.client import BadStatusLine, LineTooLong, RemoteDisconnected
from urllib.parse import urlsplit

import requests
from requests.utils import get_environ_proxies, select_proxy
from urllib3.exceptions import InvalidHeader

from desa_ray.printable import printable
from desa_ray.redaction import redacted

EXCERPT = 300
GATEWAYS = (407, 502, 503, 504)  # what a proxy may answer for itself
GARBLED = (BadStatusLine, LineTooLong, InvalidHeader, ValueError)


class Unanswered(requests.ConnectionError):
    """There is no whole answer.

    Attributes:
        what: why not, on one line.
        hint: what to do about it, where the cause is known; else empty.
        nobody: nobody listens there, or nobody has that name.
        late: the time was over.
        final: it will not pass by waiting.
    """

    def __init__(
        self,
        what: str,
        hint: str = "",
        *,
        nobody: bool = False,
        late: bool = False,
        final: bool = False,
    ):
        super().__init__(what)
        self.what, self.hint, self.nobody, self.late, self.final = what, hint, nobody, late, final


def explained(error: Exception, url: str, proxy: str | None, seconds: float) -> Unanswered:
    """What a failed exchange with `url` means, in words."""
    causes = list(chain(error))
    through = f" through the proxy {shown_proxy(proxy, url)}" if proxy else ""
    host = urlsplit(url).hostname or ""
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        reason = next(cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError))
        what = (
            f"its certificate is not trusted{through}:"
            f" {one_line(reason.verify_message or str(reason))}"
        )
        return Unanswered(what, "name the authority's file in REQUESTS_CA_BUNDLE", final=True)
    if proxy and isinstance(error, requests.exceptions.ProxyError):
        hint = f"start that proxy, or, if the server is reached without one, set NO_PROXY={host}"
        return Unanswered(f"it cannot be reached{through}: {reason_of(causes)}", hint)
    if isinstance(error, TimeoutError | requests.Timeout) or any(
        isinstance(one, TimeoutError) for one in causes
    ):
        return Unanswered(f"no answer within {seconds:g} s{through}", late=True)
    garbled: list[BaseException] = [
        one
        for one in causes
        if isinstance(one, GARBLED) and not isinstance(one, RemoteDisconnected)
    ]
    if garbled:
        return Unanswered(f"its answer is not HTTP{through}: {reason_of(garbled[-1:])}")
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return Unanswered(
            f"no request can be sent to it{through}: {one_line(str(error))}", final=True
        )
    nobody = not proxy and any(
        isinstance(one, ConnectionRefusedError | socket.gaierror) for one in causes
    )
    return Unanswered(f"the server cannot be reached{through}: {reason_of(causes)}", nobody=nobody)


def through_proxy(url: str) -> str:
    """` through the proxy ...` where the environment names one for this address, else nothing."""
    proxy = select_proxy(url, get_environ_proxies(url))
    return f" through the proxy {shown_proxy(proxy, url)}" if proxy else ""


def shown_proxy(proxy: str, url: str) -> str:
    """`http://proxy:3128 (HTTPS_PROXY)`: its address without a password, and the variable that
    holds it.
    """
    scheme = urlsplit(url).scheme
    spelled = [name for low in (f"{scheme}_proxy", "all_proxy") for name in (low, low.upper())]
    named = next((name for name in spelled if os.environ.get(name)), None)
    return f"{redacted(proxy)} ({named})" if named else redacted(proxy)


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, outermost first: libraries wrap what the system said."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        below = [getattr(found, "reason", None), *found.args, found.__cause__, found.__context__]
        found = next(
            (one for one in below if isinstance(one, BaseException) and id(one) not in seen), None
        )


def reason_of(causes: list[BaseException]) -> str:
    """What the system said, else what the innermost library said."""
    for cause in reversed(causes):
        if isinstance(cause, socket.gaierror):
            return f"its name is not known ({cause.strerror})"
        if isinstance(cause, OSError) and cause.errno in errno.errorcode and cause.strerror:
            return cause.strerror
    texts = [str(cause).strip() for cause in reversed(causes)]
    said = next((text for text in texts if text), "")
    return one_line(said) or type(causes[-1]).__name__


def one_line(text: str, limit: int = EXCERPT) -> str:
    """The beginning of what somebody else said: one printable line without secrets."""
    return redacted(printable(" ".join(text[: 8 * limit].split())[:limit]))
