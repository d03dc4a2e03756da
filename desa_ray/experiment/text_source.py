"""Where the generated texts of a configuration come from: one stage per prompt and draw, checked
beforehand.

A method may need several prompts; texts of one prompt replace another's only if `generator.map`
says so. The replacement is the very same stage, so nothing is recorded or generated twice.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from desa_ray.config import RunConfig
from desa_ray.data import generations_folder
from desa_ray.engines.generator import generator_identity
from desa_ray.engines.generator_files import find_generator
from desa_ray.engines.prompts import Prompt, prompt_from
from desa_ray.engines.recorded_generator import recorded_fingerprint
from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.methods import RECORDED, given_prompt, own_prompts
from desa_ray.experiment.pools import generator_pool
from desa_ray.pipeline.execute import present
from desa_ray.pipeline.machine import this_machine
from desa_ray.pipeline.stage import Stage
from desa_ray.stages.collection import CollectionStages
from desa_ray.stages.generation import RecordedWork, generation_stage
from desa_ray.stages.generation_reuse import unknown_queries
from desa_ray.stages.live_generation import LiveWork
from desa_ray.store.artifacts import Store


@dataclass
class TextSource:
    """Generation stages of one configuration and collection."""

    config: RunConfig
    collection: CollectionStages
    store: Store
    home: Path
    _recordings: dict[str, tuple[Path, str]] = field(default_factory=dict)

    def check(self, prompts: Sequence[str]) -> dict[str, int]:
        """What was noticed in the recorded texts of these prompts; reads them unless the store has
        them already.

        Raises:
            Problems: a recording is missing or wrong.
        """
        counts: dict[str, int] = {}
        for prompt in {self.source(prompt): prompt for prompt in prompts}.values():
            stages = [self.stage(prompt, draw) for draw in range(self.config.draws)]
            work = stages[0].work
            found: Mapping[str, int] = {}
            if isinstance(work, RecordedWork):
                if all(present(stage) for stage in stages):
                    found = stages[0].artifact.manifest()["meta"]["recording"]
                else:
                    found = work.read(stages[0]).counts
            elif any(not present(stage) and unknown_queries(stage) for stage in stages):
                self._check_engine()
            for name, count in found.items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def stage(self, prompt: str, draw: int) -> Stage:
        """The texts of a prompt, or of the one that replaces it."""
        source = self.source(prompt)
        if self.config.generator.kind != RECORDED:
            return self._live(source, draw)
        folder, content = self._recording(source)
        origin = {
            "generator": self.config.generator.kind,
            "recording": content,
            "strict": self.config.generator.strict,
        }
        work = RecordedWork(str(folder), self.config.dataset.name, self.config.draws, source)
        label = f"{source.name} draw {draw}"
        return generation_stage(self.collection.queries, source, draw, origin, work, label)

    def _live(self, prompt: Prompt, draw: int) -> Stage:
        generator, cluster = self.config.generator, self.config.cluster
        identity = self._identity
        origin = {"generator": identity, "dataset": self.config.dataset.name}
        pool = generator_pool(self.config, identity, self.home / "models")
        work = LiveWork(pool, cluster.shard_generations, generator.name, prompt)
        label = f"{generator.name} {prompt.name} draw {draw}"
        return generation_stage(self.collection.queries, prompt, draw, origin, work, label)

    def _check_engine(self) -> None:
        """What this machine can know before an engine starts: on a cluster, its nodes
        have the say.
        """
        generator = self.config.generator
        if generator.kind != "vllm" or self.config.cluster.kind == "existing":
            return
        problems = []
        instead = "use cluster=existing, or import recorded text with generator=recorded"
        if importlib.util.find_spec("vllm") is None:
            what = f"generator {generator.name} needs vLLM, which is not installed here"
            problems.append(
                DesaError(what, where="generator", hint=f"install the gpu extra, {instead}")
            )
        wanted, gpus = generator.tensor_parallel_size, this_machine().gpus
        if generator.device == "cuda" and gpus < wanted:
            what = (
                f"generator {generator.name} needs {wanted} GPU{'s'[: wanted != 1]}, this machine"
                f" has {gpus}"
            )
            problems.append(DesaError(what, where="generator.device", hint=instead))
        if problems:
            raise Problems(problems)
        if generator.path or generator.package:
            find_generator(generator, self.home / "models")

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return generator_identity(self.config.generator)

    def source(self, prompt: str) -> Prompt:
        """The prompt whose texts are taken where a method asks for this one, as it is decoded."""
        return source_of(self.config, prompt)

    def _recording(self, prompt: Prompt) -> tuple[Path, str]:
        if prompt.name not in self._recordings:
            self._recordings[prompt.name] = recording_of(self.config, prompt, self.home)
        return self._recordings[prompt.name]


def source_of(config: RunConfig, prompt: str) -> Prompt:
    """The prompt whose texts are taken where a method asks for this one, as it is decoded."""
    if config.prompt is not None and config.prompt.name == prompt:
        words = prompt_from(config.prompt)
    else:
        own = own_prompts(config.method, config.prompt)
        words = given_prompt(prompt, config.generator, own)
    return words if config.generator.kind == RECORDED else words.decoded(config.decoding)


def recording_of(config: RunConfig, prompt: Prompt, home: Path) -> tuple[Path, str]:
    """The folder of a recording and the hash of its bytes.

    Raises:
        DesaError: there is no such folder, or it has no recording of the prompt.
    """
    if config.generator.folder is not None:
        folder = Path(config.generator.folder)
    else:
        folder = generations_folder(config.dataset, data_home=home / "data")
    if folder is None:
        raise DesaError(
            f"data set {config.dataset.name} has no recorded generations",
            where="generator.folder",
            hint=f"set it to the folder that holds {prompt.name}.jsonl",
        )
    return folder, recorded_fingerprint(folder, prompt)
