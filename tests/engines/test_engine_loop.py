"""An engine that is stepped: who asks and when changes no answer, errors reach whom they concern,
and rows that were done before it failed are not generated again.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.engines.chat import Output, Request, SamplingSettings, StreamingEngine
from desa_ray.engines.engine_loop import EngineLoop
from desa_ray.errors import DesaError, EngineFailed, PoisonShard
from desa_ray.experiment.prepare import prepare_texts
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.execute import Quiet, run_stage
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Pool, Stage
from desa_ray.stages.generation import read_generations
from desa_ray.store.artifacts import Store

SLOTS = 3


class Words:
    """A word a step for each of the first `SLOTS` requests; its seed says how many."""

    def __init__(self, fails_after: int | None = None):
        self.left = fails_after  # answers
        self.thread = threading.get_ident()
        self.inside: dict[str, tuple[Request, int]] = {}
        self.asked: list[Request] = []

    def add(self, request: Request) -> str:
        assert threading.get_ident() == self.thread
        if "refuse me" in request.messages[-1]["content"]:
            raise DesaError("does not fit")
        self.asked.append(request)
        name = str(len(self.asked))
        self.inside[name] = request, 0
        return name

    def step(self) -> Iterator[tuple[str, Output | DesaError]]:
        assert threading.get_ident() == self.thread
        for name in list(self.inside)[:SLOTS]:
            request, words = self.inside[name]
            self.inside[name] = request, words + 1
            if words + 1 == words_of(request):
                if self.left == 0:
                    raise RuntimeError("device lost")
                self.left = None if self.left is None else self.left - 1
                del self.inside[name]
                yield name, output(request)


def words_of(request: Request) -> int:
    return request.seed % 7 + 1


def output(request: Request) -> Output:
    text = " ".join([request.messages[-1]["content"]] * words_of(request))
    return Output(text, "stop", 1, words_of(request))


def request(text: str, seed: int) -> Request:
    return Request([{"role": "user", "content": text}], seed, SamplingSettings(9, 0.0, 1.0, -1))


def test_answers_do_not_depend_on_who_asks_and_when():
    loop = EngineLoop(Words, "words")
    requests = [request(f"text {number}", number * number) for number in range(60)]
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda one: loop.submit(one).result(10), requests))
    assert answers == [output(one) for one in requests]
    backwards = [loop.submit(one) for one in reversed(requests)]
    assert [answer.result(10) for answer in reversed(backwards)] == answers
    loop.close()


def test_what_the_engine_spent_is_shared_among_its_requests():
    loop = EngineLoop(Words, "words")
    futures = [loop.submit(request("text", seed)) for seed in range(20)]
    spent = [future.result(10).seconds or 0.0 for future in futures]
    assert all(seconds > 0 for seconds in spent)
    assert sum(spent) == pytest.approx(loop.busy_s)
    loop.close()


def test_a_call_has_the_engine_for_itself():
    loop = EngineLoop(Words, "words")
    futures = [loop.submit(request("text", 6)) for _ in range(8)]
    inside = loop.alone(lambda words: (len(words.inside), threading.get_ident() == words.thread))
    assert inside == (0, True)
    assert all(future.done() for future in futures)
    with pytest.raises(KeyError):
        loop.alone(lambda words: words.inside["absent"])
    assert loop.submit(request("later", 1)).result(10) == output(request("later", 1))
    loop.close()


def test_a_request_that_is_refused_concerns_nobody_else():
    loop = EngineLoop(Words, "words")
    good, bad = request("good", 6), request("refuse me", 1)
    futures = [loop.submit(one) for one in (good, bad, good)]
    with pytest.raises(DesaError, match="does not fit"):
        futures[1].result(10)
    assert [futures[0].result(10), futures[2].result(10)] == [output(good)] * 2
    loop.close()


def test_a_failed_engine_answers_nothing_more():
    loop = EngineLoop(lambda: Words(fails_after=2), "words")
    futures = [loop.submit(request("text", 6)) for _ in range(8)]
    assert [future.result(10).text for future in futures[:2]] == [" ".join(["text"] * 7)] * 2
    for future in [*futures[2:], loop.submit(request("later", 1))]:
        with pytest.raises(EngineFailed, match="words: the engine failed: RuntimeError: device"):
            future.result(10)
    loop.close()


def test_a_load_that_fails_is_raised_where_it_was_asked_for():
    def load() -> Words:
        raise DesaError("no such model")

    with pytest.raises(DesaError, match="no such model"):
        EngineLoop(load, "words")


class Engine:
    """`Words` as a generator; counts what each engine that was loaded was asked."""

    model, revision, rows_at_once = "words", None, 8
    loaded: ClassVar[list["Engine"]] = []

    def __init__(self, fails_after: int | None = None):
        self.loop = EngineLoop(lambda: Words(fails_after), "words")
        Engine.loaded.append(self)

    def submit(self, request: Request) -> Future[Output]:
        return self.loop.submit(request)

    @property
    def asked(self) -> list[int]:
        return [request.seed for request in self.loop.engine.asked]


@pytest.fixture
def stage(small_slice, tmp_path) -> Stage:
    """One draw of eight queries, in shards of four; `with_engines` gives it engines."""
    overrides = ["dataset=beir_folder", f"dataset.path={small_slice}", "dataset.name=slice"]
    overrides += ["generator=openai_server", "generator.model=m", "cluster.shard_generations=4"]
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        plain = OmegaConf.to_container(compose("config", overrides), resolve=True)
    assert isinstance(plain, dict)
    config = checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})
    Engine.loaded = []
    made = prepare_texts(config, ["query2doc"], Store(tmp_path / "store"), tmp_path)
    return made.stage("query2doc", 0)


def with_engines(stage: Stage, fails_after: list[int | None]) -> Stage:
    """The stage, whose engines fail after so many answers, one number for each engine."""
    left = list(fails_after)
    pool = Pool("words", lambda: Engine(left.pop(0) if left else None), in_flight=8)
    work: Any = stage.work
    return replace(stage, work=replace(work, pool=pool))


def test_rows_that_were_done_are_not_generated_again(stage, tmp_path):
    """An engine that fails in the middle of a shard is replaced; the next is asked for what is
    missing, and the record is the one of an engine that never failed.
    """
    assert isinstance(Engine(), StreamingEngine)
    Engine.loaded = []
    for source in stage.inputs.values():
        run_stage(source, SerialBackend(), Quiet())
    failing = with_engines(stage, [2, 3])
    run_stage(failing, SerialBackend(), Quiet())
    first, second, third = Engine.loaded
    answered = len(first.asked) + len(second.asked) + len(third.asked)
    assert len(first.asked) == 4
    assert len(set(first.asked) & set(second.asked)) == 2  # of four, two were done
    assert answered == 4 + 2 + 4 + 3
    found = read_generations(failing).records
    parts = failing.artifact.parts()
    assert sorted(parts) == ["part-00000.parquet", "part-00001.parquet"]
    makers = parts["part-00000.parquet"].made or ()
    assert len(makers) == 2
    assert all(maker["seconds"] > 0 for maker in makers)

    failing.artifact.discard()
    whole = with_engines(stage, [])
    run_stage(whole, SerialBackend(), Quiet())
    assert read_generations(whole).records.equals(found)


def test_an_engine_that_always_fails_stops_the_stage_and_keeps_rows(stage):
    for source in stage.inputs.values():
        run_stage(source, SerialBackend(), Quiet())
    failing = with_engines(stage, [1, 0, 1])
    with pytest.raises(PoisonShard, match="failed 3 times; last: words: the engine failed"):
        run_stage(failing, SerialBackend(), Quiet())
    kept = [name for name in failing.artifact.parts() if name.startswith("rows-")]
    assert kept == ["rows-00000-0000.parquet", "rows-00000-0001.parquet"]
    Engine.loaded = []
    again = with_engines(stage, [])
    run_stage(again, SerialBackend(), Quiet())
    assert len(Engine.loaded[0].asked) == 2 + 4
