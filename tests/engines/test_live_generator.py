"""Retry and fallback, as a table: which outputs an engine gives decides what the record says,
nothing else does.
"""

import json
from collections.abc import Sequence

import pytest

from desa_ray.core.seeds import request_seed
from desa_ray.engines.chat import Output, Request
from desa_ray.engines.generation import GENERATION_SCHEMA
from desa_ray.engines.live_generator import (
    FEEDBACK,
    PROTOCOL,
    decoding,
    texts_schema,
)
from desa_ray.engines.prompts import load_prompt
from desa_ray.types import canonical_json, sha256_json
from tests.generated import generate_records

FIVE = ["alpha one", "beta two", "gamma three", "delta four", "epsilon five"]
GOOD = json.dumps(FIVE)
BAD = json.dumps(["alpha", "ALPHA ", "c", "d", "e"])


class Scripted:
    """Gives the outputs written down for a query's text, one an ask; notes what it was asked."""

    model, revision = "scripted", None

    def __init__(self, script: dict[str, list[tuple[str, str]]]):
        self.script = {query: list(outputs) for query, outputs in script.items()}
        self.calls: list[list[Request]] = []

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        self.calls.append(list(requests))
        outputs = []
        for request in requests:
            query = next(
                query
                for query in self.script
                if query in request.messages[-1]["content"] + str(request)
            )
            text, reason = self.script[query].pop(0)
            outputs.append(Output(text, reason, 10, 3))
        return outputs


def run(engine, prompt="references", queries=("q1",), **changes):
    settings = {"generator": "g", "dataset": "demo", "draw": 1, "query_ids": list(queries)}
    settings["query_texts"] = [f"text of {query}" for query in queries]
    return generate_records(engine, load_prompt(prompt), **(settings | changes))


TABLE = {
    "valid at once": ([(GOOD, "stop")], 0, FIVE, None),
    "valid after the retry": ([(BAD, "stop"), (GOOD, "stop")], 1, FIVE, None),
    "twice invalid": ([(BAD, "stop"), ("[]", "stop")], 1, [], "the array has 0 items instead of 5"),
    "cut though it parses": ([(GOOD, "length"), (GOOD, "stop")], 1, FIVE, None),
    "cut twice": (
        [(GOOD, "length"), (GOOD, "length")],
        1,
        [],
        "the output was cut off at the token limit",
    ),
    "empty, then valid": ([("", "stop"), (GOOD, "stop")], 1, FIVE, None),
    "no reason given": ([(GOOD, None)], 0, FIVE, None),
}


@pytest.mark.parametrize(("outputs", "retries", "texts", "reason"), TABLE.values(), ids=TABLE)
def test_an_invalid_output_is_retried_once_then_falls_back(outputs, retries, texts, reason):
    engine = Scripted({"q1": outputs})
    row = run(engine).row(0, named=True)
    asked = retries + 1
    assert engine.script["q1"] == []
    assert row == {
        "query_id": "q1",
        "prompt": "references",
        "draw": 1,
        "texts": texts,
        "raw": [outputs[-1][0]],
        "rejected": [outputs[0][0] if retries else None],
        "prompt_hash": load_prompt("references").hash,
        "seeds": [engine.calls[0][0].seed],
        "retries": retries,
        "finish_reasons": [outputs[-1][1]],
        "prompt_tokens": 10 * asked,
        "completion_tokens": 3 * asked,
        "fallback": not texts,
        "reason": reason,
        "generator": "g",
        "model": "scripted",
        "revision": None,
        "text_hash": sha256_json(texts),
        "decoding": canonical_json(decoding(load_prompt("references"))),
    }


def test_short_prompts_ask_for_their_own_number_of_texts():
    """One request an answer, as long an array as the prompt says, validated as Prompt 1."""
    eight = [f"text number {n}" for n in range(8)]
    short = json.dumps(eight[:5])
    engine = Scripted({"q1": [(short, "stop"), (json.dumps(eight), "stop")]})
    row = run(engine, "hyde_short").row(0, named=True)
    assert (row["texts"], row["retries"]) == (eight, 1)
    [[first], [again]] = engine.calls
    assert (first.schema["minItems"], first.schema["maxItems"]) == (8, 8)
    assert "8 items" not in first.messages[-1]["content"]
    assert "has 5 items instead of 8" in again.messages[-1]["content"]
    one = Scripted({"q1": [('["Whales are large."]', "stop")]})
    assert run(one, "query2doc_short").row(0, named=True)["texts"] == ["Whales are large."]


def test_the_retry_keeps_seed_and_constraint_and_adds_output():
    """The retry keeps seed and constraint and adds output and reason as turns."""
    engine = Scripted({"q1": [(BAD, "stop"), (GOOD, "stop")]})
    run(engine)
    [[first], [again]] = engine.calls
    assert again.seed == first.seed
    assert again.schema == first.schema == texts_schema(5)
    assert again.sampling == first.sampling
    feedback = FEEDBACK.format(reason="item 2 is a duplicate of item 1")
    turns = [{"role": "assistant", "content": BAD}, {"role": "user", "content": feedback}]
    assert again.messages == [*first.messages, *turns]


def test_seeds_are_those_of_the_specification_and_differ():
    """Seeds are those of the specification and differ by all that is asked."""
    engine = Scripted({query: [("passage", "stop")] * 8 for query in ("q1", "q2")})
    rows = run(engine, "hyde", ("q1", "q2"))
    expected = [
        request_seed(
            protocol_version=PROTOCOL,
            dataset="demo",
            prompt_hash=load_prompt("hyde").hash,
            query_id=query,
            draw=1,
            item=item,
        )
        for query in ("q1", "q2")
        for item in range(8)
    ]
    assert [seed for seeds in rows["seeds"] for seed in seeds] == expected
    assert len(set(expected)) == 16
    assert [request.seed for request in engine.calls[0]] == expected
    assert {request.schema for request in engine.calls[0]} == {None}


def test_other_prompts_need_text_only_and_one_blank_request():
    """Other prompts need text only and one blank request makes the row a fallback."""
    cut = ("a passage cut at the lim", "length")
    engine = Scripted(
        {"q1": [cut] * 8, "q2": [cut] * 3 + [(" \n", "stop")] + [cut] * 4 + [("\t", "stop")]}
    )
    rows = run(engine, "hyde", ("q1", "q2")).rows(named=True)
    assert rows[0]["texts"] == [cut[0]] * 8
    assert (rows[0]["fallback"], rows[0]["retries"]) == (False, 0)
    assert rows[1]["texts"] == []
    assert (rows[1]["fallback"], rows[1]["retries"], rows[1]["reason"]) == (
        True,
        1,
        "request 3: item 1 is empty",
    )
    assert rows[1]["rejected"] == [None, None, None, " \n", None, None, None, None]
    assert rows[1]["raw"][3] == "\t"
    engine = Scripted({"q2": [cut] * 3 + [(" ", "stop")] + [cut] * 5})
    rescued = run(engine, "hyde", ("q2",)).row(0, named=True)
    assert (rescued["fallback"], rescued["retries"], len(rescued["texts"])) == (False, 1, 8)


def test_texts_are_cut_where_the_prompt_says_and_raw_output():
    """Texts are cut where the prompt says and raw output is not."""
    long = " ".join(f"w{number}" for number in range(200))
    row = run(Scripted({"q1": [(long, "length")]}), "query2doc").row(0, named=True)
    assert row["texts"] == [" ".join(f"w{number}" for number in range(120))]
    assert row["raw"] == [long]


def test_records_do_not_depend_on_splits_or_order_of_the_queries():
    script = {
        "q1": [(GOOD, "stop")],
        "q2": [(BAD, "stop"), (GOOD, "stop")],
        "q3": [(BAD, "stop"), (BAD, "stop")],
        "q4": [("[", "length"), (GOOD, "stop")],
    }
    whole = run(Scripted(script), queries=("q1", "q2", "q3", "q4"))
    turned = run(Scripted(script), queries=("q4", "q2", "q1", "q3"))
    parts = [run(Scripted(script), queries=part) for part in (("q1",), ("q2", "q3"), ("q4",))]
    assert whole.equals(turned)
    assert whole.equals(parts[0].vstack(parts[1]).vstack(parts[2]))


def test_a_shard_without_queries_is_an_empty_table():
    rows = run(Scripted({}), queries=())
    assert rows.height == 0
    assert rows.schema == GENERATION_SCHEMA


def test_unknown_token_counts_stay_unknown():
    class Silent(Scripted):
        def generate(self, requests: Sequence[Request]) -> list[Output]:
            return [Output(GOOD, "stop", None, None) for _ in requests]

    row = run(Silent({})).row(0, named=True)
    assert (row["prompt_tokens"], row["completion_tokens"]) == (None, None)
