"""The slow proof: all of SciFact against published numbers, and the demo as a fresh user runs it."""

import json
import time

import pytest

from tests.desa_fixtures import summaries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]
METHODS = "method=original,shared,dense_only,sparse_only,desa"


def test_scifact_gives_the_published_numbers_and_desa_keeps_the_support(shared, desa, tmp_path):
    path = f"dataset.path={shared / 'data' / 'scifact'}"
    shown = desa("verify", "expected=scifact", path, timeout=2400).stdout
    assert "NO" not in shown
    desa("run", "-m", "dataset=scifact", path, METHODS, timeout=2400)
    import polars as pl

    sweep = sorted(tmp_path.glob("outputs/sweeps/*/*"))[-1]
    records = {number: pl.read_parquet(sweep / str(number) / "records.parquet") for number in (0, 4)}
    original = dict(zip(records[0]["query_id"], records[0]["sparse_support"], strict=True))
    assert all(original[q] == s for q, s in records[4].select("query_id", "sparse_support").iter_rows())


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
