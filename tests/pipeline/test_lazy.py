"""Lazy retrieval gives the records of complete rankings, makes none, and keeps what it scored for
the next kappa.
"""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import desa_ray.experiment.fused_by as fused_by_module
import desa_ray.stages.prefix as prefixes_module
import desa_ray.stages.score_layout as layout_module
from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.errors import Problems
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.records import cell_records
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.execute import Quiet, missing, run_stage, schedule
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import dataset, summaries

pytestmark = pytest.mark.long

COMPLETE_ONLY = ["ranking_hashes", "turnover", "rr_change", "support_retained"]
# A lazy fusion is another artifact, and says so
OWN_KEYS = [
    "fusion_key",
    "config_hash",
    "settings",
]
METHODS = (
    "original",
    "desa",
    "qudar_weighted",
    "qudar_top1000",
    "qudar_score_confidence",
    "sparse_only",
    "relaxed_count",
    "rank_sum",
    "desa sparse.scores=adjusted",
    "bm25",
    "rm3_anchored",
)


def typed(*overrides: str) -> RunConfig:
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        plain = OmegaConf.to_container(compose("config", list(overrides)), resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def computed(config: RunConfig, home: Path) -> tuple[Cell, pl.DataFrame, list[str]]:
    """A cell, its records and the names of the stages that had to be computed."""
    store = Store(str(home / "store"))
    cell = Builder(prepare_cell(config, store, home)).cell()
    executor = SerialBackend()
    todo = list(schedule(missing(cell.targets)))
    for stage in todo:
        run_stage(stage, executor, Quiet())
    executor.close()
    return cell, cell_records(cell), [stage.name for stage in todo]


def assert_same(complete: pl.DataFrame, lazy: pl.DataFrame) -> None:
    assert lazy.schema == complete.schema
    assert lazy.drop(COMPLETE_ONLY + OWN_KEYS).equals(
        complete.drop(COMPLETE_ONLY + OWN_KEYS), null_equal=True
    )
    assert all(lazy[name].null_count() == lazy.height for name in COMPLETE_ONLY)
    assert complete["ranking_hashes"].null_count() == 0


@pytest.fixture
def shallow(monkeypatch) -> None:
    """Prefixes so short that most queries need deeper ones, groups and ranges so small that there
    are many.
    """
    monkeypatch.setattr(prefixes_module, "FIRST_DEPTH", 24)
    for module in (fused_by_module, prefixes_module):
        monkeypatch.setattr(module, "CUTOFFS", (10, 20))
    monkeypatch.setattr(layout_module, "GROUP_DOCUMENTS", 64)
    monkeypatch.setattr(layout_module, "BLOCK_QUERIES", 17)
    monkeypatch.setattr(layout_module, "RANGE_DOCUMENTS", 90)


@pytest.mark.parametrize("method", METHODS)
def test_lazy_records_are_those_of_complete_rankings(method, demo_slice, warm_home, shallow):
    config = typed(
        *f"method={method}".split(),
        *dataset(demo_slice),
        "draws=1",
        "evaluation.measures=[R@50,Judged@5]",
    )
    config = replace(config, cluster=replace(config.cluster, shard_queries=16))
    _, complete, _ = computed(config, warm_home)
    cell, lazy, stages = computed(replace(config, ranking="lazy"), warm_home)
    assert_same(complete, lazy)
    assert "ranking" not in stages
    assert "prefix" in stages
    depths = list(Path(warm_home / "store").glob("prefix_deep/*/docs-*.npy"))
    assert depths
    assert lazy["lengths"].list.max().max() > 24 or method == "bm25"
    assert not any("original_sparse" in stage.inputs for stage in cell.targets)


@pytest.fixture
def with_queries_as_documents(small_slice, tmp_path) -> Path:
    """The slice with its first five queries among its documents, under their own ids."""
    folder = Path(shutil.copytree(small_slice, tmp_path / "own"))
    queries = [
        json.loads(line)
        for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        for query in queries[:5]:
            corpus.write(
                json.dumps({"_id": query["_id"], "title": "", "text": query["text"]}) + "\n"
            )
    return folder


def test_documents_that_are_queries_are_left_out_of_prefixes(
    with_queries_as_documents, tmp_path, monkeypatch
):
    """Documents that are queries are left out of prefixes as of rankings."""
    monkeypatch.setattr(prefixes_module, "FIRST_DEPTH", 24)
    for module in (fused_by_module, prefixes_module):
        monkeypatch.setattr(module, "CUTOFFS", (10, 20))
    common = [*dataset(with_queries_as_documents), "draws=1", "method=desa", "encoder=minilm_l3"]
    config = typed(*common, "evaluation.exclude_self=true")
    _, complete, _ = computed(config, tmp_path)
    _, lazy, _ = computed(replace(config, ranking="lazy"), tmp_path)
    assert_same(complete, lazy)
    own = lazy.select(own=pl.col("query_id").is_in(pl.col("top")))["own"]
    assert not own.any()
    _, kept, _ = computed(replace(typed(*common), ranking="lazy"), tmp_path)
    # Without the setting such a document is found by its own words: it does stand in the way.
    assert kept.select(own=pl.col("query_id").is_in(pl.col("top")))["own"].sum() == 5


def test_another_kappa_k_or_shard_size_scores_nothing_again(demo_slice, warm_home, shallow):
    """Another kappa k or shard size scores nothing again that was scored."""
    config = replace(typed(*dataset(demo_slice), "draws=1", "method=desa"), ranking="lazy")
    computed(config, warm_home)
    deep = {path: path.stat().st_mtime_ns for path in (warm_home / "store").glob("prefix_deep/*/*")}
    for changed in (
        replace(config, fusion=replace(config.fusion, kappa=config.fusion.kappa / 4)),
        replace(config, fusion=replace(config.fusion, k=7)),
    ):
        _, complete, _ = computed(replace(changed, ranking="complete"), warm_home)
        _, lazy, stages = computed(changed, warm_home)
        assert set(stages) == {"fusion"}
        assert_same(complete, lazy)
    assert all(path.stat().st_mtime_ns == made for path, made in deep.items())


def test_prefixes_do_not_depend_on_groups_blocks_ranges(
    demo_slice, warm_home, tmp_path, monkeypatch
):
    """Prefixes do not depend on groups blocks ranges and shards."""
    monkeypatch.setattr(prefixes_module, "FIRST_DEPTH", 24)
    for module in (fused_by_module, prefixes_module):
        monkeypatch.setattr(module, "CUTOFFS", (10, 20))
    config = replace(
        typed(*dataset(demo_slice), "draws=1", "evaluation.exclude_self=true"), ranking="lazy"
    )
    sizes = [(1 << 16, 512, 1 << 20, 64, 2.0), (50, 7, 33, 5, 0.0001)]
    contents = []
    for number, (group, block, documents, queries, memory) in enumerate(sizes):
        home = Path(shutil.copytree(warm_home, tmp_path / f"home{number}"))
        monkeypatch.setattr(layout_module, "GROUP_DOCUMENTS", group)
        monkeypatch.setattr(layout_module, "BLOCK_QUERIES", block)
        monkeypatch.setattr(layout_module, "RANGE_DOCUMENTS", documents)
        cluster = replace(config.cluster, shard_queries=queries, memory_gb=memory)
        cell, records, _ = computed(replace(config, cluster=cluster), home)
        stages = [
            *cell.targets,
            *(s for t in cell.targets for r, s in t.inputs.items() if r.startswith("channel:")),
        ]
        contents.append([stage.artifact.manifest()["content"] for stage in stages])
        contents[-1].append(records.drop("config_hash").rows())
    assert contents[0] == contents[1]


def test_what_only_complete_rankings_give_is_refused(demo_slice, warm_home):
    """What only complete rankings give is refused before anything runs."""
    store = Store(str(warm_home / "store"))

    def refused(*overrides: str) -> str:
        with pytest.raises(Problems) as caught:
            prepare_cell(typed(*dataset(demo_slice), "ranking=lazy", *overrides), store, warm_home)
        return str(caught.value)

    found = refused(
        "evaluation.measures=[AP,R@5000]",
        "fusion.k=1001",
        "fusion.replay=release",
        "encoder.scoring=float32",
    )
    for expected in (
        "'AP' reads the whole ranking",
        "'R@5000' reads 5000",
        "k is 1001",
        "replay 'release' looks at how many documents all lists hold (use ranking=complete",
        "encoder.scoring",
    ):
        assert expected in found
    assert "exp4fuse" in refused("method=exp4fuse_hybrid")
    whole = typed(*dataset(demo_slice), "ranking=lazy", "evaluation.measures=[R@1000]")
    prepare_cell(whole, store, warm_home)


def test_the_command_runs_lazily_and_reports_on_it(demo_slice, warm_home, desa, tmp_path):
    common = [
        *dataset(demo_slice),
        "tracking.enabled=false",
        "cluster=serial",
        "draws=1",
        "method=original,desa",
    ]
    desa("run", "-m", *common, "ranking=lazy", home=warm_home)
    lazy = {cell["method"]: cell for cell in summaries(tmp_path)}
    assert lazy["desa"]["ranking"] == "lazy"
    assert lazy["desa"]["metrics"]["turnover"] is None
    assert not list((warm_home / "store" / "ranking").glob("*/nothing"))
    records = sorted(tmp_path.glob("outputs/sweeps/*/*"))[-1]
    shown = desa("report", f"records={records}", home=warm_home)
    assert "nDCG@10" in shown.stdout
    query = pl.read_parquet(records / "1" / "records.parquet")["query_id"][0]
    story = desa("report", f"records={records}", f"query={query}", home=warm_home, check=False)
    assert story.returncode == 2
    assert "ranking=complete" in story.stderr
    assert os.environ.get("HF_HUB_OFFLINE") == "1"
