"""What a query costs, against hand computations over a store written by hand."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.method_cost import method_cost_table
from desa_ray.report.study import Study
from desa_ray.report.table import Table
from desa_ray.store.artifacts import Store
from desa_ray.store.keys import Key
from tests.report.made_up import cell

QUERIES = 4
CONTENT = "0" * 64
Meta = dict[str, Any]


def spent(seconds: float, workers: int = 1, cpus: float = 1.0, share: float = 1.0) -> Meta:
    pool = {"name": "p", "cpus": cpus, "gpus": 0.0}
    return {"seconds": seconds, "workers": workers, "share_computed": share, "pool": pool}


def stored(
    store: Store, stage: str, inputs: dict[str, str], size: int, meta: Meta, **counts: int
) -> str:
    """The digest of a finished artifact with one part of `size` bytes."""
    key = Key(stage, 1, {"size": size, **meta.pop("params", {})}, inputs)
    artifact = store.artifact(key)
    made = meta.pop("made", None)
    artifact.write_part("part-00000.bin", bytes(size), rows=QUERIES, made=made)
    artifact.finish(CONTENT, counts={"rows": QUERIES, **counts}, meta=meta)
    return key.digest


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, list[str]]:
    """Original's fusion, and DESA's of two draws, whose diagnostics read Original's sparse
    ranking.
    """
    store = Store(tmp_path)
    queries = stored(store, "queries", {}, 999, spent(100))
    vectors = stored(store, "vectors", {}, 5000, spent(1000))
    own = {"queries": queries}
    texts = stored(store, "text_vectors", own, 40, spent(2, cpus=2.0), distinct_texts=4)
    scored = {"texts": texts, "vectors": vectors}
    ranking = stored(store, "ranking", scored, 80, spent(3, workers=2))
    sparse = stored(store, "ranking", own, 60, spent(1))
    fused = {"queries": queries, "channel:dense": ranking, "channel:sparse": sparse}
    found = {"original": [stored(store, "fusion", fused, 20, spent(0.5, share=0.25))], "desa": []}
    for draw in range(2):
        meta = {"params": {"draw": draw}, "made": [{"seconds": 6.0 + draw, "gpus": 1.0}]}
        tokens = {"prompt_tokens": 400, "completion_tokens": 200 + 80 * draw}
        generation = stored(store, "generation", own, 100, meta, **tokens)
        made = {"queries": queries, "generation": generation}
        encoded = stored(store, "text_vectors", made, 200, spent(8), distinct_texts=20)
        scored = {"texts": encoded, "vectors": vectors}
        dense = stored(store, "ranking", scored, 80, spent(3))
        fused = {
            "queries": queries,
            "generation:references": generation,
            "channel:dense": dense,
            "original_sparse": sparse,
        }
        found["desa"].append(stored(store, "fusion", fused, 20, spent(1)))
    return found


def table(store: Path, keys: dict[str, list[str]]) -> Table | None:
    frames = []
    for method, digests in keys.items():
        for draw, digest in enumerate(digests):
            own = cell("scifact", method, draws=1, queries=[f"q{n}" for n in range(QUERIES)])
            number = pl.lit(draw, own["draw"].dtype)
            frames.append(own.with_columns(draw=number, fusion_key=pl.lit(digest)))
    study = Study(pl.concat(frames, how="diagonal"))
    return method_cost_table(Store(store), study, Sampling(5))


def test_costs_are_sums_over_all_that_a_fusion_is_made_from(keys, tmp_path):
    """By hand: per query, for one draw, without the corpus and without diagnostics."""
    found = table(tmp_path, keys)
    assert found is not None
    original, desa = (row.values for row in found.rows)
    assert original["encoded"] == 4 / 4
    # Two CPUs for 2 s, two workers for 3 s, 1 s, and a quarter of the fusion in half a second.
    assert original["cpu_seconds"] == (2 * 2 + 2 * 3 + 1 + 0.5 / 0.25) / 4
    assert original["bytes"] == (40 + 80 + 60 + 20) / 4
    assert (original["prompt_tokens"], original["generation_seconds"]) == (0, 0)
    assert desa["prompt_tokens"] == 400 / 4
    assert desa["completion_tokens"] == (200 / 4 + 280 / 4) / 2
    assert desa["generation_seconds"] == (6 / 4 + 7 / 4) / 2
    assert desa["gpu_seconds"] == (6 / 4 + 7 / 4) / 2
    assert desa["encoded"] == 20 / 4
    assert desa["cpu_seconds"] == (8 + 3 + 1) / 4
    assert desa["bytes"] == (100 + 200 + 80 + 20) / 4


def test_what_the_store_lacks_or_does_not_tell_is_no_number(keys, tmp_path):
    """A method without its artifacts has no row; recorded text has no tokens, a stage that another
    run computed no time.
    """
    found = table(tmp_path, {**keys, "shared": ["f" * 64]})
    assert found is not None
    assert [row.about["method"] for row in found.rows] == ["original", "desa"]
    store = Store(tmp_path)
    recorded = stored(store, "generation", {}, 10, spent(1))
    fused = {"generation:references": recorded}
    keys["shared"] = [stored(store, "fusion", fused, 5, spent(1, share=0.0))]
    found = table(tmp_path, keys)
    assert found is not None
    row = next(row.values for row in found.rows if row.about["method"] == "shared")
    assert [row[name] for name in ("completion_tokens", "gpu_seconds", "cpu_seconds")] == [None] * 3
    assert row["bytes"] == 15 / 4
    assert any("recorded texts carry none" in note for note in found.notes)
    assert table(tmp_path, {"original": ["f" * 64]}) is None
