"""Samples and live text: only what the store lacks is asked for, whatever order the sets of queries
come in.
"""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from chat_server import ChatServer, chat_server
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.experiment.prepare import prepare_texts
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.execute import Quiet, run_stage
from desa_ray.pipeline.provenance import environment_hash, installed, maker, provenance
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Stage, Task
from desa_ray.stages.generation import read_generations
from desa_ray.store.artifacts import Store
from desa_ray.store.makers import described

PROMPT = "query2doc"


@pytest.fixture
def server():
    with chat_server() as server:
        yield server


@pytest.fixture
def config(small_slice, server) -> RunConfig:
    """8 queries, texts by a server that says which request it answers."""
    overrides = [
        "dataset=beir_folder",
        f"dataset.path={small_slice}",
        "dataset.name=slice",
        "cluster.shard_generations=2",
    ]
    overrides += [
        "generator=openai_server",
        "generator.model=m",
        f"generator.base_url={server.url}",
        "draws=1",
    ]
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        plain = OmegaConf.to_container(compose("config", overrides), resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def sampled(config: RunConfig, count: int) -> RunConfig:
    return replace(config, dataset=replace(config.dataset, sample=count))


def generated(config: RunConfig, folder: Path) -> Stage:
    """The one generation stage of a configuration, computed in the store below `folder`."""
    store = Store(folder / "store")
    stage = prepare_texts(config, [PROMPT], store, folder).stage(PROMPT, 0)
    executor = SerialBackend()
    run_stage(stage, executor, Quiet())
    executor.close()
    return stage


def texts(stage: Stage) -> pl.DataFrame:
    return read_generations(stage).records


def asked(server: ChatServer) -> int:
    """Requests since the last look."""
    count = len(server.requests)
    server.requests.clear()
    return count


def test_a_sample_of_a_generated_set_asks_nothing(config, server, tmp_path):
    whole = texts(generated(config, tmp_path))
    assert asked(server) == 8
    stage = generated(sampled(config, 3), tmp_path)
    assert asked(server) == 0
    own = texts(stage)
    assert own.equals(whole.filter(pl.col("query_id").is_in(own["query_id"].implode())))
    assert own["query_id"].to_list() == sorted(own["query_id"])
    assert (
        stage.artifact.manifest()["counts"] | {"rows": 3, "reused": 3}
        == stage.artifact.manifest()["counts"]
    )


def test_the_whole_set_after_a_sample_asks_for_the_rest(config, server, tmp_path):
    """The whole set after a sample asks for the rest only and is the same record."""
    afresh = generated(config, tmp_path / "afresh")
    assert asked(server) == 8
    generated(sampled(config, 3), tmp_path)
    generated(sampled(config, 5), tmp_path)
    assert asked(server) == 5
    stage = generated(config, tmp_path)
    assert asked(server) == 3
    assert stage.key == afresh.key
    assert texts(stage).equals(texts(afresh))
    assert stage.artifact.manifest()["content"] == afresh.artifact.manifest()["content"]


def test_a_run_resumed_by_another_version_names_both(config, tmp_path, monkeypatch):
    """Each shard says who made it; whoever ends the stage does not speak for the others."""
    store = Store(tmp_path / "store")
    stage = prepare_texts(config, [PROMPT], store, tmp_path).stage(PROMPT, 0)
    executor = SerialBackend()
    for source in stage.inputs.values():
        run_stage(source, executor, Quiet())
    contents = {role: s.artifact.manifest()["content"] for role, s in stage.inputs.items()}
    layout = stage.artifact.layout({**stage.work.layout(stage), "inputs": contents})
    first = stage.work.shards(layout)[0]
    executor.compute(stage.work.pool, [Task(stage, first)], lambda: None, lambda _: None)

    facts = tmp_path / "site" / "vllm-9.9.9.dist-info" / "METADATA"  # the engine is another now
    facts.parent.mkdir(parents=True)
    facts.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9.9\n", encoding="utf-8")
    monkeypatch.syspath_prepend(facts.parents[1])
    cached = (installed, environment_hash, provenance, maker)
    for function in cached:
        function.cache_clear()
    try:
        run_stage(stage, executor, Quiet())
    finally:
        monkeypatch.undo()
        for function in cached:
            function.cache_clear()
        executor.close()

    parts = stage.artifact.parts()
    versions = [part.made[0]["versions"].get("vllm") for part in parts.values() if part.made]
    assert len(versions) == 4
    assert versions[1:] == ["9.9.9"] * 3 != versions[:1]
    before, after = stage.artifact.manifest()["meta"]["makers"]
    assert before["environment"] != after["environment"]
    assert (before["versions"].get("vllm"), after["versions"]["vllm"]) == (versions[0], "9.9.9")
    assert "vllm 9.9.9" in described(after)
    afresh = generated(config, tmp_path / "afresh")
    assert afresh.artifact.manifest()["content"] == stage.artifact.manifest()["content"]
    (alone,) = afresh.artifact.manifest()["meta"]["makers"]
    assert alone == before
    assert not stage.artifact.damage()
    part = generated(sampled(config, 3), tmp_path)  # taken over, with who made it
    assert part.artifact.manifest()["meta"]["makers"] == [before, after]


def test_text_for_a_query_that_reads_otherwise_is_not_taken(config, server, small_slice, tmp_path):
    import shutil

    generated(config, tmp_path)
    assert asked(server) == 8
    folder = Path(shutil.copytree(small_slice, tmp_path / "slice"))
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    lines[0] = lines[0].replace('"text": "', '"text": "Really: ')
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    generated(replace(config, dataset=replace(config.dataset, path=str(folder))), tmp_path)
    assert asked(server) == 1
