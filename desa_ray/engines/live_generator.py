"""Generation by asking an engine: queries of one draw become generation records (method.md section
2).

Every request has its own seed, made from what is asked. An invalid output is retried once under the
same seed with the reason as a further turn; if that fails too, the query and draw falls back,
flagged. Nothing here depends on which queries share a call, so shards may be cut anywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from desa_ray.core.references import (
    REFERENCES,
    Verdict,
    check_references,
    check_texts,
    request_seed,
)
from desa_ray.engines.chat import ChatEngine, Output, Request, SamplingSettings
from desa_ray.engines.generation import generation_frame
from desa_ray.engines.prompts import Prompt
from desa_ray.types import canonical_json

PROTOCOL = 1  # part of every seed; a change of seeds, retry or feedback needs a new number
FEEDBACK = (
    "That output was rejected: {reason}. Answer the same request again, without this mistake."
)


def texts_schema(count: int) -> Mapping[str, Any]:
    """JSON schema of an array of exactly `count` strings."""
    return {"type": "array", "items": {"type": "string"}, "minItems": count, "maxItems": count}


REFERENCES_SCHEMA = texts_schema(REFERENCES)


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


def decoding(prompt: Prompt) -> dict[str, Any]:
    """The decoding settings as records hold them."""
    settings = {"max_new_tokens": prompt.max_new_tokens, "temperature": prompt.temperature}
    settings |= {"top_p": prompt.top_p, "top_k": prompt.top_k}
    return settings | {"structured": prompt.structured, "protocol": PROTOCOL}


def generate_records(
    engine: ChatEngine,
    prompt: Prompt,
    *,
    generator: str,
    dataset: str,
    draw: int,
    query_ids: Sequence[str],
    query_texts: Sequence[str],
) -> pl.DataFrame:
    """Generates one draw of a prompt for some queries.

    Args:
        engine: a loaded engine.
        prompt: what is asked, and how its outputs are judged.
        generator: the generator's name, for records.
        dataset: the data set's name: chooses the template and enters the seeds.
        draw: the draw's number, from 0.
        query_ids, query_texts: the queries, aligned, in any order.

    Returns:
        Schema `GENERATION_SCHEMA`, one row per query, in the order of query ids.

    Raises:
        DesaError: what the engine raises; no row is returned then.
    """
    requests = [
        _request(prompt, dataset, draw, query_id, text, item)
        for query_id, text in zip(query_ids, query_texts, strict=True)
        for item in range(prompt.requests)
    ]
    answers = _answered(engine, prompt, requests)
    rows = []
    for number, query_id in enumerate(query_ids):
        own = answers[number * prompt.requests : (number + 1) * prompt.requests]
        row = _row(prompt, own)
        made_by = {"generator": generator, "model": engine.model, "revision": engine.revision}
        rows.append({"query_id": query_id, "prompt": prompt.name, "draw": draw, **row, **made_by})
    return generation_frame(rows)


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


def _answered(engine: ChatEngine, prompt: Prompt, requests: Sequence[Request]) -> list[_Answer]:
    """Answers to all requests; those with an invalid first output were asked once more."""
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
