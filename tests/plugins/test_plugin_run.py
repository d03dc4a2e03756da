"""A method of a user's own operators and fusion rule runs as `desa` does, and ranks as it does."""

from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
from hydra.core.global_hydra import GlobalHydra

from desa_ray.engines.dense_index import read_shard
from desa_ray.jobs.run import main
from tests.desa_fixtures import dataset

METHOD = """
name: mine
prompt: references
fusion: my_rrf
channels:
  - {name: dense, kind: dense, operator: my_residual}
  - {name: sparse, kind: sparse, operator: my_root}
"""
OWN = {
    "method": (
        "name: own\nprompt: references\nchannels: [{name: d, kind: dense, operator: residual}]"
    ),
    "encoder": (
        "{name: own, backend: my_hashes, model: hashes, document_prefix: '', dimensions: null}"
    ),
    "generator": "name: own\nkind: my_echo\nmodel: echo",
    "dataset": "name: own\nkind: my_notes\npath: notebook",
}
SAME = [
    *("query_id", "draw", "depths", "steps", "lengths", "exhausted", "dense_angle_deg", "top"),
    *("ndcg_at_10", "recall_at_20", "turnover", "cut_same_top", "replay_hash", "ranking_hashes"),
]


def test_an_example_method_ranks_as_desa_does(
    installed, warm_home, serial_sweep, demo_slice, tmp_path, monkeypatch
):
    """The example's equations are those of `desa` up to a root, which keeps the order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(warm_home))
    GlobalHydra.instance().clear()
    (tmp_path / "own" / "method").mkdir(parents=True)
    (tmp_path / "own" / "method" / "mine.yaml").write_text(METHOD)
    chosen = [*dataset(demo_slice), "cluster=serial", "tracking.enabled=false"]
    code = main(["--config-dir", "own", "method=mine", "hydra.run.dir=out", *chosen])
    assert code == 0
    mine = pl.read_parquet(Path("out") / "records.parquet")
    desa = pl.concat(map(pl.read_parquet, serial_sweep.glob("outputs/**/records.parquet")))
    desa = desa.filter(pl.col("method") == "desa")
    assert mine.select(SAME).equals(desa.select(SAME))
    assert set(mine["config_hash"]) & set(desa["config_hash"]) == set()


def test_engines_and_a_reader_of_ones_own(installed, tmp_path, monkeypatch):
    """Texts are those of the generator, vectors those of the encoder, behind the prefix and cut."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(tmp_path / "home"))
    (tmp_path / "notebook" / "notes").mkdir(parents=True)
    for name, text in (("b", "bees sting"), ("a", "ants march")):
        (tmp_path / "notebook" / "notes" / f"{name}.txt").write_text(text)
    (tmp_path / "notebook" / "questions.tsv").write_text("q1\tWhat stings bees\tb\n")
    for group, text in OWN.items():
        (tmp_path / "own" / group).mkdir(parents=True)
        (tmp_path / "own" / group / "own.yaml").write_text(text + "\n")
    GlobalHydra.instance().clear()
    chosen = [*(f"{group}=own" for group in OWN), "draws=1"]
    chosen += ["encoder.document_prefix='passage: '", "encoder.dimensions=32"]
    common = ["cluster=serial", "tracking.enabled=false", "hydra.run.dir=out"]
    assert main(["--config-dir", "own", *common, *chosen]) == 0
    records = pl.read_parquet(Path("out") / "records.parquet")
    assert records["generator"].to_list() == ["own"]
    store = tmp_path / "home" / "store"
    texts = [
        pl.read_parquet(part)["texts"][0].to_list()
        for part in store.glob("generation/*/p*.parquet")
    ]
    assert texts == [[f"bees {number} of five" for number in range(1, 6)]]
    (part,) = store.glob("vectors/*/*.faiss")
    encoder = import_module("desa_example.engines").WordHashes()

    def encoded(*texts: str) -> np.ndarray:
        first = encoder.encode(texts)[:, :32].astype(float)
        return first / np.linalg.norm(first, axis=1, keepdims=True)

    documents = encoded("passage: ants march", "passage: bees sting")
    assert np.allclose(read_shard(part, 2), documents, atol=1e-7)
    query = "What stings bees"
    (q,) = encoded(query)
    v = encoded(*(f"{query} [SEP] {text}" for text in texts[0])).mean(axis=0)
    scores = documents @ (q + v - (q @ v) * q)  # up to a length (method.md section 3)
    assert abs(scores[0] - scores[1]) > 0.01
    assert records["top"].to_list() == [["b", "a"] if scores[1] > scores[0] else ["a", "b"]]
