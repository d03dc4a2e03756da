"""Generation by any server that speaks OpenAI's chat completions, such as `vllm serve`.

Each request is one HTTP call with its own seed, several at a time. The server decides about
batching and precision, so only the stored outputs are reproducible; structured outputs are asked
for by JSON schema and validated like all others.
"""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictStr, ValidationError

from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import Output, Request
from desa_ray.engines.http_json import JsonClient, RetryPolicy
from desa_ray.errors import DesaError
from desa_ray.exchange import Stop, run

PATH = "/chat/completions"
Tokens = Annotated[int, Field(strict=True, ge=0, le=2**31)]


class OpenAIGenerator:
    """A `ChatEngine` on a server.

    Args:
        config: kind `openai`, with `base_url` and `model`.

    Raises:
        DesaError: the variable named by `api_key_env` holds no usable key.
    """

    def __init__(self, config: GeneratorConfig):
        assert config.base_url is not None
        assert config.model is not None
        self.config, self.model, self.revision = config, config.model, config.revision
        retry_policy = RetryPolicy(
            config.request_timeout_s, config.max_attempts, config.backoff_s, config.max_backoff_s
        )
        key = _key(config.api_key_env) if config.api_key_env else None
        self.client = JsonClient(
            config.base_url.rstrip("/"), retry_policy, f"generator {config.name}", key
        )

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """One output per request, in order.

        Raises:
            DesaError: the first request that was refused, or failed as often as the configuration
                allows.
        """
        stop = Stop()
        try:
            # In a thread of its own: a Ctrl-C in the middle of starting threads may leave their
            # locks taken for ever, and this thread only waits.
            return run(partial(self._all, requests, stop), threading.TIMEOUT_MAX)
        finally:
            # ends what waits for a server that has given up, or whose user has
            stop.set()

    def _all(self, requests: Sequence[Request], stop: Stop) -> list[Output]:
        pool = ThreadPoolExecutor(self.config.concurrency)
        try:
            calls = [pool.submit(self._answer, request, stop) for request in requests]
            done, _ = wait(calls, return_when=FIRST_EXCEPTION)
            if failed := next((call for call in done if call.exception()), None):
                failed.result()
            return [call.result() for call in calls]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)

    def _answer(self, request: Request, stop: Stop) -> Output:
        return self.client.post(PATH, self._payload(request), _output, stop)

    def _payload(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        payload: dict[str, Any] = {
            "model": self.model,
            "messages": [dict(turn) for turn in request.messages],
            "seed": request.seed & ((1 << self.config.seed_bits) - 1),
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if self.config.extended_sampling:
            # Named even where neutral: servers take what is not named from the model's own
            # generation settings.
            payload |= {"top_k": sampling.top_k, "min_p": 0.0, "repetition_penalty": 1.0}
        if request.schema is not None:
            schema = {"name": "output", "strict": True, "schema": dict(request.schema)}
            payload["response_format"] = {"type": "json_schema", "json_schema": schema}
        return payload


class _Message(BaseModel):
    content: StrictStr | None


class _Choice(BaseModel):
    message: _Message
    finish_reason: Annotated[StrictStr, Field(max_length=100)] | None


class _Usage(BaseModel):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None


class _Completion(BaseModel):
    """What of an answer is read; the rest may be anything."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Usage | None = None


def _output(answer: Any) -> Output:
    """Reads a completion; raises ValueError, naming the field, for what is none."""
    try:
        completion = _Completion.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place or 'answer'}: {first['msg']}") from None
    choice, usage = completion.choices[0], completion.usage or _Usage()
    text = _storable(choice.message.content or "")
    return Output(text, choice.finish_reason, usage.prompt_tokens, usage.completion_tokens)


def _storable(text: str) -> str:
    """JSON can hold lone surrogates, UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        hint = f"export {variable}, or set generator.api_key_env=null for a server without keys"
        raise DesaError(
            "the variable is not set", where=f"generator.api_key_env: {variable}", hint=hint
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise DesaError(
            "the key contains spaces or characters that a header cannot carry",
            where=f"generator.api_key_env: {variable}",
        )
    return key
