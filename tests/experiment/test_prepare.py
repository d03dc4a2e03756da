"""Preparing stores the collection and finds every problem; planning after it writes nothing."""

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.data.load import fingerprint
from desa_ray.errors import Problems
from desa_ray.experiment.prepare import prepare
from desa_ray.experiment.run import plan
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.estimates import plan_stages
from desa_ray.pipeline.execute import missing
from desa_ray.pipeline.explain import explain
from desa_ray.pipeline.feasible import check_feasible
from desa_ray.pipeline.machine import Machine
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import dataset

MACHINE = Machine(cpus=2, gpus=0, memory=8 << 30)
TABLES = {"collection", "corpus", "queries", "qrels"}


def config(folder: Path, *overrides: str) -> RunConfig:
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        composed = compose("config", [*dataset(folder), "cluster=serial", *overrides])
    plain = OmegaConf.to_container(composed, resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder with its size and the time of its last change."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        stat = path.stat()
        found[str(path)] = (stat.st_size, stat.st_mtime_ns)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "home" / "store"))


def test_planning_after_preparing_writes_no_file(collection, store, tmp_path):
    """Neither for a cell whose part of the collection is new, nor for one that shares
    everything.
    """
    overrides = [
        (),
        ("method=original",),
        ("dataset.size=2", "dataset.sample=1"),
        ("ranking=lazy",),
    ]
    configs = [config(collection, *own) for own in overrides]
    prepared = prepare(configs, store, tmp_path / "home")
    before = tree(tmp_path)
    cells = plan(prepared)
    targets = [stage for cell in cells for stage in cell.targets]
    stages = plan_stages(store, targets, configs[0].cluster, MACHINE)
    check_feasible(missing(targets), configs[0].cluster)
    assert explain(store, targets)
    assert tree(tmp_path) == before
    stored = {planned.stage.name for planned in stages if planned.state == "stored"}
    assert stored == {"corpus", "queries", "qrels"}
    assert {path.name for path in (tmp_path / "home" / "store").iterdir()} >= {*TABLES, "selection"}


def test_a_prepared_collection_is_stored_once(collection, store, tmp_path):
    prepare([config(collection)], store, tmp_path / "home")
    before = tree(tmp_path / "home")
    (own,) = prepare([config(collection, "method=original")], store, tmp_path / "home")
    assert tree(tmp_path / "home") == before
    assert own.collection.counts["documents"] == 3


def test_all_problems_of_all_cells_are_told_once(collection, store, tmp_path):
    """The second cell has a problem of its own beside the one that both share."""
    lines = (collection / "generations" / "references.jsonl").read_text().splitlines()
    row = {**json.loads(lines[0]), "texts": "no list"}
    broken = "\n".join([json.dumps(row), *lines[1:]]) + "\n"
    (collection / "generations" / "references.jsonl").write_text(broken)
    configs = [config(collection), config(collection), config(collection, "fusion.kappa=-1")]
    with pytest.raises(Problems) as caught:
        prepare(configs, store, tmp_path / "home")
    found = str(caught.value).splitlines()
    assert len(found) == len(set(found)) == 3  # that line, and the draw that it leaves incomplete
    assert all("references" in line for line in found[:2])
    assert found[2].startswith("fusion.kappa: kappa is -1")


def test_what_cells_share_is_looked_at_once(collection, store, tmp_path, monkeypatch):
    """Hashing the source is asked for by each cell and done for each data set."""
    hashed = []

    def counted(own, *, data_home):
        hashed.append(own.missing_relevant)
        return fingerprint(own, data_home=data_home)

    monkeypatch.setattr("desa_ray.stages.collection.fingerprint", counted)
    kappas = [config(collection, f"fusion.kappa={kappa}") for kappa in (1, 2, 3)]
    prepare([config(collection)], store, tmp_path / "home")  # stores the collection
    hashed.clear()
    others = [config(collection, "dataset.missing_relevant=drop")] * 2
    prepare([*kappas, *others], store, tmp_path / "home")
    assert hashed.count("error") == 1
    assert 1 <= hashed.count("drop") <= 2  # hashed once more after it was read
