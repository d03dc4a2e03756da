"""`config_hash` differs for every setting that changes a result, and for no other one.

Every setting of a run stands here once; a new one fails the first test until it has its place.
"""

import json
import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config import ChannelConfig, MethodConfig, RunConfig
from desa_ray.config_check import checked, class_of
from desa_ray.engines.encoder import encoder_identity
from desa_ray.engines.learned_sparse import sparse_identity
from desa_ray.experiment.build import Builder, Cell
from desa_ray.experiment.learned import analysis
from desa_ray.experiment.prepare import Answers, Prepared, store_collection
from desa_ray.experiment.records import config_hash, labels, result_config
from desa_ray.experiment.run_names import settings_apart
from desa_ray.experiment.settings import cell_settings
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.experiment.text_source import TextSource
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import dataset
from tests.impact_files import write_impacts
from tests.splade_files import write_model

CONF = Path(__file__).resolve().parents[2] / "conf"
SERVER = ("generator=openai_server", "generator.model=any", "draws=1")
VLLM = ("generator=qwen2_5_7b", "generator.path=null", "draws=1")
IMPACT = ("sparse=impact", "sparse.impacts=impacts.jsonl", "sparse.tokenizer=words.json")
SPLADE = ("sparse=splade", "sparse.path=splade", "sparse.max_tokens=64")
GONE = ("dataset.split=gone", "dataset.missing_relevant=drop")
# A setting that changes a result -> what to start from, and what to change.
CHANGES: dict[str, tuple[Sequence[str], str]] = {
    "dataset.queries": ((), "dataset.queries=[q1]"),
    "dataset.size": ((), "dataset.size=2"),
    "dataset.sample": ((), "dataset.sample=1"),
    "dataset.split": ((), "dataset.split=dev"),
    "dataset.missing_relevant": (GONE, "dataset.missing_relevant=keep"),
    "encoder.model": ((), "encoder.model=another"),
    "encoder.revision": ((), f"encoder.revision={'a' * 40}"),
    "encoder.pooling": ((), "encoder.pooling=cls"),
    "encoder.max_tokens": ((), "encoder.max_tokens=64"),
    "encoder.query_prefix": (("encoder.query_prefix=one",), "encoder.query_prefix=other"),
    "encoder.document_prefix": ((), "encoder.document_prefix='passage: '"),
    "encoder.dimensions": ((), "encoder.dimensions=128"),
    "encoder.scoring": ((), "encoder.scoring=float32"),
    "encoder.engine": ((), "encoder.engine=gpu"),
    "generator.map": ((), "generator.map={references: mugi}"),
    "generator.strict": ((), "generator.strict=true"),
    "generator.kind": (SERVER, "generator=recorded"),
    "generator.model": (SERVER, "generator.model=another"),
    "generator.revision": (SERVER, f"generator.revision={'a' * 40}"),
    "generator.extended_sampling": (SERVER, "generator.extended_sampling=false"),
    "generator.seed_bits": (SERVER, "generator.seed_bits=32"),
    "generator.dtype": (VLLM, "generator.dtype=float32"),
    "sparse.k1": ((), "sparse.k1=1.2"),
    "sparse.b": ((), "sparse.b=0.75"),
    "sparse.analyzer": ((), "sparse.analyzer=de"),
    "sparse.stemmer": ((), "sparse.stemmer=krovetz"),
    "sparse.stopwords": ((), "sparse.stopwords=keep"),
    "sparse.scores": ((), "sparse.scores=adjusted"),
    "sparse.kind": (IMPACT, "sparse=bm25"),
    "sparse.scale": (IMPACT, "sparse.scale=10"),
    "sparse.query_scale": (IMPACT, "sparse.query_scale=10"),
    "sparse.combine": (IMPACT, "sparse.combine=max"),
    "sparse.token_weights": (IMPACT, "sparse.token_weights=weights.json"),
    "sparse.query_vectors": (IMPACT, "sparse.query_vectors=vectors.jsonl"),
    "sparse.document_texts": ((), "sparse.document_texts=texts.jsonl"),
    "sparse.model": (SPLADE, "sparse.model=another"),
    "sparse.revision": (SPLADE, f"sparse.revision={'a' * 40}"),
    "sparse.max_tokens": (SPLADE, "sparse.max_tokens=32"),
    "sparse.pooling": (SPLADE, "sparse.pooling=sum"),
    "sparse.activation": (SPLADE, "sparse.activation=log1p_relu"),
    "method.prompt": ((), "method.prompt=mugi"),
    "method.fusion": ((), "method.fusion=exp4fuse"),
    "method.weighting": (("method=qudar_complete",), "method.weighting=confidence"),
    "method.prefix": ((), "method.prefix=2"),
    "channel.kind": (("method=original",), "method=bm25"),
    "channel.operator": ((), "method.channels.1.operator=rewrite"),
    "channel.weight": ((), "method.channels.1.weight=1/2"),
    "channel.prompt": ((), "method.channels.1.prompt=mugi"),
    "channel.options": (("method=relaxed_count",), "method.channels.1.options.count=7"),
    "fusion.rule": ((), "fusion.rule=isr"),
    "fusion.weights": ((), "fusion.weights={sparse: 1/3}"),
    "fusion.normaliser": (("fusion.rule=convex",), "fusion.normaliser=min_max"),
    "fusion.mean": (("fusion.rule=opensearch",), "fusion.mean=harmonic"),
    "fusion.least": (("fusion.rule=convex",), "fusion.least={sparse: -1}"),
    "fusion.most": (
        ("fusion.rule=convex", "fusion.normaliser=bounds", "fusion.most={dense: 1, sparse: 50}"),
        "fusion.most={dense: 1, sparse: 60}",
    ),
    "fusion.prefix": ((), "fusion.prefix=3"),
    "fusion.kappa": ((), "fusion.kappa=20"),
    "fusion.replay": ((), "fusion.replay=release"),
    "fusion.k": ((), "fusion.k=10"),
    "evaluation.exclude_self": ((), "evaluation.exclude_self=true"),
    "evaluation.measures": ((), "evaluation.measures=[AP]"),
    "evaluation.exponential_cutoffs": ((), "evaluation.exponential_cutoffs=true"),
    "evaluation.run_depth": ((), "evaluation.run_depth=20"),
    "ranking": ((), "ranking=lazy"),
    **{
        f"prompt.{name}": ((*SERVER, "prompt=hyde"), f"prompt.{name}={value}")
        for name, value in {
            "name": "mine",
            "system": "Write.",
            "systems": "{demo: Write.}",
            "user": "{default: 'Write: {query}'}",
            "requests": 7,
            "texts_per_request": 2,
            "structured": "true",
            "max_new_tokens": 9,
            "temperature": 1,
            "top_p": 0.5,
            "top_k": 1,
            "max_words": 9,
        }.items()
    },
    **{
        f"decoding.{name}": (SERVER, f"decoding.{name}={value}")
        for name, value in {
            "temperature": 0.2,
            "top_p": 0.5,
            "top_k": 1,
            "max_tokens": 9,
            "seed": 1,
        }.items()
    },
    "n_refs": ((), "n_refs=3"),
    "draws": ((), "draws=2"),
}
# A setting that changes none.
KEEPS: dict[str, tuple[Sequence[str], str]] = {
    "dataset.name": ((), "dataset.name=other"),
    "dataset.path": ((), "dataset.path=copy"),
    "encoder.name": ((), "encoder.name=mine"),
    "encoder.scorer": ((), "encoder.scorer=cpu"),
    "encoder.block_size": ((), "encoder.block_size=8"),  # of an engine that is not used
    "generator.name": ((), "generator.name=mine"),
    "generator.folder": ((), "generator.folder=copy/generations"),
    "generator.base_url": (SERVER, "generator.base_url=http://elsewhere/v1"),
    "generator.api_key_env": (SERVER, "generator.api_key_env=KEY"),
    "generator.concurrency": (SERVER, "generator.concurrency=2"),
    "generator.request_timeout_s": (SERVER, "generator.request_timeout_s=9"),
    "generator.max_attempts": (SERVER, "generator.max_attempts=2"),
    "generator.backoff_s": (SERVER, "generator.backoff_s=2"),
    "generator.max_backoff_s": (SERVER, "generator.max_backoff_s=20"),
    "generator.revision_note": (VLLM, "generator.revision_note=x"),
    "generator.device": (VLLM, "generator.device=cpu"),
    "generator.batch_invariant": (VLLM, "generator.batch_invariant=false"),
    "generator.tensor_parallel_size": (VLLM, "generator.tensor_parallel_size=2"),
    "generator.gpu_memory_utilization": (VLLM, "generator.gpu_memory_utilization=0.5"),
    "generator.kv_cache_gb": (VLLM, "generator.kv_cache_gb=2"),
    "generator.max_num_seqs": (VLLM, "generator.max_num_seqs=2"),
    "generator.max_model_len": (VLLM, "generator.max_model_len=2048"),
    "prompt.source": ((*SERVER, "prompt=hyde"), "prompt.source=elsewhere"),
    "sparse.name": ((), "sparse.name=mine"),
    "sparse.java_home": ((), "sparse.java_home=copy"),
    "sparse.heap": ((), "sparse.heap=1g"),
    "method.name": ((), "method.name=mine"),
    "cluster.kind": ((), "cluster=local"),
    "cluster.address": (("cluster=existing",), "cluster.address=ray://other:10001"),
    "cluster.encoder_gpus": ((), "cluster.encoder_gpus=1"),
    "cluster.scorer_gpus": ((), "cluster.scorer_gpus=1"),
    **{
        f"cluster.{name}": ((), f"cluster.{name}=7")
        for name in (
            *("cpus", "encoders", "encoder_cpus", "generators", "generator_cpus", "scorers"),
            *("shard_generations", "replayers", "shard_documents", "shard_queries", "memory_gb"),
            *("batch_size", "max_failures", "shard_timeout_s", "max_workers", "max_gpus"),
            *("wait_s", "idle_s", "turn_s", "max_nodes", "node_cpus", "node_gpus"),
            *("indexers", "range_documents"),
        )
    },
    "tracking.enabled": ((), "tracking.enabled=false"),
    "tracking.uri": ((), "tracking.uri=sqlite:///other.db"),
    "tracking.experiment": ((), "tracking.experiment=other"),
    "tracking.offline": ((), "tracking.offline=true"),
    "tracking.system_metrics_s": ((), "tracking.system_metrics_s=0"),
    "evaluation.access_depths": ((), "evaluation.access_depths=true"),
    "store.root": ((), "store.root=elsewhere"),
    "store.repair": ((), "store.repair=true"),
    "store.copies": ((), "store.copies=true"),
}
# Where a source or weights come from: contents are hashed instead, whichever of them is used.
PLACES = {
    *("dataset.kind", "dataset.url", "dataset.ir_datasets_id"),
    *("encoder.package", "encoder.weights", "encoder.tokenizer_package", "encoder.path"),
    "encoder.tokenizer",
    *("generator.package", "generator.path", "sparse.impacts", "sparse.tokenizer"),
    *("sparse.package", "sparse.weights", "sparse.path"),
}
OTHERS = {
    "encoder.backend": "another engine, whose identity names it (test_encoder.py)",
    "method.channels": "its settings stand here as channel.*",
    "channel.name": "the name under which fusions have kept their channels since 0.1.0",
}


def leaves(kind: type, name: str = "") -> set[str]:
    """Every setting by its dotted name; those of channels as `channel.NAME`."""
    found: set[str] = set()
    for field in fields(kind):
        own = f"{name}.{field.name}" if name else field.name
        inner = class_of(field.type)
        found |= leaves(inner, own) if is_dataclass(inner) else {own}
    return found


def test_every_setting_has_its_place():
    known = leaves(RunConfig) | leaves(ChannelConfig, "channel")
    assert leaves(MethodConfig, "method") <= known
    groups = [set(CHANGES), set(KEEPS), PLACES, set(OTHERS)]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert set().union(*groups) == known


def changed(plain: Any, key: str, value: Any) -> None:
    """Sets `a.0.b` in nested mappings and lists."""
    *path, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    for part in path:
        plain = plain.setdefault(part, {}) if isinstance(plain, dict) else plain[part]
    plain[last] = value


@pytest.fixture
def hashed(made):
    """The config hash of overrides on the tiny collection."""
    return lambda *overrides: config_hash(made(*overrides))


@pytest.fixture
def made(collection: Path, tmp_path: Path, monkeypatch):
    """The cell of overrides on the tiny collection, of which there is a copy."""
    monkeypatch.chdir(tmp_path)
    texts = (collection / "generations" / "references.jsonl").read_text().splitlines()
    rows = [json.loads(line) | {"prompt": "mugi"} for line in texts]
    (collection / "generations" / "mugi.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    judged = (collection / "qrels" / "test.tsv").read_text()
    (collection / "qrels" / "dev.tsv").write_text(judged.replace("d2", "d1"))
    (collection / "qrels" / "gone.tsv").write_text(f"{judged}q1\tgone\t1\n")
    shutil.copytree(collection, tmp_path / "copy")
    write_impacts(collection, tmp_path)
    write_model(tmp_path / "splade")
    store = Store(str(tmp_path / "home" / "store"))

    home, answers = tmp_path / "home", Answers()

    @cache
    def composed(*groups: str) -> dict[str, Any]:
        chosen = [*dataset(collection), "encoder=minilm_l3", "cluster=serial", *groups]
        with initialize_config_module("desa_ray.conf", version_base="1.3"):
            plain: Any = OmegaConf.to_container(compose("config", chosen), resolve=True)
        return {key: plain[key] for key in RUN_KEYS if key in plain}

    def of(*overrides: str) -> Cell:
        pairs = [override.split("=", 1) for override in overrides]
        groups = {key: value for key, value in pairs if (CONF / key).is_dir()}
        plain = deepcopy(composed(*map("=".join, groups.items())))
        for key, value in pairs:
            if not (CONF / key).is_dir():
                changed(plain, key, yaml.safe_load(value))
        own = checked(RunConfig, plain)
        tables = store_collection(own.dataset, store, home / "data")
        encoder = own.encoder
        identity = answers.of(
            "encoder", [encoder], lambda: encoder_identity(encoder, model_home=home / "models")
        )
        texts = TextSource(own, tables, store, home)
        sparse = sparse_identity(own.sparse, analysis(own.sparse), home / "models")
        return Builder(Prepared(own, home, tables, texts, identity, {}, sparse=sparse)).cell()

    return of


def test_settings_that_change_a_result_change_the_hash(made, hashed):
    """And what the log says of the cell; labels, collection or the records' settings tell it."""
    for setting, (base, change) in CHANGES.items():
        before, after = made(*base), made(*base, change)
        assert result_config(before) != result_config(after), setting
        if not setting.startswith("dataset."):
            told = [(labels(cell), cell_settings(cell)) for cell in (before, after)]
            assert told[0] != told[1], setting
    seen = {}
    for setting, (base, change) in CHANGES.items():
        before, seen[setting] = hashed(*base), hashed(*base, change)
        assert before == hashed(*base), setting
    equal = [setting for setting, (base, _) in CHANGES.items() if seen[setting] == hashed(*base)]
    assert equal == []
    alone = {setting: own for setting, own in seen.items() if not CHANGES[setting][0]}
    assert len(set(alone.values())) == len(alone)


def test_a_table_of_cells_tells_equal_labels_apart(made):
    """By the settings that differ; a label that differs is enough."""
    swept = (("sparse.k1=0.9",), ("sparse.k1=1.2",), ("sparse.k1=1.2", "fusion.k=2"))
    apart = settings_apart([made(*own) for own in swept])
    assert apart == [{"sparse.k1": "0.9"}, {"sparse.k1": "1.2"}, {}]
    assert settings_apart([made(), made("fusion.kappa=7")]) == [{}, {}]


def test_a_rule_has_one_key_however_it_is_named(made):
    """Rules that methods name have the keys that they had; weights, by group or by channel."""
    for first, second in (
        (("method=qudar_score",), ("method=qudar_score", "fusion.rule=score")),
        (("method.fusion=exp4fuse",), ("fusion.rule=exp4fuse",)),
        (("method.channels.1.weight=1/3",), ("fusion.weights={sparse: 1/3}",)),
        ((), ("fusion.rule=weighted_rrf",)),
        (("fusion.rule=convex",), ("fusion.rule=convex", "fusion.kappa=20")),
    ):
        assert [s.key for s in made(*first).fused] == [s.key for s in made(*second).fused]


def test_settings_that_change_no_result_keep_the_hash(hashed):
    for setting, (base, change) in KEEPS.items():
        assert hashed(*base) == hashed(*base, change), setting


def test_contents_change_the_hash(hashed, collection, tmp_path):
    """A recording, a document's text, a judgment."""
    found = {hashed()}
    for name, old, new in (
        ("generations/references.jsonl", "number 0", "number zero"),
        ("corpus.jsonl", "planets", "moons"),
        ("qrels/test.tsv", "d2\t1", "d2\t2"),
    ):
        file = collection / name
        file.write_text(file.read_text().replace(old, new))
        found.add(hashed())
    assert len(found) == 4
