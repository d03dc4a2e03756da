"""Corpus sizes and query samples from the command line: what is reused, and what is refused."""

from pathlib import Path

import polars as pl
import pytest

from tests.desa_fixtures import DOCUMENTS, QUERIES, dataset, summaries

COMMON = ["cluster=serial", "tracking.enabled=false"]


def manifests(home: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in (home / "store").glob("*/*/manifest.json"):
        found.setdefault(path.parent.parent.name, set()).add(path.parent.name)
    return found


@pytest.mark.long
def test_a_sweep_of_sizes_after_the_whole_encodes_and_generates(
    demo_slice, warm_home, desa, tmp_path
):
    """A sweep of sizes after the whole encodes and generates nothing."""
    before = manifests(warm_home)
    sizes = ["dataset.size=60,120,all", "method=original,desa"]
    desa("run", "-m", *dataset(demo_slice), *sizes, *COMMON)
    after = manifests(warm_home)
    new = {stage: len(own - before.get(stage, set())) for stage, own in after.items()}
    for stage in ("vectors", "text_vectors", "generation", "terms", "queries"):
        assert new[stage] == 0, stage
    assert (new["snapshot_vectors"], new["postings"]) == (2, 2)
    cells = summaries(tmp_path)
    assert [cell["corpus_docs"] for cell in cells] == [60, 60, 120, 120, DOCUMENTS, DOCUMENTS]
    assert all(cell["n_queries"] == QUERIES for cell in cells)
    # every dense list is as long as its corpus
    (sweep,) = tmp_path.glob("outputs/sweeps/*/*")
    lengths = [
        pl.read_parquet(sweep / str(n) / "records.parquet")["lengths"].list.first().unique()
        for n in (0, 2, 4)
    ]
    assert [own.to_list() for own in lengths] == [[60], [120], [DOCUMENTS]]


@pytest.mark.long
def test_a_sample_runs_on_its_own_queries(demo_slice, warm_home, desa, tmp_path):
    desa("run", *dataset(demo_slice), "dataset.sample=5", "method=original", *COMMON)
    (cell,) = summaries(tmp_path)
    assert (cell["n_queries"], cell["corpus_docs"]) == (5, DOCUMENTS)
    assert len(manifests(warm_home)["vectors"]) == 1


@pytest.mark.long
def test_sizes_that_give_no_snapshot_are_refused_together(demo_slice, desa):
    """Sizes that give no snapshot are refused together and say what would."""
    arguments = [f"dataset.size=7,100,{DOCUMENTS},9000", "method=original", *COMMON]
    failed = desa("run", "-m", *dataset(demo_slice), *arguments, check=False)
    assert failed.returncode == 2
    errors = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    assert [line.partition(" documents")[0] for line in errors] == [
        f"error: dataset.size: a snapshot of {size}" for size in (7, DOCUMENTS, 9000)
    ]
