"""A real HTTP server on this machine that behaves as told: each request takes the next behaviour,
then all are good.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """One request: noted, then answered by the next behaviour."""

    protocol_version = "HTTP/1.1"
    server: "ChatServer"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaviour = self.server.take(self.path, dict(self.headers), body)
        self.server.enter(self)
        try:
            behaviour(self, body)
        finally:
            self.server.leave(self)

    def log_message(self, *arguments: Any) -> None:
        """Silent."""

    def send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.server.leave(self)  # whoever has the answer may ask again before this thread goes on
        self.wfile.write(content)


Behaviour = Callable[[Handler, dict], None]


class ChatServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviours: Sequence[Behaviour], port: int = 0):
        super().__init__(("127.0.0.1", port), Handler)
        self.lock = threading.Lock()
        self.behaviours = list(behaviours)
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.times: list[float] = []
        self.now, self.most = set[Handler](), 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Behaviour:
        with self.lock:
            self.requests.append((path, headers, body))
            self.times.append(time.monotonic())
            return self.behaviours.pop(0) if self.behaviours else good

    def enter(self, handler: Handler) -> None:
        with self.lock:
            self.now.add(handler)
            self.most = max(self.most, len(self.now))

    def leave(self, handler: Handler) -> None:
        with self.lock:
            self.now.discard(handler)


@contextmanager
def chat_server(*behaviours: Behaviour, port: int = 0) -> Iterator[ChatServer]:
    server = ChatServer(behaviours, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(text: str | None, finish_reason: str = "stop") -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": finish_reason,
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return json.dumps({"id": "x", "choices": [choice], "usage": usage}).encode()


def good(handler: Handler, body: dict[str, Any]) -> None:
    """A text that says which request it answers."""
    handler.send(200, completion(f"{body['messages'][-1]['content']} / {body['seed']}"))


def says(text: str | None, finish_reason: str = "stop") -> Behaviour:
    return lambda handler, body: handler.send(200, completion(text, finish_reason))


def status(
    code: int, content: bytes = b'{"error": {"message": "no"}}', **headers: str
) -> Behaviour:
    return lambda handler, body: handler.send(code, content, **headers)


def body(content: bytes) -> Behaviour:
    return lambda handler, body: handler.send(200, content)


def slow(seconds: float) -> Behaviour:
    def behave(handler: Handler, body: dict[str, Any]) -> None:
        time.sleep(seconds)
        good(handler, body)

    return behave


def drip(seconds: float) -> Behaviour:
    """A byte now and then: no single read is late, the whole is."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(1000):
            try:
                handler.wfile.write(b" ")
                handler.wfile.flush()
            except OSError:
                return
            time.sleep(seconds)

    return behave


def hang_up(handler: Handler, body: dict[str, Any]) -> None:
    handler.close_connection = True
    handler.connection.close()


def cut_short(handler: Handler, body: dict[str, Any]) -> None:
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "10000")
    handler.end_headers()
    handler.wfile.write(completion("half")[:40])
    handler.wfile.flush()
    hang_up(handler, body)
