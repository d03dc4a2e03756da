"""A TCP proxy in front of a tracking server that loses or replaces planned answers."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.raw_server import whole

DELIVER, LOSE, CUT = "deliver", "lose the answer", "hang up once the request is forwarded"


@dataclass(frozen=True)
class Says:
    """Another answer than the server's; `swallow` keeps the request from it too."""

    answer: bytes
    swallow: bool = False


# What happens to a request: its number from 0, its method and path -> one of these.
Plan = Callable[[int, str], str | Says]


class LossyProxy:
    """A proxy of its own port.

    Attributes:
        plan: may be replaced at any time.
        seen: method and path of each request, in order.
        lost: how many answers were lost.
        pause_s: before requests of more than a megabyte are forwarded; `paused` counts them.
    """

    def __init__(self, port: int, plan: Plan):
        self.server, self.plan = ("127.0.0.1", port), plan
        self.seen: list[str] = []
        self.lost, self.pause_s, self.paused = 0, 0.0, 0
        self._lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        """One request per connection."""
        with client, suppress(OSError, ValueError):
            client.settimeout(60)
            request = whole(client).replace(b"Connection: keep-alive", b"Connection: close")
            with self._lock:
                line = b" ".join(request.split(b" ", 2)[:2]).decode()
                fate = self.plan(len(self.seen), line)
                self.seen.append(line)
                self.lost += fate != DELIVER
            if len(request) > 1 << 20:
                self.paused += 1
                time.sleep(self.pause_s)
            answer = b""
            if not isinstance(fate, Says) or not fate.swallow:
                answer = self._ask(request, client if fate == CUT else None)
            if isinstance(fate, Says):
                client.sendall(fate.answer)
            elif fate == DELIVER:
                client.sendall(answer)

    def _ask(self, request: bytes, hang_up: socket.socket | None) -> bytes:
        answer = b""
        with socket.create_connection(self.server, timeout=60) as server:
            server.sendall(request)
            if hang_up is not None:
                hang_up.shutdown(socket.SHUT_RDWR)
            while block := server.recv(1 << 16):
                answer += block
        return answer


@contextmanager
def lossy_proxy(port: int, plan: Plan) -> Iterator[LossyProxy]:
    proxy = LossyProxy(port, plan)
    try:
        yield proxy
    finally:
        proxy.listener.close()
