"""Postings in ranges change no content and no record, whatever keeps or counts their scores."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import desa_ray.experiment.fused_by as fused_by_module
import desa_ray.stages.collection as collection_module
import desa_ray.stages.counted_fusion as counted_module
import desa_ray.stages.prefix as prefixes_module
import desa_ray.stages.score_layout as layout_module
from desa_ray.data import load_collection
from desa_ray.experiment.build import Builder
from desa_ray.experiment.pools import lucene_pool
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.records import cell_records
from desa_ray.pipeline.execute import Quiet, missing, run_stage, schedule
from desa_ray.pipeline.machine import Machine
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import ancestors
from desa_ray.stages.collection import read_rows
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import dataset

from .test_lazy import COMPLETE_ONLY, OWN_KEYS, typed

RANGES = {1: 100, 2: 50, 5: 20}  # of 100 documents, by how many each range holds
SPARSE = ("postings", "terms", "prefix", "ranking", "rank_counts", "fusion")


@pytest.fixture
def short(monkeypatch) -> None:
    """Heads of 20 documents; every range a group of its own, scored in pieces of 7."""
    for module in (fused_by_module, prefixes_module, counted_module):
        monkeypatch.setattr(module, "CUTOFFS", (10, 20))
    monkeypatch.setattr(prefixes_module, "FIRST_DEPTH", 20)
    monkeypatch.setattr(counted_module, "LEAST_WITHIN", 1)
    monkeypatch.setattr(layout_module, "GROUP_DOCUMENTS", 1)
    monkeypatch.setattr(layout_module, "RANGE_DOCUMENTS", 7)


@pytest.mark.long
def test_ranges_change_no_content_and_no_record(small_slice, tmp_path, short):
    """One, two and five ranges; complete, lazy and counted; in one process of Lucene."""
    given = ["method=sparse_only", "draws=1", "fusion.k=5", "evaluation.measures=[R@5]"]
    backend = SerialBackend()
    contents: dict[int, dict[str, str]] = {}
    records: dict[tuple[int, str], pl.DataFrame] = {}
    for count, documents in RANGES.items():
        home = tmp_path / str(count)
        contents[count] = {}
        for ranking in ("complete", "lazy", "counted"):
            config = typed(*dataset(small_slice), *given, f"ranking={ranking}")
            cluster = replace(config.cluster, range_documents=documents, shard_queries=3)
            cell = Builder(
                prepare_cell(replace(config, cluster=cluster), Store(str(home / "store")), home)
            ).cell()
            for stage in schedule(missing(cell.targets)):
                run_stage(stage, backend, Quiet())
            for stage in ancestors(cell.targets):
                if stage.name in SPARSE:
                    contents[count][stage.key.digest] = stage.artifact.manifest()["content"]
            records[count, ranking] = cell_records(cell)
        parts = len(list((home / "store" / "postings").glob("*/docs*.npy.json")))
        runs = len(list((home / "store" / "prefix").glob("*/runs-*.parquet.json")))
        counts = len(list((home / "store" / "rank_counts").glob("*/counts-*.parquet.json")))
        assert parts == count
        assert (runs > 0, counts > 0) == (count > 1, count > 1)
    backend.close()
    assert contents[1] == contents[2] == contents[5]
    assert len(contents[1]) > 6
    for ranking in ("complete", "lazy", "counted"):
        one = records[1, ranking]
        assert one.equals(records[2, ranking], null_equal=True)
        assert one.equals(records[5, ranking], null_equal=True)
        own = [*COMPLETE_ONLY, *OWN_KEYS]
        assert one.drop(own).equals(records[1, "complete"].drop(own), null_equal=True)


def test_as_many_jvms_as_ranges_and_memory(monkeypatch):
    """One JVM of a small corpus, of more one for each range that fits, on a cluster any number."""
    machine = Machine(64, 0, 24 << 30)
    monkeypatch.setattr("desa_ray.experiment.pools.this_machine", lambda: machine)
    config = typed("method=bm25", "sparse.heap=1g")
    assert lucene_pool(config, 5_183).size == 1
    assert lucene_pool(config, 300_000).size == 3
    assert lucene_pool(config, 10_000_000).size == 6  # 24 GB hold so many heaps of 1 GB, four times
    assert lucene_pool(typed("method=bm25", "cluster.indexers=9"), 5_183).size == 9
    assert lucene_pool(typed("method=bm25", "cluster=existing"), 10).size is None


def test_parts_of_long_texts_are_bounded(small_slice, tmp_path, monkeypatch):
    """A corpus of long texts has parts of fewer rows, and the same rows."""
    monkeypatch.setattr(collection_module, "BYTES_A_PART", 5_000)
    cell = prepare_cell(
        typed(*dataset(small_slice), "method=bm25"), Store(str(tmp_path / "store")), tmp_path
    )
    corpus = cell.collection.documents
    edges = corpus.stored_layout()["bounds"]
    whole = load_collection(cell.config.dataset, data_home=tmp_path).documents
    size = whole["text"].str.len_bytes().sum()
    assert len(edges) - 1 == -(-100 // (5_000 * 100 // size)) > 2
    assert read_rows(corpus).equals(whole)
    assert read_rows(corpus, 7, 61).equals(whole[7:61])


def test_postings_of_one_range_keep_their_parts(small_slice, tmp_path):
    """A corpus of one range is stored as before there were ranges."""
    config = typed(*dataset(small_slice), "method=bm25")
    cell = Builder(prepare_cell(config, Store(str(tmp_path / "store")), Path(tmp_path))).cell()
    found = next(stage for stage in ancestors(cell.targets) if stage.name == "postings")
    shards = found.work.shards(found.work.layout(found))
    names = "terms term_offsets indptr docs freqs norms statistics"
    assert [shard.parts for shard in shards] == [tuple(f"{name}.npy" for name in names.split())]
