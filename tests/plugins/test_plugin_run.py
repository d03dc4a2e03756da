"""A method of a user's own operators and fusion rule runs as `desa` does, and ranks as it does."""

from pathlib import Path

import polars as pl
from hydra.core.global_hydra import GlobalHydra

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
SAME = [
    *("query_id", "draw", "depths", "steps", "lengths", "exhausted", "dense_angle_deg", "top"),
    *("ndcg_at_10", "recall_at_20", "turnover", "cut_same_top", "replay_hash", "ranking_hashes"),
]


def test_an_example_method_ranks_as_desa_does(
    installed, warm_home, serial_sweep, scifact_slice, tmp_path, monkeypatch
):
    """The example's equations are those of `desa` up to a root, which keeps the order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESA_HOME", str(warm_home))
    GlobalHydra.instance().clear()
    (tmp_path / "own" / "method").mkdir(parents=True)
    (tmp_path / "own" / "method" / "mine.yaml").write_text(METHOD)
    chosen = [*dataset(scifact_slice), "cluster=serial", "tracking.enabled=false"]
    code = main(["--config-dir", "own", "method=mine", "hydra.run.dir=out", *chosen])
    assert code == 0
    mine = pl.read_parquet(Path("out") / "records.parquet")
    desa = pl.concat(map(pl.read_parquet, serial_sweep.glob("outputs/**/records.parquet")))
    desa = desa.filter(pl.col("method") == "desa")
    assert mine.select(SAME).equals(desa.select(SAME))
    assert set(mine["config_hash"]) & set(desa["config_hash"]) == set()
