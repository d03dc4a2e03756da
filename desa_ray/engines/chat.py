"""The interface of a live engine: chat requests with their own seeds in, raw outputs in the
same order out.

An engine knows nothing of prompts, queries or validation. Its one promise is that an output depends
on its request alone, never on the other requests.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

Message = Mapping[str, str]


@dataclass(frozen=True)
class SamplingSettings:
    """Decoding settings of a request; `max_new_tokens` counts generated tokens."""

    max_new_tokens: int
    temperature: float
    top_p: float
    top_k: int


@dataclass(frozen=True)
class Request:
    """One output to generate.

    Attributes:
        messages: chat turns, `role` and `content`; the model's own chat template makes text of
            them.
        seed: 0 <= seed < 2^63.
        schema: JSON schema that the output is constrained to; None for free text.
    """

    messages: Sequence[Message]
    seed: int
    sampling: SamplingSettings
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Output:
    """One raw output; token counts are None if a server does not report them.

    Attributes:
        finish_reason: `stop` for a complete output, `length` at the token limit, or the engine's
            own word.
        seconds: the request's share of the time that the engine was at work; None where it does not
            tell.
    """

    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float | None = field(default=None, compare=False)


class ChatEngine(Protocol):
    """A loaded engine. `model` and `revision` say what really answers; they go into the record."""

    @property
    def model(self) -> str: ...

    @property
    def revision(self) -> str | None: ...

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """One output per request, in order.

        Raises:
            DesaError: a request cannot be answered, now or ever; nothing of the batch is kept.
        """
        ...


@runtime_checkable
class StreamingEngine(Protocol):
    """A `ChatEngine` that also takes requests one by one, from any thread, and answers each as soon
    as it is done.

    Attributes:
        rows_at_once: of so many queries it wants shards at once, so that it always has requests.
    """

    rows_at_once: int

    def submit(self, request: Request) -> Future[Output]:
        """Have a request answered.

        The future raises:
            DesaError: the request cannot be answered, now or ever.
            EngineFailed: the engine cannot go on.
        """
        ...
