"""Counted runs give the records of complete rankings, diagnostics and all, and sort none."""

import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import desa_ray.experiment.fused_by as fused_by_module
import desa_ray.stages.asked as asked_module
import desa_ray.stages.counted_fusion as counted_module
import desa_ray.stages.counts as counts_module
import desa_ray.stages.prefix as prefixes_module
import desa_ray.stages.score_layout as layout_module
from desa_ray.experiment.checks import setting_problems
from desa_ray.pipeline.stage import ancestors
from tests.desa_fixtures import dataset

from .test_lazy import OWN_KEYS, computed, typed, with_queries_as_documents  # noqa: F401

SLOW = (
    "original",
    "qudar_weighted",
    "qudar_top1000",
    "qudar_score_confidence",
    "references_only",
    "sparse_only",
    "half_dense",
    "bm25",
    "rm3",
)
METHODS = ("desa", *(pytest.param(method, marks=pytest.mark.slow) for method in SLOW))
SMALL = ("draws=1", "fusion.k=20", "fusion.kappa=0", "evaluation.measures=[R@5,Judged@5]")


LEAST = ("least_depths", "least_depth_total", "least_pairs")  # of two whole lists


def assert_same(complete: pl.DataFrame, counted: pl.DataFrame) -> None:
    """Every column but the hashes of rankings, which nobody made."""
    own = [*OWN_KEYS, "ranking_hashes", *LEAST]
    assert counted.schema == complete.schema
    left, right = counted.drop(own), complete.drop(own)
    different = [name for name in left.columns if not left[name].equals(right[name])]
    assert different == []
    assert counted["ranking_hashes"].null_count() == counted.height


@pytest.fixture
def small(monkeypatch) -> None:
    """Heads so short that most queries need counted ranks, groups and ranges so small that there
    are many.
    """
    for module in (fused_by_module, prefixes_module, counted_module):
        monkeypatch.setattr(module, "CUTOFFS", (10, 20))
    monkeypatch.setattr(counted_module, "LEAST_WITHIN", 1)
    monkeypatch.setattr(layout_module, "GROUP_DOCUMENTS", 64)
    for module in (asked_module, counts_module, layout_module):
        monkeypatch.setattr(module, "BLOCK_QUERIES", 17)
    monkeypatch.setattr(layout_module, "RANGE_DOCUMENTS", 90)


def both_ways(home: Path, *overrides: str) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Records from complete rankings and from counted ranks, and the counted run's stages."""
    config = typed(*overrides)
    config = replace(config, cluster=replace(config.cluster, shard_queries=16))
    _, complete, _ = computed(config, home)
    _, counted, stages = computed(replace(config, ranking="counted"), home)
    return complete, counted, stages


@pytest.mark.parametrize("method", METHODS)
def test_counted_records_are_those_of_complete_rankings(method, demo_slice, warm_home, small):
    """Heads of 64 documents where lists have 240; unequal weights for `half_dense`."""
    named = [f"method={method}"]
    if method == "half_dense":
        named = ["method=desa", "+method.channels.0.weight=1/2"]
    if method == "desa":
        named.append("evaluation.access_depths=true")
    complete, counted, stages = both_ways(warm_home, *named, *dataset(demo_slice), *SMALL)
    assert_same(complete, counted)
    assert "ranking" not in stages
    if method == "desa":
        assert counted["rr_change"].null_count() < counted.height
        assert counted["depths"].list.max().max() > 64
        assert counted["least_depths"].null_count() == counted.height
        totals = complete.select("ta_depth_total", "least_depth_total", "depth_total", "steps")
        assert totals.null_count().row(0) == (0, 0, 0, 0)
        assert (totals["least_depth_total"] <= totals["steps"]).all()
        # At kappa 0 and K 20 random access needs at most 40 items of either list.
        assert complete["ta_depths"].list.max().max() <= 40 < totals["depth_total"].max() / 2


@pytest.mark.slow
def test_queries_among_the_documents_are_left_out(
    with_queries_as_documents,  # noqa: F811
    tmp_path,
    small,
):
    """Documents that are queries are left out of heads and counts."""
    source = [*dataset(with_queries_as_documents), "method=desa", "evaluation.exclude_self=true"]
    complete, counted, _ = both_ways(tmp_path, *source, "encoder=minilm_l3", *SMALL)
    assert_same(complete, counted)


@pytest.mark.slow
def test_counts_do_not_depend_on_groups_blocks_ranges(
    demo_slice, warm_home, small, tmp_path, monkeypatch
):
    """What is counted in small pieces is what one piece counts."""
    config = typed("method=desa", *dataset(demo_slice), *SMALL, "ranking=counted")
    contents = []
    for group, block, documents, queries in ((64, 17, 90, 16), (1 << 16, 512, 1 << 20, 64)):
        monkeypatch.setattr(layout_module, "GROUP_DOCUMENTS", group)
        monkeypatch.setattr(layout_module, "RANGE_DOCUMENTS", documents)
        for module in (asked_module, counts_module, layout_module):
            monkeypatch.setattr(module, "BLOCK_QUERIES", block)
        home = Path(shutil.copytree(warm_home, tmp_path / f"home{group}"))
        cluster = replace(config.cluster, shard_queries=queries)
        cell, _, _ = computed(replace(config, cluster=cluster), home)
        found = {stage.key.digest: stage for stage in ancestors(cell.targets)}
        named = {key: s for key, s in found.items() if s.name in ("asked", "rank_counts", "fusion")}
        contents.append({key: s.artifact.manifest()["content"] for key, s in named.items()})
    assert len(contents[0]) == 2 + 5 + 2
    assert contents[0] == contents[1]


def test_what_cannot_be_counted_is_refused_by_name():
    """What a counted run cannot give is refused by its settings alone."""

    def refused(*overrides: str) -> str:
        return "\n".join(map(str, setting_problems(typed("ranking=counted", *overrides))))

    assert refused("method=desa") == ""
    relaxed = refused("method=relaxed_count", "evaluation.measures=[AP]", "fusion.k=1001")
    assert "operator 'relax_count' scores a document by the whole list" in relaxed
    assert "a counted run certifies at most 1000" in relaxed
    assert "operator 'rank_sum'" in refused("method=rank_sum", "sparse.scores=adjusted")
    assert "exp4fuse" in refused("method=exp4fuse_hybrid")
    found = refused("method=desa", "encoder.scoring=float32", "sparse.scores=adjusted")
    assert "scoring 'float32' differs between batches" in found
    assert "adjusted scores depend on the whole list" in found


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("collection", "method"),
    [
        ("cranfield", "original"),
        ("scifact", "original"),
        ("scifact", "desa"),
        ("scifact", "qudar_weighted"),
    ],
)
def test_counted_equals_complete_on_whole_collections(
    collection, method, request, tmp_path_factory
):
    """With the paper's constants: heads of 1,000 documents, documents within rank 128 counted."""
    home = tmp_path_factory.getbasetemp() / "counted"
    path = f"dataset.path={request.getfixturevalue(collection + '_folder')}"
    named = ("dataset=beir_folder", path, f"dataset.name={collection}", f"method={method}")
    complete, counted, stages = both_ways(home, *named, "draws=1", "encoder=minilm_l3")
    assert_same(complete, counted)
    assert "ranking" not in stages
    assert complete.height in (225, 300)
