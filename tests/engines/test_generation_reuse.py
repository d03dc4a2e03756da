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

from desa_ray.config import RunConfig, parse
from desa_ray.experiment.prepare import prepare_texts
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.execute import Quiet, run_stage
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Stage
from desa_ray.stages.generation import read_generations
from desa_ray.store.artifacts import Store

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
    return parse({key: plain[key] for key in RUN_KEYS})


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
