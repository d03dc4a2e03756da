"""The thread that steps an engine: requests join it at any time, from any thread, and each is
answered as soon as it is done.

So an engine never waits for the last request of one caller before it begins those of the next
(continuous batching). What goes wrong with one request is that request's error; where the engine
itself fails, all of its requests do, and every later one: whoever holds it must load another.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from desa_ray.engines.chat import Output, Request
from desa_ray.errors import DesaError, EngineFailed


class SteppedEngine(Protocol):
    """An engine that does a piece of work at each step. All calls come from one thread, which also
    loaded it.
    """

    def add(self, request: Request) -> str:
        """Take a request in; returns the name under which `step` answers it.

        Raises:
            DesaError: this request cannot be answered; the engine goes on.
        """
        ...

    def step(self) -> Iterable[tuple[str, Output | DesaError]]:
        """Go on with the requests that are in; returns those that are done."""
        ...


Stepped = TypeVar("Stepped", bound=SteppedEngine)
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Asked:
    request: Request
    answer: Future[Output]


@dataclass(frozen=True)
class _Call:
    """Something to be done with the engine while no request is in."""

    work: Callable[[], Any]
    answer: Future[Any]


@dataclass(frozen=True)
class _Running:
    """A request that is in the engine; `spent`: what the engine had spent per request by then."""

    answer: Future[Output]
    spent: float


class EngineLoop(Generic[Stepped]):
    """Loads an engine in a thread of its own and steps it there as long as requests are in.

    Args:
        load: returns the loaded engine; called once, in that thread.
        where: names the engine in errors.

    Attributes:
        busy_s: how long the engine's steps took, since it was loaded.

    Raises:
        Exception: what `load` raised.
    """

    def __init__(self, load: Callable[[], Stepped], where: str):
        self.where = where
        self._inbox: SimpleQueue[_Asked | _Call | None] = SimpleQueue()
        self._calls: list[_Call] = []
        self._running: dict[str, _Running] = {}
        self._spent = 0.0  # seconds of the engine per request that was inside, since it was loaded
        self.busy_s = 0.0
        loaded: Future[Stepped] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(load, loaded), name="desa-engine", daemon=True
        )
        self._thread.start()
        self.engine: Stepped = loaded.result()

    def submit(self, request: Request) -> Future[Output]:
        """Have a request answered. A future that is cancelled before the engine has taken it in is
        never begun.

        The future raises:
            DesaError: the request cannot be answered.
            EngineFailed: the engine cannot go on.
        """
        answer: Future[Output] = Future()
        self._inbox.put(_Asked(request, answer))
        return answer

    def alone(self, work: Callable[[Stepped], Result]) -> Result:
        """What `work` returns or raises, called with the engine in its own thread, once no request
        is in.
        """
        answer: Future[Result] = Future()
        self._inbox.put(_Call(lambda: work(self.engine), answer))
        return answer.result()

    def close(self) -> None:
        """Answer nothing more; returns once the engine's last step is over."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self, load: Callable[[], Stepped], loaded: Future[Stepped]) -> None:
        try:
            engine = load()
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(engine)
        del loaded
        try:
            while self._take_in(engine):
                self._step(engine)
        except BaseException as error:  # a panic of a Rust library is no Exception
            self._fail_from_now_on(error)

    def _take_in(self, engine: SteppedEngine) -> bool:
        """Adds what was asked meanwhile; waits while there is nothing to do. False at the end."""
        while not self._running or not self._inbox.empty():
            if self._calls and not self._running:
                _do(self._calls.pop(0))
                continue
            asked = self._inbox.get()
            if asked is None:
                return False
            if isinstance(asked, _Call):
                self._calls.append(asked)
                continue
            if not asked.answer.set_running_or_notify_cancel():
                continue
            try:
                name = engine.add(asked.request)
            except DesaError as error:
                asked.answer.set_exception(error)
                continue
            except BaseException:
                self._inbox.put(asked)  # fails with the others
                raise
            self._running[name] = _Running(asked.answer, self._spent)
        return True

    def _step(self, engine: SteppedEngine) -> None:
        began, inside = time.perf_counter(), len(self._running)
        done: list[tuple[str, Output | DesaError]] = []
        try:
            for one in engine.step():
                done.append(one)  # and no comprehension: what comes before a failure counts
        finally:
            took = time.perf_counter() - began
            self.busy_s += took
            self._spent += took / inside
            self._answer(done)

    def _answer(self, done: Sequence[tuple[str, Output | DesaError]]) -> None:
        for name, outcome in done:
            running = self._running.pop(name)
            if isinstance(outcome, DesaError):
                running.answer.set_exception(outcome)
            else:
                seconds = self._spent - running.spent
                running.answer.set_result(replace(outcome, seconds=seconds))

    def _fail_from_now_on(self, error: BaseException) -> None:
        said = " ".join(str(error).split())[:300] or "no message"
        what = f"the engine failed: {type(error).__name__}: {said}"
        hint = "rerun, unless another engine continues"
        for running in self._running.values():
            running.answer.set_exception(EngineFailed(what, where=self.where, hint=hint))
        self._running.clear()
        for call in self._calls:
            self._inbox.put(call)
        while True:
            asked = self._inbox.get()
            if asked is None:
                return
            if asked.answer.running() or asked.answer.set_running_or_notify_cancel():
                asked.answer.set_exception(EngineFailed(what, where=self.where, hint=hint))


def _do(call: _Call) -> None:
    try:
        call.answer.set_result(call.work())
    except BaseException as error:
        call.answer.set_exception(error)
