"""The engine on a server: retries of transient errors, one clear error for what does not, and a key
nobody sees.
"""

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from chat_server import (
    body,
    chat_server,
    completion,
    cut_short,
    drip,
    good,
    hang_up,
    says,
    slow,
    status,
)

from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import Request, SamplingSettings
from desa_ray.engines.generator import load_generator
from desa_ray.engines.live_generator import texts_schema
from desa_ray.engines.openai_generator import OpenAIGenerator
from desa_ray.engines.prompts import load_prompt
from desa_ray.errors import DesaError
from tests.generated import generate_records

KEY = "sk-very-secret-123"
SAMPLING = SamplingSettings(max_new_tokens=9, temperature=0.7, top_p=0.9, top_k=20)
FIVE = ["alpha one", "beta two", "gamma three", "delta four", "epsilon five"]


def config(url: str, **changes) -> GeneratorConfig:
    quick = {"backoff_s": 0.01, "max_backoff_s": 0.05, "request_timeout_s": 5.0, "max_attempts": 4}
    return GeneratorConfig(
        name="server", kind="openai", model="m", base_url=url, **(quick | changes)
    )


def ask(number: int, *, schema=None) -> Request:
    return Request(
        [{"role": "user", "content": f"question {number}"}], 100 + number, SAMPLING, schema
    )


PASSING = {
    "429": status(429),
    "429 with a date": status(429, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
    "429 with nonsense": status(429, Retry_After="soon"),
    "408": status(408),
    "500": status(500),
    "502 with HTML": status(502, b"<html>bad gateway</html>"),
    "503": status(503, Retry_After="0"),
    "hangs up": hang_up,
    "cut short": cut_short,
    "not JSON": body(b"<html>welcome</html>"),
    "empty": body(b""),
    "not UTF-8": body(b"\xff\xfe\x00"),
    "deeply nested": body(b"[" * 100_000),
    "no choices": body(b'{"choices": []}'),
    "another type": body(b"[1, 2]"),
    "null": body(b"null"),
    "content is a number": body(
        completion("x").replace(b'"x"', b"5", 1).replace(b'"content": "x"', b'"content": 5')
    ),
    "tokens are text": body(completion("y").replace(b"7", b'"seven"')),
}


@pytest.mark.parametrize("behaviour", PASSING.values(), ids=PASSING)
def test_what_may_pass_is_asked_again_until_it_is_good(behaviour):
    with chat_server(behaviour, behaviour) as server:
        outputs = OpenAIGenerator(config(server.url)).generate([ask(1)])
        assert [output.text for output in outputs] == ["question 1 / 101"]
        assert len(server.requests) == 3
        bodies = [sent for _, _, sent in server.requests]
        assert bodies[0] == bodies[1] == bodies[2]


@pytest.mark.parametrize("behaviour", PASSING.values(), ids=PASSING)
def test_what_does_not_pass_becomes_one_line_after_so_many(behaviour):
    """What does not pass becomes one line after so many attempts."""
    with chat_server(*[behaviour] * 10) as server:
        with pytest.raises(DesaError) as caught:
            OpenAIGenerator(config(server.url)).generate([ask(1)])
        assert len(server.requests) == 4
        message = str(caught.value)
        assert "\n" not in message
        assert message.startswith(f"generator server, {server.url}: ")
        assert "4 attempts in " in message
        assert caught.value.hint


def test_time_outs_are_tried_again_and_hold_for_the_whole_answer():
    for behaviour in (slow(20.0), drip(0.1)):
        with chat_server(behaviour) as server:
            started = time.monotonic()
            outputs = OpenAIGenerator(config(server.url, request_timeout_s=0.5)).generate([ask(2)])
            assert outputs[0].text == "question 2 / 102"
            assert len(server.requests) == 2
            assert time.monotonic() - started < 10
    with (
        chat_server(*[slow(20.0)] * 3) as server,
        pytest.raises(DesaError, match=r"no answer within 0\.1 s \(2 attempt"),
    ):
        OpenAIGenerator(config(server.url, request_timeout_s=0.1, max_attempts=2)).generate(
            [ask(2)]
        )


def test_a_server_that_is_down_is_named():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        with pytest.raises(DesaError, match=rf"{url}: the server cannot be reached.*is it running"):
            OpenAIGenerator(config(url)).generate([ask(1)])


def test_waits_grow_and_honour_retry_after_up_to_the_limit():
    with chat_server(*[status(500)] * 3) as server:
        OpenAIGenerator(config(server.url, backoff_s=0.1, max_backoff_s=0.15)).generate([ask(1)])
        gaps = [
            later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False)
        ]
        assert gaps[0] >= 0.05
        assert gaps[1] >= 0.1
        assert 0.15 <= gaps[2] < 5
    for header, least in (("0.3", 0.3), ("3600", 0.4)):
        with chat_server(status(429, Retry_After=header)) as server:
            OpenAIGenerator(config(server.url, max_backoff_s=0.4)).generate([ask(1)])
            assert least <= server.times[1] - server.times[0] < 5


FINAL = {
    400: "extended_sampling",
    401: "generator.api_key_env",
    403: "generator.api_key_env",
    404: "generator.model",
    307: "set generator.base_url",
    422: "check the generator's settings",
}


def test_an_address_where_nobody_ever_answered_is_given_up():
    """An address where nobody ever answered is given up in seconds."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        patient = config(url, max_attempts=20, backoff_s=30.0, max_backoff_s=60.0)
        started = time.monotonic()
        with pytest.raises(DesaError, match=r"cannot be reached: .* \(3 attempts in [2-5] s\)"):
            OpenAIGenerator(patient).generate([ask(n) for n in range(4)])
        assert time.monotonic() - started < 8


def test_a_server_that_goes_away_in_the_middle_is_waited_for():
    """The same client meets the server, loses it, and finds it again at its address."""
    with chat_server(good) as server:
        port = server.server_address[1]
        engine = OpenAIGenerator(
            config(server.url, max_attempts=40, backoff_s=0.1, max_backoff_s=0.1)
        )
        engine.generate([ask(1)])
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(engine.generate, [ask(2)])
        time.sleep(1.0)  # far more than the attempts that a stranger gets
        assert not answer.done()
        with chat_server(good, port=port):
            assert [output.text for output in answer.result(timeout=10)] == ["question 2 / 102"]


@pytest.mark.parametrize("code", FINAL)
def test_refusals_are_final_at_once(code):
    elsewhere = {"Location": "http://127.0.0.1:9/v1/chat/completions"} if code == 307 else {}
    with chat_server(*[status(code, **elsewhere)] * 4) as server:
        with pytest.raises(DesaError, match=rf"the server answered {code} .*{FINAL[code]}"):
            OpenAIGenerator(config(server.url)).generate([ask(1)])
        assert len(server.requests) == 1


def test_the_key_is_sent_and_shown_nowhere(monkeypatch, caplog, capfd):
    monkeypatch.setenv("SOME_KEY", KEY)
    leak = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    for behaviours in (
        [status(401, leak)],
        [status(500, leak)] * 4,
        [body(f"key {KEY}".encode())] * 4,
    ):
        with chat_server(*behaviours) as server:
            engine = OpenAIGenerator(config(server.url, api_key_env="SOME_KEY"))
            with pytest.raises(DesaError) as caught:
                engine.generate([ask(1)])
            assert server.requests[0][1]["Authorization"] == f"Bearer {KEY}"
            shown = [
                str(caught.value),
                repr(caught.value),
                repr(engine.client),
                repr(engine.config),
                caplog.text,
            ]
            assert KEY not in "".join([*shown, *capfd.readouterr()])
            assert "***" in str(caught.value)


def test_without_a_key_none_is_sent_and_a_missing(monkeypatch):
    """Without a key none is sent and a missing one is an error."""
    with chat_server() as server:
        OpenAIGenerator(config(server.url)).generate([ask(1)])
        assert "Authorization" not in server.requests[0][1]
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(DesaError, match="SOME_KEY: the variable is not set"):
        OpenAIGenerator(config("http://127.0.0.1:1/v1", api_key_env="SOME_KEY"))
    monkeypatch.setenv("SOME_KEY", f"{KEY}\nX-Injected: 1")
    with pytest.raises(DesaError) as caught:
        OpenAIGenerator(config("http://127.0.0.1:1/v1", api_key_env="SOME_KEY"))
    assert KEY not in str(caught.value)


def test_outputs_keep_the_order_of_requests_whatever():
    """Outputs keep the order of requests whatever the concurrency."""
    wanted = [f"question {number} / {100 + number}" for number in range(20)]
    for concurrency in (1, 6):
        with chat_server(slow(0.2), status(500), slow(0.1), status(429)) as server:
            engine = OpenAIGenerator(config(server.url, concurrency=concurrency))
            assert [
                output.text for output in engine.generate([ask(number) for number in range(20)])
            ] == wanted
            assert server.most <= concurrency
    with chat_server() as server:
        assert OpenAIGenerator(config(server.url)).generate([]) == []


def test_one_final_refusal_ends_the_call_without_waiting():
    """One final refusal ends the call without waiting for the rest."""
    with chat_server(status(401), *[status(429, Retry_After="30")] * 50) as server:
        started = time.monotonic()
        with pytest.raises(DesaError, match="401"):
            OpenAIGenerator(config(server.url, concurrency=4, max_backoff_s=30)).generate(
                [ask(n) for n in range(20)]
            )
        assert time.monotonic() - started < 5
        assert len(server.requests) < 20


def test_the_request_says_all_that_decides_the_text():
    with chat_server() as server:
        OpenAIGenerator(config(server.url)).generate([ask(1, schema=texts_schema(5))])
        plain = OpenAIGenerator(config(server.url + "/", extended_sampling=False))
        plain.generate([ask(2)])
    (path, _, full), (_, _, lean) = server.requests
    assert path == "/v1/chat/completions"
    assert full == {
        "model": "m",
        "messages": [{"role": "user", "content": "question 1"}],
        "seed": 101,
        "max_tokens": 9,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "output", "strict": True, "schema": dict(texts_schema(5))},
        },
    }
    assert set(lean) == {"model", "messages", "seed", "max_tokens", "temperature", "top_p"}


def test_a_server_with_short_seeds_gets_the_low_bits():
    asked = replace(ask(1), seed=(5 << 32) + 7)
    with chat_server() as server:
        for bits in (63, 32):
            OpenAIGenerator(config(server.url, seed_bits=bits)).generate([asked])
    assert [sent["seed"] for _, _, sent in server.requests] == [(5 << 32) + 7, 7]


def test_texts_that_utf8_cannot_hold_and_missing_texts_are_still():
    """Texts that utf8 cannot hold and missing texts are still records."""
    odd = completion("x").replace(b'"x"', b'"a \\ud800 b \\ud83d\\ude00"')
    bare = b'{"choices": [{"message": {"content": "t"}, "finish_reason": null}]}'
    with chat_server(body(odd), says(None, "content_filter"), body(bare)) as server:
        engine = OpenAIGenerator(config(server.url, concurrency=1))
        first, second, third = engine.generate([ask(1), ask(2), ask(3)])
    assert first.text == "a \ufffd b \U0001f600"
    assert (second.text, second.finish_reason) == ("", "content_filter")
    assert (third.finish_reason, third.prompt_tokens, third.completion_tokens) == (None, None, None)


def test_a_shard_through_a_server_has_retry_and_fallback(tmp_path):
    prompt = load_prompt("references")
    bad, fine = json.dumps(["only one"]), json.dumps(FIVE)
    first, again = (
        [says(bad), says(fine), says(fine), says(bad)],
        [status(500), says(fine), says(fine, "length")],
    )
    with chat_server(*first, *again) as server:
        engine = load_generator(config(server.url, concurrency=1), model_home=tmp_path)
        rows = generate_records(
            engine,
            prompt,
            generator="server",
            dataset="demo",
            draw=0,
            query_ids=["q1", "q2", "q3", "q4"],
            query_texts=["one", "two", "three", "four"],
        )
    assert rows["fallback"].to_list() == [False, False, False, True]
    assert rows["retries"].to_list() == [1, 0, 0, 1]
    assert rows["rejected"].to_list() == [[bad], [None], [None], [bad]]
    assert rows["texts"].to_list() == [FIVE, FIVE, FIVE, []]
    assert rows["reason"].to_list() == [
        None,
        None,
        None,
        "the output was cut off at the token limit",
    ]


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000/v1", "ftp://x/v1", "http://user:pass@x/v1", "http://x/v1?key=1", ""]
)
def test_addresses_that_could_leak_or_not_work_are_refused(url):
    with pytest.raises(ValueError, match="base_url"):
        config(url)


def test_good_answers_are_what_the_table_compares_with():
    with chat_server(good) as server:
        output = OpenAIGenerator(config(server.url)).generate([ask(4)])[0]
    assert re.fullmatch(r"question 4 / 104", output.text)
    assert (output.finish_reason, output.prompt_tokens, output.completion_tokens) == ("stop", 7, 3)
