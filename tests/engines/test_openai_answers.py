"""What a server may answer: every field of every type is a completion, or a bad answer that is
asked for again.
"""

import json
import math
import socket
from itertools import count
from typing import Any

import pytest
from chat_server import body, chat_server, good, status
from hypothesis import given, settings
from hypothesis import strategies as st

from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import Request, SamplingSettings
from desa_ray.engines.openai_generator import OpenAIGenerator, _output
from desa_ray.errors import DesaError
from tests.raw_server import answer, raw_server, says

ASK = Request([{"role": "user", "content": "question"}], 1, SamplingSettings(9, 0.7, 0.9, 20))
MISSING = object()
DEEP = json.loads("[" * 500 + "]" * 500)
VALUES = {
    "missing": MISSING,
    "null": None,
    "true": True,
    "a number": 5,
    "half a number": 1.5,
    "a huge number": 10**30,
    "a number too long to read": "HUGE",  # where a number belongs
    "a negative number": -1,
    "NaN": math.nan,
    "Infinity": math.inf,
    "a text": "-",
    "no text": "",
    "a list": [5],
    "no list": [],
    "an object": {"a": 5},
    "nested": DEEP,
}
FINE = {
    "choices": set[str](),
    "choices.0": set[str](),
    "choices.0.message": set[str](),
    "choices.0.message.content": {"null", "a text", "no text", "a number too long to read"},
    "choices.0.finish_reason": {"null", "a text", "no text", "a number too long to read"},
    "usage": {"missing", "null", "an object"},
    "usage.prompt_tokens": {"missing", "null", "a number"},
    "usage.completion_tokens": {"missing", "null", "a number"},
}


def completion() -> dict[str, Any]:
    choice = {"message": {"content": "said"}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def engine(url: str, **changes) -> OpenAIGenerator:
    quick = {
        "backoff_s": 0.01,
        "max_backoff_s": 0.02,
        "max_attempts": 2,
        "request_timeout_s": 60.0,
    } | changes
    return OpenAIGenerator(
        GeneratorConfig(name="server", kind="openai", model="m", base_url=url, **quick)
    )


def spoilt(place: str, value: Any) -> bytes:
    answer: Any = completion()
    *path, last = [int(name) if name.isdigit() else name for name in place.split(".")]
    holder = answer
    for name in path:
        holder = holder[name]
    if value is MISSING:
        del holder[last]
    else:
        holder[last] = value
    return (
        json.dumps(answer).replace('"HUGE"', "9" * 5000 if "tokens" in place else '"HUGE"').encode()
    )


@pytest.mark.parametrize("place", FINE)
def test_every_field_of_every_type_is_read_or_asked_for_again(place):
    with chat_server() as server:
        asking = engine(server.url)
        for name, value in VALUES.items():
            server.requests.clear()
            server.behaviours[:] = [body(spoilt(place, value)), good]
            (output,) = asking.generate([ASK])
            assert len(server.requests) == (1 if name in FINE[place] else 2), name
            assert isinstance(output.text, str)
            assert output.prompt_tokens in (None, 5, 7)


def test_a_bad_answer_is_one_line_that_names_the_field():
    with chat_server(*[body(spoilt("usage", "-"))] * 2) as server:
        with pytest.raises(
            DesaError, match=r"cannot be read: usage: .*dictionary.*\(2 attempts in"
        ) as caught:
            engine(server.url).generate([ASK])
        assert len(server.requests) == 2
        assert caught.value.where == f"generator server, {server.url}"
        assert caught.value.hint == "is this an OpenAI-compatible server?"


def test_a_bad_answer_ends_a_run_with_one_line(collection, refuse):
    """The answer of a trial, whose tokens' counts are a text."""
    said = json.dumps(completion() | {"usage": "-"}).encode()
    with raw_server(says(answer(said, "200 OK", "Connection: close"))) as server:
        common = [
            "dataset=beir_folder",
            f"dataset.path={collection}",
            "cluster=serial",
            "generator=openai_server",
        ]
        common += [
            f"generator.base_url={server.url}/v1",
            "generator.model=m",
            "generator.max_attempts=2",
        ]
        errors = refuse(
            ["usage", "2 attempts", server.url], "generate", *common, "generator.backoff_s=0.01"
        )
        assert len(errors) == 1


HOSTILE = {
    "another charset": answer("é".join(json.dumps(completion()).split("said")).encode("latin-1")),
    "a web page": answer(b"<html><body>Welcome</body></html>"),
    "an empty answer": answer(b""),
    "cut short": answer(json.dumps(completion()).encode()[:40]),
    "a length too short": (
        answer(json.dumps(completion()).encode()).replace(b"Length: 1", b"Length: ", 1)
    ),
    "a length too long": answer(b"{}").replace(b"Length: 2", b"Length: 200"),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n{}",
    "words of a terminal": answer(b"\x1b]0;owned\x07\x1b[31m", "503 \x1b[31mBusy"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_are_one_printable_line(name):
    with raw_server(says(HOSTILE[name])) as server:
        with pytest.raises(DesaError) as caught:
            engine(server.url).generate([ASK])
        assert str(caught.value).isprintable()
        assert "(2 attempts in" in str(caught.value)
        assert len(server.heard) == 2


@pytest.mark.parametrize(
    "mimetype", ["text/html", "text/plain; charset=utf-7", "application/x-tar", "nonsense"]
)
def test_the_type_that_a_server_gives_its_answer(mimetype):
    """The type that a server gives its answer is not what counts."""
    said = answer(json.dumps(completion()).encode()).replace(b"application/json", mimetype.encode())
    with raw_server(says(said)) as server:
        assert engine(server.url).generate([ASK])[0].text == "said"


@pytest.mark.parametrize(
    "wait", ["nan", "inf", "1e400", "-5", "x" * 5000, "Mon, 99 Foo 99999999 99:99:99 +9999"]
)
def test_whatever_retry_after_says_the_wait_has_its_limit(wait):
    with chat_server(status(429, Retry_After=wait)) as server:
        assert engine(server.url).generate([ASK])[0].text == "question / 1"


def test_a_finish_reason_is_a_word_that_a_record_can_hold():
    odd = completion()
    for word in ("st\ud800op", "x" * 5000):
        odd["choices"][0]["finish_reason"] = word
        with pytest.raises(ValueError, match="finish_reason"):
            _output(odd)


def test_a_dead_proxy_is_named_and_the_server_is_not_blamed(monkeypatch):
    for name in ("http_proxy", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{dead.getsockname()[1]}")
        with pytest.raises(
            DesaError, match=r"through the proxy http://127\.0\.0\.1:.*HTTP_PROXY"
        ) as caught:
            engine("http://models.example/v1").generate([ASK])
    assert "NO_PROXY=models.example" in caught.value.hint
    with raw_server(says(answer(b"", "502 Bad Gateway"))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(
            DesaError, match=f"answered 502 Bad Gateway through the proxy {proxy.url}"
        ):
            engine("http://models.example/v1").generate([ASK])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
def test_any_value_at_any_place_is_a_completion_or_a_value_error():
    tried = count()

    @settings(max_examples=20_000, deadline=None)
    @given(st.sampled_from([*FINE, "everything"]), anything)
    def look(place, value):
        next(tried)
        read = value if place == "everything" else json.loads(spoilt(place, value))
        try:
            output = _output(read)
        except ValueError:
            return
        output.text.encode()
        (output.finish_reason or "").encode()
        assert (output.prompt_tokens or 0) < 2**63

    look()
    assert next(tried) >= 10_000
