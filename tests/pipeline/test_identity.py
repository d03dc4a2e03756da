"""What enters a key: everything that changes a result, and nothing else. Test names state the
invariant.
"""

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.data import load_collection
from desa_ray.engines.model_files import find_model
from desa_ray.errors import DesaError
from desa_ray.experiment.build import Builder
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.records import labels
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.pipeline.stage import ancestors
from desa_ray.stages import collection
from desa_ray.store.artifacts import Store


@pytest.fixture(scope="module")
def config(demo_slice) -> RunConfig:
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        composed = compose(
            "config", ["dataset=beir_folder", f"dataset.path={demo_slice}", "dataset.name=slice"]
        )
    plain = OmegaConf.to_container(composed, resolve=True)
    return checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain})


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


def _keys(config: RunConfig, home: Path) -> dict[str, set[str]]:
    """Stage name -> digests of all stages of the cell."""
    cell = Builder(prepare_cell(config, Store(str(home / "store")), home)).cell()
    keys: dict[str, set[str]] = {}
    for stage in ancestors(cell.targets):
        keys.setdefault(stage.name, set()).add(stage.key.digest)
    return keys


def _changed(config: RunConfig, other: RunConfig, home: Path) -> set[str]:
    before, after = _keys(config, home), _keys(other, home)
    return {name for name in before | after if before.get(name) != after.get(name)}


def test_resources_do_not_affect_identity(config, home):
    cluster = replace(
        config.cluster,
        kind="existing",
        address="x:1",
        encoders=7,
        encoder_cpus=3,
        encoder_gpus=1,
        scorers=5,
        scorer_gpus=1,
        replayers=9,
        shard_documents=13,
        shard_queries=5,
        batch_size=2,
        max_failures=9,
        memory_gb=0.5,
    )
    assert _changed(config, replace(config, cluster=cluster), home) == set()


def test_paths_and_addresses_do_not_affect_identity(config, home, tmp_path):
    import shutil

    moved = tmp_path / "elsewhere"
    shutil.copytree(config.dataset.path, moved)
    other = replace(
        config,
        dataset=replace(config.dataset, path=str(moved)),
        tracking=replace(config.tracking, uri="http://elsewhere", experiment="other"),
        sparse=replace(config.sparse, heap="3g"),
    )
    assert _changed(config, other, home) == set()


def test_kappa_and_weights_change_only_fusion(config, home):
    other = replace(config, fusion=replace(config.fusion, kappa=Fraction(20)))
    assert _changed(config, other, home) == {"fusion"}
    channels = tuple(replace(channel, weight=Fraction(1, 3)) for channel in config.method.channels)
    other = replace(config, method=replace(config.method, channels=channels))
    assert _changed(config, other, home) == {"fusion"}


def test_the_encoder_changes_only_vectors_and_what_is_built(config, home):
    """The encoder changes only vectors and what is built on them."""
    other = replace(config, encoder=replace(config.encoder, max_tokens=64))
    assert _changed(config, other, home) == {"vectors", "text_vectors", "ranking", "fusion"}


def test_bm25_parameters_change_no_posting(config, home):
    other = replace(config, sparse=replace(config.sparse, k1=1.2))
    assert _changed(config, other, home) == {"ranking", "fusion"}


def test_settings_for_parity_change_only_what_they_decide(config, home):
    adjusted = replace(config, sparse=replace(config.sparse, scores="adjusted"))
    assert _changed(config, adjusted, home) == {"ranking", "fusion"}
    released = replace(config, fusion=replace(config.fusion, replay="release"))
    assert _changed(config, released, home) == {"fusion"}


def test_fewer_draws_keep_the_keys_of_those_that_stay(config, home):
    all_draws, one = _keys(config, home), _keys(replace(config, draws=1), home)
    assert one.keys() == all_draws.keys()
    assert all(one[name] <= all_draws[name] for name in one)
    assert len(all_draws["fusion"] - one["fusion"]) == config.draws - 1 > 0


def test_n_refs_reuses_generations_and_vectors(config, home):
    assert _changed(config, replace(config, n_refs=3), home) == {"terms", "ranking", "fusion"}


def test_a_judgment_changes_only_fusion(config, home, tmp_path):
    import shutil

    other_folder = tmp_path / "judged"
    shutil.copytree(config.dataset.path, other_folder)
    qrels = other_folder / "qrels" / "test.tsv"
    lines = qrels.read_text().splitlines()
    query = lines[1].split("\t")[0]
    extra = next(line.split("\t")[1] for line in lines[2:] if line.split("\t")[0] != query)
    qrels.write_text("\n".join([*lines, f"{query}\t{extra}\t1"]) + "\n")
    other = replace(config, dataset=replace(config.dataset, path=str(other_folder)))
    assert _changed(config, other, home) == {"qrels", "fusion"}


def test_weights_of_the_users_own_are_never_shown_under_the_bare(config, home):
    """Weights of the users own are never shown under the bare name."""
    folder = find_model(config.encoder, home / "models").weights.parent
    store = Store(str(home / "store"))
    named = Builder(prepare_cell(config, store, home)).cell()
    assert labels(named)["encoder"] == "minilm_l6"
    # The same weights called BGE: the label says that they came from a folder, and which they are.
    posing = replace(config, encoder=replace(config.encoder, name="bge_small", path=str(folder)))
    label = labels(Builder(prepare_cell(posing, store, home)).cell())["encoder"]
    assert label.startswith("bge_small+local-")


def test_a_permuted_collection_has_the_same_keys(config, demo_slice, tmp_path):
    """A permuted collection has the same keys in another store. Equal keys of the fusion
    stages are equal records: nothing reads the files again.
    """
    other = tmp_path / "permuted"
    shutil.copytree(demo_slice, other)
    for name in ("corpus.jsonl", "queries.jsonl", "generations/references.jsonl"):
        lines = (other / name).read_text().splitlines()
        (other / name).write_text("\n".join(lines[7:] + lines[:7][::-1]) + "\n")
    head, *judged = (other / "qrels" / "test.tsv").read_text().splitlines()
    (other / "qrels" / "test.tsv").write_text("\n".join([head, *judged[::-1]]) + "\n")
    permuted = replace(config, dataset=replace(config.dataset, path=str(other)))
    before, after = _keys(config, tmp_path / "one"), _keys(permuted, tmp_path / "two")
    assert "fusion" in before
    assert before == after


@pytest.mark.parametrize("when", ["hashed and read", "read and written"])
def test_a_collection_that_changes_between_two_reads_is_refused(when, config, demo_slice, tmp_path):
    """A collection that changes between two reads is refused and not stored."""
    folder = tmp_path / "changing"
    shutil.copytree(demo_slice, folder)
    changed = replace(config, dataset=replace(config.dataset, path=str(folder)))
    loads = []

    def load(dataset, *, data_home):
        found = load_collection(dataset, data_home=data_home)
        loads.append(found)
        if when == "hashed and read":
            text = (folder / "corpus.jsonl").read_text()
            (folder / "corpus.jsonl").write_text(text.replace("the", "teh"))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collection, "load_collection", load)
        if when == "read and written":
            record = collection.CollectionWork.finish

            def finish(work, stage, layout):
                done = record(work, stage, layout)
                (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
                collection._loaded.cache_clear()
                return done

            patch.setattr(collection.CollectionWork, "finish", finish)
        with pytest.raises(DesaError) as refused:
            _keys(changed, tmp_path / "home")
    assert loads
    if when == "hashed and read":
        assert "dataset slice: its files changed while they were read (rerun" in str(refused.value)
    assert not list((tmp_path / "home" / "store" / "queries").glob("*/manifest.json"))


def test_a_source_that_changes_between_two_runs_of_a_process(config, demo_slice, tmp_path):
    """A source that changes between two runs of a process is read anew."""
    folder = tmp_path / "changing"
    shutil.copytree(demo_slice, folder)
    changed = replace(config, dataset=replace(config.dataset, path=str(folder)))
    before = _keys(changed, tmp_path / "home")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    rows[0]["text"] += " and more"
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    after = _keys(changed, tmp_path / "home")
    assert before["corpus"] != after["corpus"]
    assert before["queries"] == after["queries"]
