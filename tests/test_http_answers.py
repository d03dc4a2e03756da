"""The HTTP client: what it follows, trusts and goes through; any answer is an answer or one
failure, and no key goes where none belongs.
"""

import gzip
import random
import socket
from contextlib import contextmanager, suppress

import pytest

from desa_ray.http_client import Bounds, Session, session
from desa_ray.http_failures import Unanswered
from tests.raw_server import (
    CHUNKED,
    HEAD,
    answer,
    raw_server,
    says,
    self_signed,
    without_proxies,
)


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    without_proxies(monkeypatch)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(code):
    with raw_server(says(answer(b"{}"))) as other:
        moved = answer(b"", f"{code} Moved", f"Location: {other.url}/")
        with raw_server(says(moved)) as server:
            opened = session(server.url, Bounds(30.0))
            for method in ("GET", "POST"):
                found = opened.request(method, server.url, headers={"Authorization": "Bearer key"})
                assert (found.status_code, found.history) == (code, [])
        assert other.heard == []


def test_where_redirects_are_followed_no_key_goes(monkeypatch, tmp_path):
    """Where redirects are followed no key goes to another host."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with raw_server(says(answer(b"there"))) as other:
        moved = answer(b"", "302 Found", f"Location: http://localhost:{other.port}/")
        with raw_server(says(moved)) as server:
            opened = session(server.url, Bounds(30.0), follow=True)
            assert opened.get(server.url, headers={"Authorization": "Bearer key"}).text == "there"
        (heard,) = other.heard
        assert b"Authorization" not in heard
        assert b"key" not in heard


def test_nothing_is_sent_twice_and_no_connection_kept():
    with raw_server(says(b"")) as server:
        with pytest.raises(Unanswered, match="closed connection"):
            session(server.url, Bounds(30.0)).post(server.url, data=b"one")
        assert len(server.heard) == 1
    with raw_server(says(answer(b"{}"))) as server:
        opened = session(server.url, Bounds(30.0))
        for _ in range(3):
            opened.get(server.url)
        assert len(server.heard) == 3
        assert all(b"Connection: close" in heard for heard in server.heard)


def test_certificates_are_checked(tmp_path, monkeypatch):
    certificate = self_signed(tmp_path)
    with raw_server(says(answer(b"{}")), certificate=certificate) as server:
        with pytest.raises(Unanswered, match="certificate is not trusted: self-signed") as caught:
            session(server.url, Bounds(30.0)).get(server.url)
        assert caught.value.final
        assert "REQUESTS_CA_BUNDLE" in caught.value.hint
        for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            with monkeypatch.context() as patch:
                patch.setenv(name, str(certificate))
                assert session(server.url, Bounds(30.0)).get(server.url).status_code == 200
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
        with pytest.raises(Unanswered, match=r"missing\.pem"):
            session(server.url, Bounds(30.0)).get(server.url)


@pytest.fixture
def dead() -> str:
    """The address of a port where nobody listens, for the length of the test."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("variable", ["{}_PROXY", "{}_proxy", "ALL_PROXY", "all_proxy"])
def test_a_dead_proxy_is_named_without_its_password(scheme, variable, dead, monkeypatch):
    name = variable.format(scheme.upper() if variable.endswith("PROXY") else scheme)
    monkeypatch.setenv(name, f"http://me:secret@{dead}")
    with pytest.raises(Unanswered) as caught:
        Session(Bounds(30.0)).get(f"{scheme}://tracking.example:5000/x")
    failure = caught.value
    assert f"through the proxy http://***@{dead} ({name}): Connection refused" in failure.what
    assert "NO_PROXY=tracking.example" in failure.hint
    assert "secret" not in failure.what + failure.hint
    assert not failure.nobody  # the server itself was never asked


def test_no_proxy_and_this_machine_itself_are_reached(dead, monkeypatch):
    """No proxy and this machine itself are reached without one."""
    monkeypatch.setenv("HTTP_PROXY", f"http://{dead}")
    with raw_server(says(answer(b"{}"))) as server:
        assert session(server.url, Bounds(30.0)).get(server.url).status_code == 200
        with pytest.raises(Unanswered, match="HTTP_PROXY"):
            Session(Bounds(30.0)).get(server.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert Session(Bounds(30.0)).get(server.url).status_code == 200


def test_a_proxy_that_opens_no_tunnel_is_named(monkeypatch):
    with raw_server(says(answer(b"", "403 Forbidden"))) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(Unanswered) as caught:
            Session(Bounds(30.0)).get("https://somewhere.invalid/")
        assert (
            f"through the proxy {proxy.url} (HTTPS_PROXY): Tunnel connection failed: 403"
            in caught.value.what
        )


GARBAGE = {
    "nothing": b"",
    "a line": b"hello\r\n",
    "bytes": bytes(range(256)),
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "HTTP/0.9": b"<html>",
    "a status that is none": b"HTTP/1.1 abc OK\r\n\r\n",
    "a negative status": b"HTTP/1.1 -20 OK\r\n\r\n",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\nx",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxxx",
    "a length of words": HEAD + b"Content-Length: many\r\n\r\nx",
    "a huge length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nx",
    "a length too long": HEAD + b"Content-Length: 10\r\n\r\nx",
    "chunks that are none": CHUNKED + b"zz\r\nx",
    "a negative chunk": CHUNKED + b"-5\r\nx",
    "chunks cut short": CHUNKED + b"5\r\nab",
    "gzip that is none": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    "gzip cut short": HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 1000)[:20],
    "codings without end": HEAD + b"Content-Encoding: " + b"gzip, " * 200 + b"gzip\r\n\r\nx",
    "headers that are none": HEAD + b"\xff\xfe: \x00\r\n: x\r\nA\r\n B\r\n\r\n{}",
    "only headers": HEAD,
    "switching protocols": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
    "a redirect to nowhere": b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_whatever_is_answered_is_an_answer_or_one_failure(name):
    with raw_server(says(GARBAGE[name])) as server:
        for stream in (False, True):
            opened = session(server.url, Bounds(30.0))
            with suppress(Unanswered), one_line_failures():
                assert isinstance(opened.get(server.url, stream=stream).text, str)


@contextmanager
def one_line_failures():
    try:
        yield
    except Unanswered as failure:
        if "\n" in failure.what or not failure.what.isprintable():
            raise AssertionError(failure.what) from failure
        raise


WHOLE = (
    HEAD + b"Content-Type: application/json\r\nTransfer-Encoding:"
    b' chunked\r\n\r\n5\r\n{"a":\r\n2\r\n1}\r\n0\r\nT: x\r\n\r\n'
)


@pytest.mark.slow
def test_any_bytes_are_an_answer_or_one_failure():
    """Whole answers with pieces cut out, doubled, overwritten and inserted."""
    chance = random.Random(1)
    now = [b""]
    starts = [
        WHOLE,
        answer(b'{"a": 1}'),
        answer(gzip.compress(b"x" * 50), "200 OK", "Content-Encoding: gzip"),
    ]
    with raw_server(lambda connection, _: connection.sendall(now[0])) as server:
        for _ in range(20_000):
            said = chance.choice(starts)
            for _ in range(chance.randint(1, 4)):
                at, to = sorted(chance.randrange(len(said) + 1) for _ in range(2))
                piece = chance.choice(
                    [
                        b"",
                        said[at:to] * 2,
                        chance.randbytes(to - at),
                        b"\r\n",
                        b"HTTP/1.1 100 C\r\n\r\n",
                    ]
                )
                said = said[:at] + piece + said[to:]
            now[0] = said
            opened = session(server.url, Bounds(30.0, body_bytes=10_000))
            with suppress(Unanswered), one_line_failures():
                assert isinstance(opened.get(server.url).text, str), said
