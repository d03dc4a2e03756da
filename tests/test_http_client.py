"""The HTTP client: one limit on the whole of an exchange, whatever the server does."""

import gzip
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from desa_ray.exchange import CallStopped, Stop
from desa_ray.http_client import Bounds, Session, session
from desa_ray.http_failures import Unanswered
from tests.raw_server import (
    CHUNKED,
    HEAD,
    answer,
    drips,
    raw_server,
    says,
    self_signed,
    without_proxies,
)

LIMIT_S = 0.6
SOON_S = 15.0  # far below what a server here goes on for, far above what a busy machine needs

DRIPS = {
    "nothing": drips(b"", b""),
    "a status line": drips(b"HTTP/1.1 2", b"0"),
    "a header": drips(HEAD + b"X-Long: ", b"x"),
    "100-continue": drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a flood of 100-continue": drips(b"", b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\n" * 100, 0.0),
    "a body of a length": drips(HEAD + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "a body without a length": drips(HEAD + b"\r\n", b"x"),
    "chunks": drips(CHUNKED, b"1\r\nx\r\n"),
    "the length of a chunk": drips(CHUNKED, b"0"),
    "trailers": drips(CHUNKED + b"0\r\n", b"X: y\r\n"),
    "an error's body": drips(b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    "a redirect's body": drips(
        b"HTTP/1.1 302 No\r\nLocation: /\r\nContent-Length: 1000000\r\n\r\n", b"x"
    ),
    "gzip without content": drips(HEAD + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"")),
}


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    without_proxies(monkeypatch)


def exchanges() -> int:
    return sum(thread.name == "desa-exchange" for thread in threading.enumerate())


def await_end_of_exchanges() -> None:
    deadline = time.monotonic() + SOON_S
    while exchanges():
        assert time.monotonic() < deadline, "a thread is still at it"
        time.sleep(0.02)


def late(url: str, opened: Session | None = None, **options) -> Unanswered:
    """The failure of an exchange that must end at its limit, with its connection closed."""
    started = time.monotonic()
    with pytest.raises(Unanswered) as caught:
        (opened or session(url, Bounds(LIMIT_S))).get(url, **options)
    assert LIMIT_S * 0.9 <= time.monotonic() - started < SOON_S
    assert caught.value.late, caught.value
    assert f"no answer within {LIMIT_S:g} s" in caught.value.what
    return caught.value


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "as a file"])
@pytest.mark.parametrize("name", DRIPS)
def test_the_limit_holds_for_the_whole_answer_whatever_drips(name, stream):
    with raw_server(DRIPS[name]) as server:
        late(server.url, stream=stream)
        assert server.gone.wait(SOON_S), "the connection was left open"
        await_end_of_exchanges()


@pytest.mark.parametrize(
    "drip", [drips(b"", b""), drips(b"\x16\x03\x03\x40\x00", b"\0")], ids=["silent", "drips"]
)
def test_the_limit_holds_for_the_handshake(drip):
    with raw_server(drip) as server:
        late(server.url.replace("http:", "https:"))
        assert server.gone.wait(SOON_S)
        await_end_of_exchanges()


def test_the_limit_holds_for_an_answer_over_tls(tmp_path, monkeypatch):
    certificate = self_signed(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with raw_server(DRIPS["chunks"], certificate=certificate) as server:
        late(server.url)
        assert server.gone.wait(SOON_S)
        await_end_of_exchanges()


def test_the_limit_holds_for_a_proxy_that_does_not_open(monkeypatch):
    """The limit holds for a proxy that does not open its tunnel."""
    with raw_server(drips(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        failure = late("https://somewhere.invalid", Session(Bounds(LIMIT_S)))
        assert f"through the proxy {proxy.url} (HTTPS_PROXY)" in failure.what
        assert proxy.gone.wait(SOON_S)


def test_the_limit_holds_for_a_name_that_does_not_resolve(monkeypatch):
    hung = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hung.wait(60))
    try:
        late("http://somewhere.invalid")
    finally:
        hung.set()
    await_end_of_exchanges()


def test_the_limit_holds_for_a_connection_that_nobody_takes():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        try:
            late(f"http://127.0.0.1:{full.getsockname()[1]}")
        finally:
            for one in waiting:
                one.close()


def _reads_slowly(connection: socket.socket, _: bytes) -> None:
    size = 0
    while size < 900_000:
        size += len(connection.recv(50_000))
        time.sleep(0.1)
    connection.sendall(answer(b"{}"))


def _sends_slowly(connection: socket.socket, _: bytes) -> None:
    connection.sendall(HEAD + b"Content-Length: 500000\r\n\r\n")
    for _ in range(10):
        connection.sendall(b"x" * 50_000)
        time.sleep(0.2)


def test_what_is_large_may_take_longer_as_long_as_it_moves():
    buys_time = Bounds(LIMIT_S, rate=20_000)
    with raw_server(_reads_slowly) as server:
        data = io.BytesIO(b"x" * 1_000_000)
        assert session(server.url, buys_time).put(server.url, data=data).status_code == 200
    with raw_server(_sends_slowly) as server:
        assert len(session(server.url, buys_time).get(server.url, stream=True).content) == 500_000
        late(server.url, session(server.url, buys_time))  # no file: the limit is the limit
    with raw_server(drips(HEAD + b"\r\n", b"x")) as server:
        with pytest.raises(Unanswered) as caught:
            session(server.url, buys_time).get(server.url, stream=True)
        assert caught.value.late


FLOODS = {
    "a body": drips(HEAD + b"\r\n", b"x" * 100_000, 0.0),
    "headers": drips(HEAD, b"X-Y: z\r\n" * 1000, 0.0),
    "a header": drips(HEAD + b"X-Y: ", b"z" * 100_000, 0.0),
    "a status line": drips(b"HTTP/1.1 200 ", b"z" * 100_000, 0.0),
    "the length of a chunk": drips(CHUNKED, b"1" * 100_000, 0.0),
    "chunks": drips(CHUNKED, b"fff\r\n" + b"x" * 4095 + b"\r\n", 0.0),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_are_cut_by_size(name):
    with raw_server(FLOODS[name]) as server:
        started = time.monotonic()
        with pytest.raises(Unanswered) as caught:
            session(server.url, Bounds(60.0, body_bytes=1 << 20)).get(server.url)
        assert not caught.value.late
        assert time.monotonic() - started < SOON_S
        assert len(str(caught.value)) < 1000
        assert server.gone.wait(SOON_S)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "gzip, gzip"])
def test_bombs_are_cut_by_what_they_unpack_to(coding):
    packed = gzip.compress(bytes(60 << 20))
    if coding == "gzip, gzip":
        packed = gzip.compress(packed)
    elif coding == "deflate":
        import zlib

        packed = zlib.compress(bytes(60 << 20))
    assert len(packed) < 70_000
    with raw_server(says(answer(packed, "200 OK", f"Content-Encoding: {coding}"))) as server:
        with pytest.raises(Unanswered, match=f"longer than {1 << 20} bytes"):
            session(server.url, Bounds(60.0, body_bytes=1 << 20)).get(server.url)
        fine = session(server.url, Bounds(60.0, body_bytes=61 << 20)).get(server.url)
        assert len(fine.content) == 60 << 20


def test_a_stop_ends_an_exchange_at_once():
    stop = Stop()
    with raw_server(DRIPS["nothing"]) as server:
        threading.Timer(0.3, stop.set).start()
        started = time.monotonic()
        with pytest.raises(CallStopped):
            session(server.url, Bounds(600.0, stop=stop)).get(server.url)
        assert time.monotonic() - started < SOON_S
        assert server.gone.wait(SOON_S)
        with pytest.raises(CallStopped):
            session(server.url, Bounds(600.0, stop=stop)).get(server.url)


ASKING = """
import sys
from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import Request, SamplingSettings
from desa_ray.engines.openai_generator import OpenAIGenerator
from desa_ray.error_boundary import thread_hooks
patient = {"request_timeout_s": 600.0, "concurrency": 4}
config = GeneratorConfig(name="s", kind="openai", model="m", base_url=sys.argv[1], **patient)
ask = Request([{"role": "user", "content": "x"}], 1, SamplingSettings(9, 0.7, 0.9, 20))
with thread_hooks():
    OpenAIGenerator(config).generate([ask] * 8)
"""


@pytest.mark.parametrize("after_s", [0.0, 0.5], ids=["while they start", "while they wait"])
def test_ctrl_c_ends_waiting_requests_at_once(after_s):
    with raw_server(DRIPS["chunks"]) as server:
        command = [sys.executable, "-c", ASKING, server.url]
        process = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stderr=subprocess.PIPE, text=True
        )
        try:
            assert server.met.wait(120)
            time.sleep(after_s)
            started = time.monotonic()
            os.kill(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        assert time.monotonic() - started < SOON_S
        assert errors.strip().endswith("KeyboardInterrupt")
