"""Plans against what runs did: items exactly, bytes and seconds nearly, reasons for misses, and
what cannot run.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import ClusterConfig, RunConfig
from desa_ray.config_check import checked
from desa_ray.errors import Problems
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.estimates import Planned, plan_stages
from desa_ray.pipeline.explain import explain
from desa_ray.pipeline.feasible import check_feasible
from desa_ray.pipeline.machine import Machine, visible_gpus
from desa_ray.pipeline.stage import Stage, ancestors
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import DOCUMENTS, dataset, run_desa

MACHINE = Machine(cpus=2, gpus=0, memory=8 << 30)
SERIAL = ClusterConfig(kind="serial")
# Where a manifest counts a stage's items
COUNTS = {
    "text_vectors": "distinct_texts",
    "postings": "documents",
}


def config(folder: Path, *overrides: str) -> RunConfig:
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        composed = compose("config", [*dataset(folder), "cluster=serial", *overrides])
    plain = OmegaConf.to_container(composed, resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


def cell_of(home: Path, folder: Path, *overrides: str) -> tuple[Store, Cell]:
    store = Store(str(home / "store"))
    return store, Builder(prepare_cell(config(folder, *overrides), store, home)).cell()


def planned(store: Store, cell: Cell) -> list[Planned]:
    return plan_stages(store, cell.targets, SERIAL, MACHINE)


@pytest.mark.long
def test_a_run_does_what_the_plan_said(demo_slice, small_slice, warm_home, tmp_path):
    store, cell = cell_of(warm_home, small_slice, "draws=1")
    plans = [plan for plan in planned(store, cell) if plan.to_compute]
    arguments = ["draws=1", "cluster=serial", "tracking.enabled=false"]
    done = run_desa(tmp_path, warm_home, "run", *dataset(small_slice), *arguments)
    assert done.returncode == 0, done.stderr
    assert len(plans) == 13
    took = 0.0
    for plan in plans:
        manifest = plan.stage.artifact.manifest()
        assert plan.items == manifest["counts"][COUNTS.get(plan.stage.name, "rows")], plan.stage
        assert not plan.at_most
        assert plan.bytes is not None
        written = sum(part["bytes"] for part in manifest["parts"].values())
        # What a file takes however few its rows is much of so few: a fusion's two tables alone have
        # 40 columns.
        assert written / 8 < plan.bytes < written * 8, plan.stage
        took += manifest["meta"]["seconds"]
    # Starting Lucene and loading the model take most of so small a run, here and where the
    # estimates come from.
    assert took / 15 < sum(plan.seconds or 0 for plan in plans) < took * 15
    vectors = next(plan for plan in plans if plan.stage.name == "vectors")
    assert (vectors.items, vectors.unit, vectors.rough) == (100, "documents", False)
    assert not any(plan.to_compute for plan in planned(store, cell))


def test_what_was_never_computed_has_items_and_no_estimate(small_slice, tmp_path):
    plans = {
        plan.stage.name: plan
        for plan in planned(*cell_of(tmp_path, small_slice, "draws=1"))
        if plan.to_compute
    }
    assert {(plan.seconds, plan.bytes) for plan in plans.values()} == {(None, None)}
    assert {
        name: plan.items
        for name, plan in plans.items()
        if name in ("vectors", "postings", "fusion")
    } == {
        "vectors": 100,
        "postings": 100,
        "fusion": 8,
    }


def test_small_fusions_are_planned_in_the_few_shards_they_will(small_slice, tmp_path):
    """Small fusions are planned in the few shards they will have."""
    store, cell = cell_of(tmp_path, small_slice, "draws=1", "cluster.shard_queries=3")
    plans = plan_stages(
        store, cell.targets, ClusterConfig(kind="local", replayers=2, scorers=2), MACHINE
    )
    workers = {
        plan.stage.name: plan.workers for plan in plans if plan.stage.name in ("ranking", "fusion")
    }
    # 8 queries: three shards there, one of up to 4 x 3 here
    assert workers == {
        "ranking": 2,
        "fusion": 1,
    }


def test_texts_that_are_still_to_be_generated_are_a_bound(small_slice, tmp_path):
    served = [
        "generator=openai_server",
        "generator.model=some",
        f"generator.revision={'0' * 40}",
        "draws=1",
    ]
    plans = planned(*cell_of(tmp_path, small_slice, *served))
    texts = {(plan.items, plan.at_most) for plan in plans if plan.stage.name == "text_vectors"}
    assert texts == {(8, False), (8 * 5, True)}


def test_half_of_a_stage_takes_half_of_it(demo_slice, warm_home):
    store, cell = cell_of(warm_home, demo_slice)
    other = replace(cell.config, encoder=replace(cell.config.encoder, max_tokens=64))
    cell = Builder(prepare_cell(other, store, warm_home)).cell()
    vectors = _stage(cell, "vectors")
    whole = next(plan for plan in planned(store, cell) if plan.stage.key == vectors.key)
    artifact = vectors.artifact
    contents = {"corpus": vectors.inputs["corpus"].artifact.manifest()["content"]}
    quarter = DOCUMENTS // 4
    artifact.layout({"bounds": [0, quarter, DOCUMENTS], "inputs": contents})
    artifact.write_part("part-00001.faiss", b"three quarters", rows=3 * quarter)
    half = next(plan for plan in planned(store, cell) if plan.stage.key == vectors.key)
    assert (whole.state, whole.items, half.state, half.items, half.shards) == (
        "compute",
        DOCUMENTS,
        "resume",
        quarter,
        (1, 2),
    )
    assert half.seconds == pytest.approx(whole.seconds / 4)
    assert half.bytes == pytest.approx(whole.bytes / 4)
    assert whole.rough  # from an encoder with another max_tokens
    reason = next(
        reason for reason in explain(store, cell.targets) if reason.stage.key == vectors.key
    )
    assert "1 of 2 shards" in reason.text


def _stage(cell: Cell, name: str) -> Stage:
    return next(stage for stage in ancestors(cell.targets) if stage.name == name)


def _changes(store: Store, cell: Cell) -> dict[str, set[str]]:
    """Each difference in words -> the kinds of stages that it makes miss."""
    found: dict[str, set[str]] = {}
    for reason in explain(store, cell.targets):
        for difference in reason.differences:
            found.setdefault(str(difference), set()).add(reason.stage.name)
    return found


def test_a_changed_parameter_is_named_once_however_far(demo_slice, warm_home):
    """A changed parameter is named once however far it reaches."""
    fusion = _changes(*cell_of(warm_home, demo_slice, "fusion.kappa=20"))
    assert fusion == {"kappa: 60 -> 20": {"fusion"}}
    encoder = _changes(*cell_of(warm_home, demo_slice, "encoder.max_tokens=64"))
    assert encoder == {
        "encoder.max_tokens: 256 -> 64": {"vectors", "text_vectors", "ranking", "fusion"}
    }
    references = _changes(*cell_of(warm_home, demo_slice, "n_refs=3"))
    assert references == {"texts: 5 -> 3": {"terms", "ranking", "fusion"}}
    bm25 = _changes(*cell_of(warm_home, demo_slice, "sparse.k1=1.2", "draws=1"))
    assert bm25 == {"k1: 0.9 -> 1.2": {"ranking", "fusion"}}
    assert _changes(*cell_of(warm_home, demo_slice)) == {}


def test_another_collection_is_a_change_of_content_at_its_root(demo_slice, small_slice, warm_home):
    reasons = explain(*_store_and_targets(warm_home, small_slice, "method=original"))
    origins = {difference.stage for reason in reasons for difference in reason.differences}
    assert origins == {"corpus", "queries", "qrels"}


def _store_and_targets(home: Path, folder: Path, *overrides: str):
    store, cell = cell_of(home, folder, *overrides)
    return store, cell.targets


def test_an_empty_store_and_changed_bits_have_their_own_words(
    demo_slice, small_slice, warm_home, tmp_path
):
    reasons = explain(*_store_and_targets(tmp_path / "empty", small_slice))
    assert {reason.text for reason in reasons} == {"nothing of this kind is stored"}
    store, cell = cell_of(warm_home, demo_slice, "method=original", "fusion.kappa=20")
    terms = _stage(cell, "terms")
    artifact = terms.artifact
    inputs = artifact.manifest()["meta"]["inputs"]
    artifact.discard()
    artifact.finish("f" * 64, counts={"rows": 40}, meta={"inputs": inputs}, parts=[])
    (reason,) = [
        reason for reason in explain(store, cell.targets) if reason.stage.name == "ranking"
    ]
    assert "changed content" in reason.text
    assert "-> ffffffffffff" in reason.text


def refused(home: Path, folder: Path, *overrides: str, machine: Machine = MACHINE) -> list[str]:
    store, cell = cell_of(home, folder, *overrides)
    todo = [
        plan.stage
        for plan in plan_stages(store, cell.targets, cell.config.cluster, machine)
        if plan.to_compute
    ]
    try:
        check_feasible(todo, cell.config.cluster, machine)
    except Problems as problems:
        return [str(problem) for problem in problems.problems]
    return []


LOCAL = "cluster.kind=local"
TOO_MUCH = {
    "cluster.encoder_gpus": [LOCAL, "cluster.encoder_gpus=1"],
    "cluster.encoder_cpus": [LOCAL, "cluster.encoder_cpus=3"],
    "cluster.encoders": [LOCAL, "cluster.encoder_cpus=1", "cluster.encoders=3"],
    "cluster.replayers": [LOCAL, "cluster.replayers=4"],
    "cluster.memory_gb": ["cluster.memory_gb=0.000002"],
    "cluster.max_gpus": [
        *("cluster.kind=existing", "cluster.address=auto"),
        *("cluster.encoder_gpus=1", "cluster.max_gpus=0.5"),
    ],
}


@pytest.mark.parametrize("where", TOO_MUCH)
def test_more_than_there_is_is_refused_by_the_setting_to_lower(where, small_slice, tmp_path):
    (problem,) = refused(tmp_path, small_slice, "draws=1", *TOO_MUCH[where])
    assert problem.startswith(f"{where}: ")


def test_what_fits_is_not_refused(small_slice, tmp_path):
    assert refused(tmp_path, small_slice) == []
    assert (
        refused(tmp_path, small_slice, LOCAL, "cluster.encoder_cpus=1", "cluster.encoders=2") == []
    )
    big = Machine(cpus=8, gpus=2, memory=8 << 30)
    assert (
        refused(
            tmp_path,
            small_slice,
            LOCAL,
            "cluster.encoder_gpus=1",
            "cluster.encoders=2",
            machine=big,
        )
        == []
    )
    # The defaults start fewer workers on a machine that holds fewer.
    assert (
        refused(
            tmp_path, small_slice, LOCAL, "cluster.encoder_cpus=1", machine=replace(MACHINE, cpus=1)
        )
        == []
    )
    # A running cluster has other machines: its nodes are asked when the run connects.
    assert refused(tmp_path, small_slice, "cluster.kind=existing", "cluster.encoder_gpus=8") == []


def test_a_machine_too_small_for_all_workers_at_once_is_refused(small_slice, tmp_path):
    # 100 documents and 8 queries hold a few kilobytes a worker
    tiny = replace(MACHINE, memory=10_000)
    problems = refused(tmp_path, small_slice, LOCAL, "cluster.encoder_cpus=1", machine=tiny)
    assert any(problem.startswith("cluster.scorers: ") for problem in problems)


def test_what_is_stored_needs_no_machine(demo_slice, warm_home):
    nothing = Machine(cpus=1, gpus=0, memory=1)
    assert refused(warm_home, demo_slice, LOCAL, "cluster.encoder_cpus=64", machine=nothing) == []


def test_hidden_gpus_do_not_count(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_gpus() == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == 0
