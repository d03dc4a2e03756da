"""The slow proof: all of SciFact against published numbers, and the demo as a fresh user
runs it.
"""

import json
import time
from itertools import pairwise

import polars as pl
import pytest

from tests.desa_fixtures import summaries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]
METHODS = "method=original,shared,dense_only,sparse_only,desa"


def test_scifact_gives_the_published_numbers_and_desa_keeps(scifact_folder, desa, tmp_path):
    """Scifact gives the published numbers and desa keeps the support."""
    path = f"dataset.path={scifact_folder}"
    started = time.monotonic()
    desa("run", "-m", "dataset=scifact", path, METHODS, timeout=2400)
    cold_s = time.monotonic() - started
    assert "NO" not in desa("verify", "expected=scifact", path, timeout=2400).stdout
    sweep = sorted(tmp_path.glob("outputs/sweeps/*/*"))[-1]
    records = {
        number: pl.read_parquet(sweep / str(number) / "records.parquet") for number in (0, 4)
    }
    original = dict(zip(records[0]["query_id"], records[0]["sparse_support"], strict=True))
    assert all(
        original[q] == s for q, s in records[4].select("query_id", "sparse_support").iter_rows()
    )
    # Other kappas fuse and do nothing else: 13 methods and draws for each of three, 20 cells
    # written and logged.
    store = tmp_path / "home" / "store"
    before = set(store.glob("*/*/manifest.json"))
    started = time.monotonic()
    desa("run", "-m", "dataset=scifact", path, METHODS, "fusion.kappa=2,20,60,100", timeout=2400)
    new = [
        manifest.parent.parent.name for manifest in set(store.glob("*/*/manifest.json")) - before
    ]
    assert (set(new), len(new)) == ({"fusion"}, 39)
    assert time.monotonic() - started < 0.1 * cold_s


def test_the_demo_is_quick_and_a_second_run_recomputes_nothing(desa, tmp_path):
    started = time.monotonic()
    desa("run", "-m", "+experiment=demo", timeout=600)
    first_s = time.monotonic() - started
    assert first_s < 180
    started = time.monotonic()
    desa("run", "-m", "+experiment=demo", timeout=600)
    assert time.monotonic() - started < 30
    assert all(cell["stages"]["computed"] == 0 for cell in summaries(tmp_path))
    manifests = list((tmp_path / "home" / "store").glob("vectors/*/manifest.json"))
    assert len(manifests) == 1
    assert json.loads(manifests[0].read_text())["counts"]["rows"] >= 2000


def test_scifact_at_four_sizes_encodes_once_and_keeps(scifact_folder, desa, tmp_path):
    """Scifact at four sizes encodes once and keeps what is relevant."""
    source = scifact_folder
    common = [
        "dataset=scifact",
        f"dataset.path={source}",
        "encoder=minilm_l3",
        "generator=recorded",
    ]
    sizes = ["+experiment=corpus_size", "dataset.size=1000,2000,4000,all"]
    desa("run", "-m", *common, "method=original,desa", timeout=2400)
    store = tmp_path / "home" / "store"
    first = set(store.glob("*/*/manifest.json"))
    desa("run", *sizes, *common, timeout=2400)
    new = [path.parent.parent.name for path in set(store.glob("*/*/manifest.json")) - first]
    assert {"vectors", "text_vectors", "generation", "queries", "terms"}.isdisjoint(new)
    assert (new.count("snapshot_vectors"), new.count("postings")) == (3, 3)
    assert [cell["corpus_docs"] for cell in summaries(tmp_path)] == [
        1000,
        1000,
        2000,
        2000,
        4000,
        4000,
        5183,
        5183,
    ]
    folders = {path.parent for path in store.glob("corpus/*/manifest.json")}
    corpora = [
        set(pl.concat(map(pl.read_parquet, folder.glob("*.parquet")))["id"]) for folder in folders
    ]
    corpora.sort(key=len)
    judged = [
        line.split("\t") for line in (source / "qrels" / "test.tsv").read_text().splitlines()[1:]
    ]
    assert {document for _, document, grade in judged if int(grade) > 0} <= corpora[0]
    assert all(smaller < bigger for smaller, bigger in pairwise(corpora))
    assert [len(own) for own in corpora] == [1000, 2000, 4000, 5183]
