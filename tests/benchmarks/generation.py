"""Tokens per second of vLLM through our pool against its own offline call, on one loaded engine.

    python -m tests.benchmarks.generation [--generator NAME] [--requests N] [--pairs P] [--json]

Runs in the environment that has vLLM (`make vllm-env`, or the extra gpu; a GPU's engine with
`--generator qwen2_5_7b`). The pool is the real one: the supervisor hands shards of 32 queries to a
worker of this process, which stores every record. The offline call gets all the same requests at
once. Both are warmed up, then called in turns; prints every ratio of their tokens per second, and
exits 1 where the median is below 0.95.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import ClusterConfig, GeneratorConfig, RunConfig
from desa_ray.config_check import checked
from desa_ray.engines.generator_files import find_generator
from desa_ray.engines.live_generator import requests_of
from desa_ray.engines.vllm_generator import VllmGenerator, VllmSteps
from desa_ray.errors import DesaError
from desa_ray.experiment.prepare import prepare_texts
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.execute import Quiet, run_stage
from desa_ray.pipeline.processes import MachinePlacement
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Pool, Stage, Task
from desa_ray.pipeline.supervisor import Supervisor
from desa_ray.pipeline.transport import Answer, Event, Loaded, Up
from desa_ray.pipeline.worker import Worker
from desa_ray.places import home
from desa_ray.stages.collection import read_rows
from desa_ray.stages.generation import read_generations
from desa_ray.store.artifacts import Store

TARGET = 0.95
PROMPT = "query2doc"
IN_FLIGHT = 64
WORDS = ("river", "stone", "light", "paper", "engine", "winter", "garden", "letter", "bridge")


class ThreadTransport:
    """Workers of this process; each shard has a thread."""

    def __init__(self) -> None:
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._workers: dict[int, Worker] = {}
        self._threads = ThreadPoolExecutor(IN_FLIGHT)

    def spawn(self, worker: int, pool: Pool) -> None:
        own = self._workers[worker] = Worker(pool)
        own.load()
        self._events.put(Up(worker, loaded=False))
        self._events.put(Loaded(worker, own.rows_at_once))

    def send(self, worker: int, task: Task) -> None:
        self._threads.submit(self._run, worker, task)

    def _run(self, worker: int, task: Task) -> None:
        error = None
        try:
            self._workers[worker].run(task)
        except DesaError as failure:
            error = failure
        self._events.put(Answer(worker, error, task))

    def poll(self, timeout_s: float) -> Sequence[Event]:
        try:
            event = self._events.get(timeout=timeout_s)
        except Empty:
            return []
        return [event] if event else []

    def wake(self) -> None:
        self._events.put(None)

    def kill(self, worker: int) -> None:
        raise AssertionError("nothing here hangs")

    def end(self, workers: Sequence[int]) -> None:
        for worker in workers:
            self._workers.pop(worker, None)

    def check(self) -> None: ...

    def close(self) -> None:
        self._threads.shutdown()


@dataclass(frozen=True)
class Pairs:
    """Tokens per second of the pool and of the offline call, in turns."""

    pool: list[float]
    offline: list[float]

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.pool, self.offline, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def made_up_collection(folder: Path, queries: int) -> Path:
    """A folder in BEIR layout whose queries have 3 to 120 words."""
    numbers = random.Random(1)
    folder.mkdir(parents=True)
    (folder / "qrels").mkdir()
    lines = []
    for number in range(queries):
        length = round(3 * 40 ** numbers.random())
        text = f"{number} " + " ".join(numbers.choices(WORDS, k=length))
        lines.append(json.dumps({"_id": f"q{number:04d}", "text": text}))
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "a river"}\n')
    judged = "".join(f"q{number:04d}\td1\t1\n" for number in range(queries))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return folder


def configured(generator: str, collection: Path, max_tokens: int, shard: int) -> RunConfig:
    overrides = [
        *("dataset=beir_folder", f"dataset.path={collection}", "dataset.name=made_up"),
        *(f"generator={generator}", "draws=1", f"decoding.max_tokens={max_tokens}"),
        f"cluster.shard_generations={shard}",
    ]
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        plain = OmegaConf.to_container(compose("config", overrides), resolve=True)
    assert isinstance(plain, dict)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def through_the_pool(engine: VllmGenerator, stage: Stage) -> tuple[int, float]:
    """Completion tokens and seconds of a stage, whose store is empty."""
    pool = Pool("engine", lambda: engine, in_flight=IN_FLIGHT)
    work: Any = stage.work
    own = replace(stage, work=replace(work, pool=pool))
    limits = ClusterConfig(kind="local", cpus=1, memory_gb=1.0)
    transport, placement = ThreadTransport(), MachinePlacement(limits)
    supervisor = Supervisor(transport, placement, limits, max_parallel_stages=1)
    try:
        started = time.perf_counter()
        run_stage(own, supervisor, Quiet())
        seconds = time.perf_counter() - started
    finally:
        supervisor.close()
    return int(read_generations(own).records["completion_tokens"].sum()), seconds


def offline(engine: VllmGenerator, stage: Stage) -> tuple[int, float]:
    """The same requests in one call of vLLM's own, in the engine's thread."""
    queries = read_rows(stage.inputs["queries"])
    work: Any = stage.work
    asked = requests_of(
        work.prompt,
        stage.params["dataset"],
        stage.params["draw"],
        queries["id"].to_list(),
        queries["text"].to_list(),
    )
    messages = [list(map(dict, one.messages)) for one in asked]
    parameters = [engine.loop.engine.parameters(one) for one in asked]

    def call(steps: VllmSteps) -> tuple[int, float]:
        started = time.perf_counter()
        results = steps.llm.chat(messages, parameters, use_tqdm=False)
        seconds = time.perf_counter() - started
        return sum(len(result.outputs[0].token_ids) for result in results), seconds

    return engine.loop.alone(call)


def loaded(config: GeneratorConfig, model_home: Path) -> VllmGenerator:
    """An engine in this process, which stays in its process group."""
    files = find_generator(config, model_home)
    threads = len(os.sched_getaffinity(0))
    return VllmGenerator(config, files, model=config.name, revision=None, threads=threads)


def stages(config: RunConfig, folder: Path, home: Path) -> Iterator[Stage]:
    """The same stage again and again, each time in an empty store."""
    number = 0
    while True:
        store = Store(folder / f"store-{number}")
        stage = prepare_texts(config, [PROMPT], store, home).stage(PROMPT, 0)
        for source in stage.inputs.values():
            run_stage(source, SerialBackend(), Quiet())
        yield stage
        number += 1


def measured(
    engine: VllmGenerator, made: Iterator[Stage], pairs: int, told: Callable[[str], None]
) -> Pairs:
    """`pairs` pairs of runs, the two kinds in turns, after one of each that does not count."""
    speeds: dict[str, list[float]] = {"pool": [], "offline": []}
    kinds: dict[str, Callable[..., tuple[int, float]]] = {
        "pool": through_the_pool,
        "offline": offline,
    }
    for pair in range(pairs + 1):
        stage = next(made)
        order = ["pool", "offline"] if pair % 2 else ["offline", "pool"]
        tokens: set[int] = set()
        for kind in order:
            count, seconds = kinds[kind](engine, stage)
            tokens.add(count)
            if pair:
                speeds[kind].append(count / seconds)
        assert len(tokens) == 1, f"both must generate the same text: {tokens} tokens"
        if pair:
            ours, theirs = speeds["pool"][-1], speeds["offline"][-1]
            told(
                f"pair {pair}: pool {ours:.1f}, offline {theirs:.1f} tokens/s, {ours / theirs:.3f}"
            )
    return Pairs(speeds["pool"], speeds["offline"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--generator", default="smollm2")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        collection = made_up_collection(folder / "made_up", options.requests)
        config = configured(options.generator, collection, options.max_tokens, 32)
        made = stages(config, folder, home())
        engine = loaded(config.generator, home() / "models")
        found = measured(engine, made, options.pairs, lambda line: print(line, flush=True))
    print(f"median of {options.pairs} ratios: {found.ratio:.3f} (target {TARGET})")
    if options.json:
        print(json.dumps({"pool": found.pool, "offline": found.offline, "ratio": found.ratio}))
    return int(found.ratio < TARGET)


if __name__ == "__main__":
    sys.exit(main())
