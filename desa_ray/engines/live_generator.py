"""Generation by asking an engine: queries of one draw become generation records (method.md section
2), each reported as soon as it is done.

Every request has its own seed, made from what is asked. An invalid output is retried once under the
same seed with the reason as a further turn; if that fails too, the query and draw falls back,
flagged. Nothing here depends on which queries share a call, so shards may be cut anywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

from desa_ray.core.references import Verdict, check_references, check_texts
from desa_ray.core.seeds import request_seed
from desa_ray.engines.chat import (
    ChatEngine,
    Output,
    Request,
    SamplingSettings,
    StreamingEngine,
)
from desa_ray.engines.prompts import Prompt
from desa_ray.types import canonical_json

PROTOCOL = 1  # part of every seed; a change of seeds, retry or feedback needs a new number
FEEDBACK = (
    "That output was rejected: {reason}. Answer the same request again, without this mistake."
)


def texts_schema(count: int) -> Mapping[str, Any]:
    """JSON schema of an array of exactly `count` strings."""
    return {"type": "array", "items": {"type": "string"}, "minItems": count, "maxItems": count}


@dataclass(frozen=True)
class _Answer:
    """A request's last output with its verdict, and the first one where it was retried."""

    request: Request
    output: Output
    verdict: Verdict
    first: Output | None = None

    @property
    def outputs(self) -> list[Output]:
        return [self.output] if self.first is None else [self.first, self.output]


@dataclass(frozen=True)
class GeneratedRow:
    """The record of one query, by column, and the engine's seconds for it where it tells them."""

    fields: Mapping[str, Any]
    seconds: float | None


def decoding(prompt: Prompt) -> dict[str, Any]:
    """The decoding settings as records hold them."""
    settings = {"max_new_tokens": prompt.max_new_tokens, "temperature": prompt.temperature}
    settings |= {"top_p": prompt.top_p, "top_k": prompt.top_k}
    return settings | {"structured": prompt.structured, "protocol": PROTOCOL}


def generated_rows(
    engine: ChatEngine,
    prompt: Prompt,
    *,
    generator: str,
    dataset: str,
    draw: int,
    query_ids: Sequence[str],
    query_texts: Sequence[str],
) -> Iterator[GeneratedRow]:
    """Generates one draw of a prompt for some queries, which come as they are done.

    Args:
        engine: a loaded engine; what it has begun is given up where the iterator is closed.
        prompt: what is asked, and how its outputs are judged.
        generator: the generator's name, for records.
        dataset: the data set's name: chooses the template and enters the seeds.
        draw: the draw's number, from 0.
        query_ids, query_texts: the queries, aligned, in any order.

    Raises:
        DesaError: what the engine raises; the rows before it are good.
    """
    requests = requests_of(prompt, dataset, draw, query_ids, query_texts)
    made_by = {"generator": generator, "model": engine.model, "revision": engine.revision}
    by_query: dict[int, dict[int, _Answer]] = {}
    for number, answer in _answers(engine, prompt, requests):
        query, item = divmod(number, prompt.requests)
        own = by_query.setdefault(query, {})
        own[item] = answer
        if len(own) == prompt.requests:
            done = [own[item] for item in range(prompt.requests)]
            named = {"query_id": query_ids[query], "prompt": prompt.name, "draw": draw}
            yield GeneratedRow({**named, **_row(prompt, done), **made_by}, _seconds(done))
            del by_query[query]


def requests_of(
    prompt: Prompt, dataset: str, draw: int, query_ids: Sequence[str], query_texts: Sequence[str]
) -> list[Request]:
    """What one draw of a prompt asks first: `prompt.requests` requests per query, one query
    after the other.
    """
    return [
        _request(prompt, dataset, draw, query_id, text, item)
        for query_id, text in zip(query_ids, query_texts, strict=True)
        for item in range(prompt.requests)
    ]


def _request(
    prompt: Prompt, dataset: str, draw: int, query_id: str, text: str, item: int
) -> Request:
    seed = request_seed(
        protocol_version=PROTOCOL,
        dataset=dataset,
        prompt_hash=prompt.hash,
        query_id=query_id,
        draw=draw,
        item=item,
    )
    sampling = SamplingSettings(
        prompt.max_new_tokens, prompt.temperature, prompt.top_p, prompt.top_k
    )
    return Request(
        prompt.messages(text, dataset),
        seed,
        sampling,
        texts_schema(prompt.texts_per_request) if prompt.structured else None,
    )


def _answers(
    engine: ChatEngine, prompt: Prompt, requests: Sequence[Request]
) -> Iterator[tuple[int, _Answer]]:
    """The answer to each request, by number; those with an invalid first output were asked once
    more.
    """
    if isinstance(engine, StreamingEngine):
        yield from _streamed(engine, prompt, requests)
    else:
        yield from enumerate(_in_two_calls(engine, prompt, requests))


def _streamed(
    engine: StreamingEngine, prompt: Prompt, requests: Sequence[Request]
) -> Iterator[tuple[int, _Answer]]:
    done: SimpleQueue[tuple[int, Future[Output]]] = SimpleQueue()
    asked: list[Future[Output]] = []
    first: dict[int, Output] = {}

    def ask(number: int, request: Request) -> None:
        asked.append(engine.submit(request))
        asked[-1].add_done_callback(lambda future: done.put((number, future)))

    try:
        for number, request in enumerate(requests):
            ask(number, request)
        left = len(requests)
        while left:
            number, future = done.get()
            output = future.result()
            before = first.get(number)
            answer = _Answer(requests[number], output, _judged(prompt, output), before)
            if answer.verdict.valid or before is not None:
                left -= 1
                yield number, answer
            else:
                first[number] = output
                ask(number, _with_feedback(answer))
    finally:
        for future in asked:
            future.cancel()


def _in_two_calls(engine: ChatEngine, prompt: Prompt, requests: Sequence[Request]) -> list[_Answer]:
    answers = [
        _Answer(request, output, _judged(prompt, output))
        for request, output in zip(requests, engine.generate(requests), strict=True)
    ]
    invalid = [number for number, answer in enumerate(answers) if not answer.verdict.valid]
    again = [_with_feedback(answers[number]) for number in invalid]
    for number, output in zip(invalid, engine.generate(again) if again else [], strict=True):
        answer = answers[number]
        answers[number] = replace(
            answer, output=output, verdict=_judged(prompt, output), first=answer.output
        )
    return answers


def _with_feedback(answer: _Answer) -> Request:
    turns = (
        {"role": "assistant", "content": answer.output.text},
        {"role": "user", "content": FEEDBACK.format(reason=answer.verdict.reason)},
    )
    return replace(answer.request, messages=[*answer.request.messages, *turns])


def _judged(prompt: Prompt, output: Output) -> Verdict:
    if prompt.structured:
        return check_references(
            output.text,
            finish_reason=output.finish_reason,
            system_prompt=prompt.system,
            count=prompt.texts_per_request,
        )
    return check_texts([output.text], prompt.texts_per_request)


def _row(prompt: Prompt, answers: Sequence[_Answer]) -> dict[str, Any]:
    """What one query's answers say; one invalid answer makes the whole row a fallback."""
    reasons = [
        f"request {item}: {answer.verdict.reason}" if prompt.requests > 1 else answer.verdict.reason
        for item, answer in enumerate(answers)
        if not answer.verdict.valid
    ]
    outputs = [output for answer in answers for output in answer.outputs]
    return {
        "texts": (
            []
            if reasons
            else [prompt.cut(text) for answer in answers for text in answer.verdict.texts or ()]
        ),
        "raw": [answer.output.text for answer in answers],
        "rejected": [answer.first.text if answer.first else None for answer in answers],
        "prompt_hash": prompt.hash,
        "seeds": [answer.request.seed for answer in answers],
        "retries": len(outputs) - len(answers),
        "finish_reasons": [answer.output.finish_reason for answer in answers],
        "prompt_tokens": _total([output.prompt_tokens for output in outputs]),
        "completion_tokens": _total([output.completion_tokens for output in outputs]),
        "fallback": bool(reasons),
        "reason": reasons[0] if reasons else None,
        "decoding": canonical_json(decoding(prompt)),
    }


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _seconds(answers: Sequence[_Answer]) -> float | None:
    seconds = [output.seconds for answer in answers for output in answer.outputs]
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None
