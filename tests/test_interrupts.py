"""A Ctrl-C is never lost, whatever the main thread runs when it comes."""

import _thread
import signal
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import Request, SamplingSettings
from desa_ray.engines.openai_generator import OpenAIGenerator
from desa_ray.error_boundary import thread_hooks
from tests.raw_server import drips, raw_server

ASK = Request([{"role": "user", "content": "x"}], 1, SamplingSettings(9, 0.7, 0.9, 20))


class Thing:
    pass


class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def _interrupt_after(seconds: float) -> None:
    time.sleep(seconds)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _called_back() -> None:
    thing = Thing()
    kept = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    assert kept() is None


def _finalized() -> None:
    Finalized()


def _interrupted(call: Callable[[], object]) -> bool:
    """Whether the call was ended by an interrupt, as `desa` runs it."""
    try:
        with thread_hooks():
            call()
            time.sleep(20)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("where", [_called_back, _finalized])
def test_an_interrupt_of_a_finalizer_comes_again(where):
    assert _interrupted(where)


def test_requests_end_at_an_interrupt_of_any_moment():
    """Forty interrupts between the first instruction and waiting for all answers."""
    with raw_server(drips(b"", b"")) as server:
        config = GeneratorConfig(
            name="s",
            kind="openai",
            model="m",
            base_url=server.url,
            request_timeout_s=600.0,
            concurrency=4,
        )

        def asked_for(seconds: float) -> None:
            _thread.start_new_thread(_interrupt_after, (seconds,))
            OpenAIGenerator(config).generate([ASK] * 8)

        for moment in range(40):
            started = time.monotonic()
            assert _interrupted(partial(asked_for, 0.001 * (moment % 20)))
            assert time.monotonic() - started < 15
