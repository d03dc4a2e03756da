"""Generation with vLLM: one model, loaded once, held by one process.

One thread loads the engine and steps it; requests join it whenever they come and are batched as
vLLM likes. With `batch_invariant` (a CPU: one thread, float32) an output does not depend on it.
XGrammar constrains the form of structured outputs.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import Output, Request
from desa_ray.engines.engine_loop import EngineLoop
from desa_ray.engines.generator_files import GeneratorFiles
from desa_ray.engines.vllm_start import check_before, prepare_environment, start
from desa_ray.errors import DesaError

FINISHED = ("stop", "length")
AHEAD = 4  # queries in the engine's hands, for each that it works on: outputs differ in length


class VllmGenerator:
    """A `StreamingEngine` on vLLM.

    Args:
        config: kind `vllm`.
        files: the model's folder.
        model, revision: what the records say of it.
        threads: CPU threads where batch-invariant mode leaves the choice.

    Raises:
        DesaError: vLLM does not start; one wording per cause.
    """

    def __init__(
        self,
        config: GeneratorConfig,
        files: GeneratorFiles,
        *,
        model: str,
        revision: str | None,
        threads: int = 1,
    ):
        self.model, self.revision = model, revision
        prepare_environment(config, threads)
        check_before(config, files)
        self.loop = EngineLoop(partial(VllmSteps, config, files), f"generator {config.name}")
        self.rows_at_once = AHEAD * self.loop.engine.concurrency

    def submit(self, request: Request) -> Future[Output]:
        """Have a request answered, beside all others that are in.

        The future raises:
            DesaError: the request does not fit into `generator.max_model_len`, or vLLM gave it up.
            EngineFailed: vLLM cannot go on.
        """
        return self.loop.submit(request)

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """One output per request, in order; errors as for `submit`."""
        answers = [self.submit(request) for request in requests]
        try:
            return [answer.result() for answer in answers]
        finally:
            for answer in answers:
                answer.cancel()


class VllmSteps:
    """vLLM's offline engine, a step at a time. Its sums may depend on how many threads the calling
    one uses, so one thread makes all calls.
    """

    def __init__(self, config: GeneratorConfig, files: GeneratorFiles):
        self.config = config
        self.llm = start(config, files)
        self._requests: dict[str, Request] = {}

    @property
    def concurrency(self) -> int:
        """Requests that it works on at the same time."""
        return int(self.llm.llm_engine.vllm_config.scheduler_config.max_num_seqs)

    def add(self, request: Request) -> str:
        """Take a request in. Raises DesaError where it does not fit."""
        from vllm.exceptions import VLLMValidationError  # pyright: ignore[reportMissingImports]

        messages = [list(map(dict, request.messages))]
        try:
            [name] = self.llm.enqueue_chat(messages, [self.parameters(request)], use_tqdm=False)
        except (ValueError, VLLMValidationError) as error:
            raise self._refused(str(error).splitlines()[0]) from error
        name = _asked_as(name)
        self._requests[name] = request
        return name

    def step(self) -> Iterator[tuple[str, Output | DesaError]]:
        """One pass of the model over what is in."""
        for result in self.llm.llm_engine.step():
            if result.finished:
                yield self._outcome(result)

    def _outcome(self, result: Any) -> tuple[str, Output | DesaError]:
        name = _asked_as(result.request_id)
        try:
            return name, self._output(result, self._requests.pop(name))
        except DesaError as error:
            return name, error

    @staticmethod
    def parameters(request: Request) -> Any:
        """How vLLM samples a request's output."""
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]
        from vllm.sampling_params import StructuredOutputsParams  # pyright: ignore

        sampling, schema = request.sampling, request.schema
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_new_tokens,
            seed=request.seed,
            structured_outputs=StructuredOutputsParams(json=dict(schema)) if schema else None,
        )

    def _output(self, result: Any, request: Request) -> Output:
        completion = result.outputs[0]
        made, reason = len(completion.token_ids), completion.finish_reason
        if reason not in FINISHED:
            raise DesaError(
                f"a request to vLLM failed: {reason}",
                where=f"generator {self.config.name}",
                hint="run again",
            )
        if reason == "length" and made < request.sampling.max_new_tokens:
            raise self._refused(f"a request was cut after {made} tokens at the end of the context")
        return Output(completion.text, reason, len(result.prompt_token_ids), made)

    def _refused(self, what: str) -> DesaError:
        hint = (
            f"raise generator.max_model_len (now {self.config.max_model_len}), up to the model's"
            " limit"
        )
        return DesaError(what, where=f"generator {self.config.name}", hint=hint)


def _asked_as(name: str) -> str:
    """The number of a request: inside, vLLM adds random characters to it."""
    return name.partition("-")[0]
