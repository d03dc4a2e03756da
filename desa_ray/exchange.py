"""A call over the network with one time limit on all of it, enforced from outside: its thread is
abandoned, its sockets are closed.

Libraries limit each read, so a server that sends a byte now and then keeps them waiting for ever,
and nothing in them limits the resolution of a name. Here the call runs in a thread of its own while
the caller waits for the outcome, the end of the time or a stop, whichever comes first. Ctrl-C ends
the wait like anything else that waits in Python.
"""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from threading import RLock
from typing import TypeVar

from desa_ray.locks import SOCKETS, inside

Answer = TypeVar("Answer")
# A signal that comes just before a thread falls asleep is acted on when it wakes up.
LOOK_S = 0.5


class CallStopped(Exception):
    """The call was ended by its `Stop`."""


class Stop:
    """Ends the calls that were given it, at once and from any thread."""

    def __init__(self) -> None:
        self.future: Future[None] = Future()

    def set(self) -> None:
        with suppress(InvalidStateError):  # twice is once
            self.future.set_result(None)

    def is_set(self) -> bool:
        return self.future.done()

    def wait(self, seconds: float) -> bool:
        """Sleeps for so long unless stopped; whether it is stopped."""
        wait([self.future], seconds)
        return self.is_set()


class Exchange:
    """One call: its time, and the sockets it has opened.

    Args:
        seconds: for the whole of it.
        rate: bytes per second that buy more time while they move; None for none.
    """

    def __init__(self, seconds: float, rate: float | None = None):
        self.seconds, self.rate = seconds, rate
        self._started, self._moved = time.monotonic(), 0
        self._lock, self._ended, self._handles = RLock(), False, list[socket.socket]()

    def hold(self, opened: socket.socket) -> None:
        """Takes note of a socket that was just connected; raises TimeoutError where the call has
        been ended.
        """
        # TLS takes the socket itself away, so it is a second handle on the connection that is kept.
        handle = opened.dup()
        with inside(SOCKETS, self._lock):
            if not self._ended:
                self._handles.append(handle)
                return
        _close(handle)
        raise TimeoutError

    def moved(self, count: int) -> None:
        """So many bytes were sent or received."""
        self._moved += count

    def remaining(self) -> float:
        """Seconds that are left."""
        earned = self._moved / self.rate if self.rate else 0.0
        return self._started + self.seconds + earned - time.monotonic()

    def end(self) -> None:
        """Closes every connection, whatever waits on it."""
        with inside(SOCKETS, self._lock):
            self._ended, handles, self._handles = True, self._handles, []
        for handle in handles:
            _close(handle)


def _close(handle: socket.socket) -> None:
    with suppress(OSError):  # the other side was quicker
        handle.shutdown(socket.SHUT_RDWR)
    handle.close()


_here = threading.local()


def current() -> Exchange | None:
    """The exchange that this thread runs."""
    return getattr(_here, "exchange", None)


def run(
    call: Callable[[], Answer], seconds: float, rate: float | None = None, stop: Stop | None = None
) -> Answer:
    """What `call` returns or raises.

    Args:
        call: run in a thread of its own, which is abandoned if it does not end in time.
        seconds, rate: as `Exchange`.
        stop: ends the call early.

    Raises:
        TimeoutError: the time is over.
        CallStopped: `stop` was set.
    """
    exchange, outcome = Exchange(seconds, rate), Future()

    def work() -> None:
        _here.exchange = exchange
        try:
            answer = call()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(answer)

    # A daemon: a name server that hangs must not hold the end of the program up.
    threading.Thread(target=work, name="desa-exchange", daemon=True).start()
    try:
        while not outcome.done():
            if stop is not None and stop.is_set():
                raise CallStopped
            left = exchange.remaining()
            if left <= 0:
                raise TimeoutError
            waited_for = [outcome] if stop is None else [outcome, stop.future]
            wait(waited_for, min(left, LOOK_S), FIRST_COMPLETED)
        return outcome.result()
    finally:
        exchange.end()
