"""Generation with vLLM: one model, loaded once, held by one process.

Requests of a call are batched as vLLM likes; with `batch_invariant` (a CPU: one thread, float32) an
output does not depend on it. XGrammar constrains the form of structured outputs.
"""

from collections.abc import Sequence
from typing import Any

from desa_ray.config import GeneratorConfig
from desa_ray.engines.chat import Output, Request
from desa_ray.engines.generator_files import GeneratorFiles
from desa_ray.engines.vllm_start import check_before, prepare_environment, start
from desa_ray.errors import DesaError

FINISHED = ("stop", "length")


class VllmGenerator:
    """A `ChatEngine` on vLLM.

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
        self.config, self.model, self.revision = config, model, revision
        prepare_environment(config, threads)
        check_before(config, files)
        self.llm = start(config, files)

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """One output per request, in order.

        Raises:
            DesaError: a request does not fit into `generator.max_model_len`, or the engine gave one
                up.
        """
        if not requests:
            return []
        from vllm.exceptions import VLLMValidationError  # pyright: ignore[reportMissingImports]

        messages = [list(map(dict, request.messages)) for request in requests]
        parameters = [self._parameters(request) for request in requests]
        try:
            results = self.llm.chat(messages, parameters, use_tqdm=False)
        except (ValueError, VLLMValidationError) as error:
            raise self._refused(str(error).splitlines()[0]) from error
        return [
            self._output(result, request) for result, request in zip(results, requests, strict=True)
        ]

    @staticmethod
    def _parameters(request: Request) -> Any:
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
            f"raise generator.max_model_len (now {self.config.max_model_len}), as far as the model"
            " goes"
        )
        return DesaError(what, where=f"generator {self.config.name}", hint=hint)
