"""The how-tos of CONTRIBUTING.md hold: each example runs as it is printed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from desa_ray.config import DatasetConfig, RunConfig
from desa_ray.config_check import checked
from desa_ray.data.raw import RawCollection
from desa_ray.data.validate import validated
from desa_ray.experiment.build import Builder
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.lines import Findings
from desa_ray.pipeline.execute import Quiet, missing, run_stage
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import read_rows
from desa_ray.store.artifacts import Store
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_table, write_table
from tests.infra.programs import REPOSITORY

TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text()


def _example(heading: str) -> str:
    section = TEXT.split(f"### {heading}\n")[1].split("\n### ")[0]
    return re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)[0]


def _python(heading: str) -> dict[str, Any]:
    names: dict[str, Any] = {
        "Any": Any,
        "Mapping": Mapping,
        "Path": Path,
        "dataclass": dataclass,
        "pl": pl,
        "DatasetConfig": DatasetConfig,
        "Findings": Findings,
        "RawCollection": RawCollection,
        "Finished": Finished,
        "Pool": Pool,
        "Shard": Shard,
        "Stage": Stage,
        "Work": Work,
        "Params": Params,
        "Rows": Rows,
        "Size": Size,
        "even_size": even_size,
        "bounds": bounds,
        "read_rows": read_rows,
        "read_table": read_table,
        "rows_content": rows_content,
        "shards_of": shards_of,
        "write_table": write_table,
        "__name__": __name__,
    }
    exec(compile(_example(heading), f"CONTRIBUTING.md: {heading}", "exec"), names)
    return names


def _config(folder: Path, *overrides: str):
    """Composed from the packaged configuration with a folder beside it, as --config-dir does."""
    with initialize_config_dir(str(folder), version_base="1.3"):
        path = "hydra.searchpath=[pkg://desa_ray.conf]"
        plain: Any = OmegaConf.to_container(
            compose("config", overrides=[path, *overrides]), resolve=True
        )
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def _folder(tmp_path: Path, group: str, text: str) -> Path:
    own = tmp_path / "own"
    name = yaml.safe_load(text)["name"]
    (own / group).mkdir(parents=True)
    (own / group / f"{name}.yaml").write_text(text)
    (own / "config.yaml").write_text((REPOSITORY / "conf/config.yaml").read_text())
    return own


def test_a_method(small_slice, tmp_path):
    own = _folder(tmp_path, "method", _example("A method"))
    source = ["dataset=beir_folder", f"dataset.path={small_slice}", "dataset.name=slice"]
    config = _config(own, "method=half_sparse", *source)
    cell = Builder(prepare_cell(config, Store(tmp_path / "store"), tmp_path)).cell()
    assert str(config.method.channels[1].weight) == "1/2"
    assert {stage.name for stage in cell.targets} == {"fusion"}


def test_an_encoder(tmp_path):
    own = _folder(tmp_path, "encoder", _example("An encoder"))
    config = _config(own, "encoder=my_bert").encoder
    assert (config.pooling, config.path) == ("cls", "/models/my-bert")


def test_a_stage(small_slice, tmp_path):
    examples = _python("A stage")
    lengths_stage = examples["lengths_stage"]
    source = ["dataset=beir_folder", f"dataset.path={small_slice}", "dataset.name=slice"]
    config = _config(REPOSITORY / "conf", *source)
    stored = []
    for size in (3, 100):
        own = Store(tmp_path / f"store{size}")
        executor = SerialBackend()
        queries = Builder(prepare_cell(config, own, tmp_path)).cell().collection.queries
        stage = lengths_stage(queries, examples["LengthsWork"](Pool("lengths", dict), size))
        for todo in missing([stage]):
            run_stage(todo, executor, Quiet())
        stored.append(stage.artifact.manifest())
        executor.close()
    assert stored[0]["counts"]["rows"] == 8
    assert len(stored[0]["parts"]) == 3
    assert stored[0]["content"] == stored[1]["content"]  # however it was cut


def test_a_data_set(tmp_path):
    read_notes = _python("A data set")["read_notes"]
    (tmp_path / "notes").mkdir()
    for name, text in (("b", "bees"), ("a", "ants")):
        (tmp_path / "notes" / f"{name}.txt").write_text(text)
    (tmp_path / "questions.tsv").write_text("q1\tWhat stings?\tb\n")
    findings = Findings()
    config = DatasetConfig(name="notes", kind="beir_folder", path=str(tmp_path))
    raw = read_notes(config, tmp_path, findings)
    collection = validated(raw, name="notes", missing_relevant="error", findings=findings)
    assert collection.documents["id"].to_list() == ["a", "b"]
    assert collection.qrels.rows() == [("q1", "b", 1)]
