"""Snapshots and samples as collections: what they keep, which keys they share, and vectors that
nobody encoded.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.data.subsets import hash_order
from desa_ray.errors import Problems
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.methods import ORIGINAL
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.execute import Quiet, missing, run_stage
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Stage, ancestors
from desa_ray.stages.collection import CollectionStages, read_rows
from desa_ray.stages.stored_vectors import read_vectors, vector_shards
from desa_ray.store.artifacts import Store


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def store(home) -> Store:
    return Store(str(home / "store"))


@pytest.fixture(scope="module")
def config(small_slice) -> RunConfig:
    """100 documents and 8 queries."""
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        composed = compose(
            "config", ["dataset=beir_folder", f"dataset.path={small_slice}", "dataset.name=slice"]
        )
    plain = OmegaConf.to_container(composed, resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def changed(config: RunConfig, **dataset) -> RunConfig:
    return replace(config, dataset=replace(config.dataset, **dataset))


def cell(config: RunConfig, store: Store, home: Path) -> Cell:
    return Builder(prepare_cell(config, store, home)).cell()


def keys(cell: Cell) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for stage in ancestors(cell.targets):
        found.setdefault(stage.name, set()).add(stage.key.digest)
    return found


def ids(stage: Stage) -> list[str]:
    return read_rows(stage)["id"].to_list()


def vectors(cell: Cell) -> Stage:
    return next(
        s.inputs["vectors"]
        for s in ancestors(cell.targets)
        if "vectors" in s.inputs and s.name == "ranking"
    )


def rows_of(stage: Stage) -> np.ndarray:
    return np.concatenate([read_vectors(stage, shard) for shard in vector_shards(stage)])


def relevant(collection: CollectionStages) -> set[str]:
    return {document for _, document, grade in read_rows(collection.qrels).iter_rows() if grade > 0}


def test_snapshots_are_nested_keep_what_is_relevant(config, store, home):
    """Snapshots are nested keep what is relevant and the order of the whole."""
    whole = cell(config, store, home).collection
    everything, needed = ids(whole.documents), relevant(whole)
    smaller: set[str] = set()
    for size in (20, 50, 99):
        own = cell(changed(config, size=size), store, home).collection
        found = ids(own.documents)
        assert len(found) == size == own.counts["documents"]
        assert found == [key for key in everything if key in set(found)]
        assert needed <= set(found)
        assert smaller < set(found) < set(everything)
        assert read_rows(own.qrels).equals(read_rows(whole.qrels))
        smaller = set(found)


def test_a_snapshot_shares_everything_that_comes_from_queries(config, store, home):
    """A snapshot shares everything that comes from queries alone."""
    whole, part = keys(cell(config, store, home)), keys(cell(changed(config, size=50), store, home))
    same = {"queries", "qrels", "generation", "text_vectors", "terms", "vectors"}
    assert {name for name in whole if whole[name] == part[name]} == same
    assert part["corpus"] > whole["corpus"]  # the whole's vectors need it


def test_a_snapshots_vectors_are_those_of_encoding_it_afresh(
    config, store, home, small_slice, tmp_path_factory
):
    """A snapshots vectors are those of encoding it afresh byte for byte."""
    executor = SerialBackend()
    config = replace(config, encoder=replace(config.encoder, max_tokens=24))  # quick
    part = cell(changed(config, size=50), store, home)
    kept = set(ids(part.collection.documents))
    folder = Path(shutil.copytree(small_slice, tmp_path_factory.mktemp("afresh") / "slice"))
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    kept_lines = [line for line in lines if json.loads(line)["_id"] in kept]
    (folder / "corpus.jsonl").write_text("".join(kept_lines), encoding="utf-8")
    afresh = cell(changed(config, path=str(folder)), store, home)
    for stage in missing([vectors(part), vectors(afresh)]):
        run_stage(stage, executor, Quiet())
    executor.close()
    own, other = (vectors(which).artifact for which in (part, afresh))
    assert (vectors(part).name, vectors(afresh).name) == ("snapshot_vectors", "vectors")
    assert own.manifest()["content"] == other.manifest()["content"]
    assert list(own.parts()) == ["documents.npy"]
    assert rows_of(vectors(part)).tobytes() == rows_of(vectors(afresh)).tobytes()
    # the same rows are the same corpus, so the snapshot's own postings are those of the folder
    assert part.collection.documents.key == afresh.collection.documents.key
    assert {s.key for s in ancestors(part.targets) if s.name == "postings"} == {
        s.key for s in ancestors(afresh.targets) if s.name == "postings"
    }


def test_a_sample_is_the_first_judged_queries_by_hash(config, store, home, small_slice, tmp_path):
    """A sample is the first judged queries by hash with their judgments."""
    folder = Path(shutil.copytree(small_slice, tmp_path / "slice"))
    judged = ids(cell(config, store, home).collection.queries)
    first = [judged[place] for place in hash_order(judged)]
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as file:
        for number in range(50):  # some of these hash before all others
            file.write(json.dumps({"_id": f"unjudged{number}", "text": "anything"}) + "\n")
    own = cell(
        replace(changed(config, path=str(folder), sample=3), method=ORIGINAL), store, home
    ).collection
    assert ids(own.queries) == sorted(first[:3])
    assert set(read_rows(own.qrels)["query_id"]) == set(first[:3])
    many = cell(
        replace(changed(config, path=str(folder), sample=1000), method=ORIGINAL), store, home
    ).collection
    assert ids(many.queries) == judged


def test_a_sample_neither_encodes_documents_nor_indexes_them(config, store, home):
    """A sample neither encodes documents nor indexes them again."""
    whole, part = (
        keys(cell(config, store, home)),
        keys(cell(changed(config, sample=3), store, home)),
    )
    assert {name for name in whole if whole[name] == part[name]} == {
        "corpus",
        "vectors",
        "postings",
    }


def test_a_snapshot_is_the_same_for_every_sample(config, store, home):
    whole, part = (
        cell(changed(config, size=50, sample=sample), store, home) for sample in ("all", 2)
    )
    assert whole.collection.documents.key == part.collection.documents.key
    assert vectors(whole).key == vectors(part).key


@pytest.mark.parametrize("size", [1, 100, 101])
def test_a_size_that_gives_no_snapshot_is_refused(config, home, size, tmp_path):
    """A size that gives no snapshot is refused before anything runs."""
    store = Store(str(tmp_path / "store"))
    with pytest.raises(Problems, match=f"dataset.size: a snapshot of {size} documents"):
        cell(changed(config, size=size), store, home)
    assert {entry.stage for entry in store.list() if entry.complete} == {
        "collection",
        "corpus",
        "queries",
        "qrels",
    }
