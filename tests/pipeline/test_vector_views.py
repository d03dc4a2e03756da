"""Vectors hashed by their rows as they are written; snapshots as views of the whole."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import desa_ray.stages.score_layout as layout_module
from desa_ray.core import sorted_runs
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.pipeline.execute import Quiet, missing, present, run_stage
from desa_ray.pipeline.explain import explain
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Stage, ancestors, bounds
from desa_ray.stages import document_vectors
from desa_ray.stages.collection import read_rows
from desa_ray.stages.ranking import opened
from desa_ray.stages.stored_vectors import read_vectors, vector_shards
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.artifact import Artifact
from desa_ray.store.artifacts import Store
from desa_ray.store.tables import write_array
from tests.desa_fixtures import dataset

from .test_lazy import typed

SIZE = 30


def cell_of(folder: Path, home: Path, *overrides: str, shard: int = 1024) -> Cell:
    """Original on the small slice with a quick encoder, cut into shards of `shard` documents."""
    config = typed(*dataset(folder), "method=original", "draws=1", *overrides)
    encoder = replace(config.encoder, max_tokens=16)
    cluster = replace(config.cluster, shard_documents=shard, shard_queries=3)
    config = replace(config, encoder=encoder, cluster=cluster)
    store = Store(str(home / "store"))
    return Builder(prepare_cell(config, store, home)).cell()


def dense(cell: Cell) -> Stage:
    return next(
        stage
        for stage in ancestors(cell.targets)
        if stage.name == "ranking" and stage.params["kind"] == "dense"
    )


def run(*targets: Stage) -> None:
    backend = SerialBackend()
    for stage in missing(targets):
        run_stage(stage, backend, Quiet())
    backend.close()


def rows_of(stage: Stage) -> np.ndarray:
    return np.concatenate([read_vectors(stage, shard) for shard in vector_shards(stage)])


def by_rows(vectors: np.ndarray) -> str:
    """The content of vectors that are hashed by row, in plain Python."""
    header = {"dtype": "<f4", "row_shape": [vectors.shape[1]], "rows": "sha256"}
    whole = hashlib.sha256(json.dumps(header, sort_keys=True, separators=(",", ":")).encode())
    for row in vectors:
        whole.update(hashlib.sha256(row.astype("<f4").tobytes()).digest())
    return whole.hexdigest()


def count_reads(monkeypatch) -> list[str]:
    """The names of all parts that are read from now on."""
    read: list[str] = []
    known = Artifact.read_part

    def noted(artifact: Artifact, name: str) -> Path:
        read.append(name)
        return known(artifact, name)

    monkeypatch.setattr(Artifact, "read_part", noted)
    return read


@pytest.mark.long
def test_row_hashes_do_not_depend_on_shards(small_slice, tmp_path, monkeypatch):
    """One, four and fifteen shards; no shard but the first is read to finish."""
    monkeypatch.setattr(document_vectors, "HASHED_BY_ROW", 10)
    contents = set()
    for shard in (1024, 30, 7):
        vectors = dense(cell_of(small_slice, tmp_path / str(shard), shard=shard)).inputs["vectors"]
        read = count_reads(monkeypatch)
        run(vectors)
        faiss = [name for name in read if name.endswith(".faiss")]
        assert faiss == ["part-00000.faiss"]
        assert len(vectors.stored_shards()) == len(bounds(100, shard)) - 1
        contents.add(vectors.artifact.manifest()["content"])
    assert contents == {by_rows(rows_of(vectors))}


def test_vectors_of_another_writer_count(small_slice, tmp_path, monkeypatch):
    """Hashes are those of the vectors that are stored, not of those that were computed later."""
    monkeypatch.setattr(document_vectors, "HASHED_BY_ROW", 10)
    vectors = dense(cell_of(small_slice, tmp_path)).inputs["vectors"]
    run(vectors.inputs["corpus"])
    contents = {"corpus": vectors.inputs["corpus"].artifact.manifest()["content"]}
    vectors.artifact.layout({**vectors.work.layout(vectors), "inputs": contents})
    (shard,) = vectors.work.shards(vectors.stored_layout())
    rng = np.random.default_rng(1)
    first, second = (rng.standard_normal((100, 8)).astype(np.float32) for _ in range(2))
    for own in (first, second):
        own /= np.linalg.norm(own, axis=1, keepdims=True)
    monkeypatch.setattr(document_vectors, "write_array", lambda *_: None)  # killed in between
    document_vectors.store_vectors(vectors, shard, first)
    monkeypatch.undo()
    document_vectors.store_vectors(vectors, shard, second)
    run(vectors)
    assert vectors.artifact.manifest()["content"] == by_rows(first)
    assert rows_of(vectors).tobytes() == first.tobytes()


@pytest.mark.long
@pytest.mark.parametrize("hashed", [10, 1000])
def test_a_view_ranks_as_a_copy_does(small_slice, tmp_path, monkeypatch, hashed):
    """A snapshot's ranking from bits is the one from vectors that an earlier version copied."""
    monkeypatch.setattr(document_vectors, "HASHED_BY_ROW", hashed)
    size = f"dataset.size={SIZE}"
    ranking = dense(cell_of(small_slice, tmp_path / "new", size, shard=9))
    view = ranking.inputs["vectors"]
    run(ranking)
    assert list(view.artifact.parts()) == ["documents.npy"]
    assert view.rows == SIZE
    content = view.artifact.manifest()["content"]
    assert content == by_rows(rows_of(view)) or hashed == 1000

    old = dense(cell_of(small_slice, tmp_path / "old", size, shard=9))
    copy = old.inputs["vectors"]
    run(*copy.inputs.values())
    part, whole = (read_rows(copy.inputs[role])["id"].to_list() for role in ("corpus", "whole"))
    numbers = np.array([whole.index(key) for key in part], np.int64)
    contents = {role: s.artifact.manifest()["content"] for role, s in copy.inputs.items()}
    write_array(copy.artifact, "numbers.npy", numbers)
    copy.artifact.layout({"bounds": bounds(SIZE, 9), "inputs": contents})
    run(old)
    assert len([name for name in copy.artifact.parts() if name.startswith("part-")]) == 4
    assert rows_of(copy).tobytes() == rows_of(view).tobytes()
    made = [stage.artifact.manifest()["content"] for stage in (ranking, old)]
    assert made[0] == made[1]
    if hashed == 1000:
        assert content == copy.artifact.manifest()["content"]


def test_a_view_of_lost_vectors_is_made_again(small_slice, tmp_path):
    """Without the whole's vectors the view is not there; they are encoded again, and it counts."""
    cell = cell_of(small_slice, tmp_path, f"dataset.size={SIZE}")
    ranking = dense(cell)
    view = ranking.inputs["vectors"]
    run(ranking)
    content = ranking.artifact.manifest()["content"]
    bits = view.artifact.manifest()
    assert present(view)
    whole = view.inputs["vectors"]
    whole.artifact.discard()
    assert present(ranking)
    assert missing([ranking]) == []
    ranking.artifact.discard()
    assert not present(view)
    reasons = {r.stage.name: r.text for r in explain(view.store, [ranking])}
    assert "vectors" in reasons["snapshot_vectors"]
    assert [s.name for s in missing([ranking])] == ["vectors", "snapshot_vectors", "ranking"]
    run(ranking)
    assert view.artifact.manifest() == bits
    assert ranking.artifact.manifest()["content"] == content


@pytest.mark.long
@pytest.mark.parametrize("size", ["all", SIZE])
def test_rankings_merged_from_runs_are_the_same(small_slice, tmp_path, monkeypatch, size):
    """Tasks of 20 documents, whose queries do not fit otherwise: same contents, parts by query."""
    monkeypatch.setattr(layout_module, "GROUP_DOCUMENTS", 1)
    monkeypatch.setattr(sorted_runs, "PIECE", 13)
    home, given = tmp_path / "home", [f"dataset.size={size}", "evaluation.exclude_self=true"]
    ranking = dense(cell_of(small_slice, home, *given, shard=20))
    run(ranking)
    whole = ranking.artifact.manifest()["content"]
    lists = [opened(WorkerCache(), ranking).docs(row).tolist() for row in range(8)]
    ranking.artifact.discard()
    short = dense(cell_of(small_slice, home, *given, "cluster.memory_gb=1e-6", shard=20))
    assert short.key == ranking.key
    assert (short.work.worker_bytes(short, 1) or 0) > 0
    run(short)
    names = list(short.artifact.parts())
    assert len([name for name in names if name.startswith("keys-")]) > 4
    assert short.artifact.manifest()["content"] == whole
    assert [opened(WorkerCache(), short).docs(row).tolist() for row in range(8)] == lists
