"""What generated texts cost, against hand computations over a store written by hand."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.engines.generation import GENERATION_SCHEMA, generation_frame
from desa_ray.report.generation_cost import generation_cost_table
from desa_ray.report.published import SAME, Published
from desa_ray.report.study import Study
from desa_ray.report.table import Table
from desa_ray.store.artifacts import Store
from desa_ray.store.content import rows_content
from desa_ray.store.keys import Key
from desa_ray.store.tables import write_table
from tests.release_compare import build
from tests.report.made_up import cell

EARLIER = {"commit": "a" * 40, "dirty": False, "code": "1" * 64, "environment": "2" * 64}
LATER = {**EARLIER, "commit": "b" * 40, "dirty": True, "versions": {"vllm": "0.11.0"}}
ABSENT = "f" * 64


def rows(draw: int, *spent: tuple[str, int, int, int, bool]) -> pl.DataFrame:
    """Records of (query, prompt tokens, completion tokens, retries, fallback)."""
    return generation_frame(
        {
            "query_id": query,
            "prompt": "references",
            "draw": draw,
            "texts": [],
            "raw": ["x"],
            "prompt_tokens": asked,
            "completion_tokens": told,
            "retries": retries,
            "fallback": fallback,
            "generator": "qwen2_5_7b",
        }
        for query, asked, told, retries, fallback in spent
    )


def stored(store: Store, draw: int, *parts: tuple[pl.DataFrame, list | None], **params: Any) -> str:
    """The digest of a finished generation of these parts."""
    key = Key("generation", 2, {"draw": draw, "prompt": "references", **params}, {})
    artifact = store.artifact(key)
    artifact.layout({"bounds": [0]})
    for number, (frame, made) in enumerate(parts):
        write_table(artifact, f"part-{number:05d}.parquet", frame, GENERATION_SCHEMA, made)
    whole = pl.concat([frame for frame, _ in parts])
    artifact.finish(rows_content(whole), counts={"rows": whole.height}, meta={})
    return key.digest


def table(store: Store, *digests: str, generator: str = "qwen2_5_7b") -> Table:
    frames = [cell("scifact", "original", draws=1, encoder="bge_small")]
    for draw, digest in enumerate(digests):
        own = cell("scifact", "desa", draws=1, generator=generator, encoder="bge_small")
        frames.append(
            own.with_columns(draw=pl.lit(draw, own["draw"].dtype), generation_key=pl.lit(digest))
        )
    found = generation_cost_table(store, Study(pl.concat(frames, how="diagonal")), Sampling(5))
    assert found is not None
    return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_tokens_requests_fallbacks_and_times_by_hand(store):
    """Two draws of two queries: one retried, one fallen back; the second shard by another."""
    first = [(rows(0, ("q1", 100, 50, 0, False)), [{**EARLIER, "seconds": 2.0, "gpus": 1.0}])]
    first += [(rows(0, ("q2", 220, 70, 1, True)), [{**LATER, "seconds": 3.0, "gpus": 2.0}])]
    second = rows(1, ("q1", 100, 40, 0, False), ("q2", 120, 60, 0, False))
    keys = [
        stored(store, 0, *first),
        stored(store, 1, (second, [{**LATER, "seconds": 1.5, "gpus": 1.0}])),
    ]
    (row,) = table(store, *keys).rows
    found = dict(row.values)
    assert found["records"] == 4
    assert found["prompt_tokens"] == (100 + 220 + 100 + 120) / 4
    assert found["completion_tokens"] == (50 + 70 + 40 + 60) / 4
    assert found["attempts"] == 5 / 4
    assert (found["fallback"], found["fallback_queries"]) == (25, 50)
    assert (found["seconds"], found["gpu_seconds"]) == (6.5, 2 * 1 + 3 * 2 + 1.5 * 1)
    assert found["made_by"] == (
        "commit aaaaaaaa, environment 22222222;"
        " commit bbbbbbbb, changed (code 11111111), environment 22222222, vllm 0.11.0"
    )


def test_what_is_not_known_is_said_to_be_absent(store):
    """A recording without tokens, a generation of an earlier version, one not in the store."""
    recording = rows(0, ("q1", 0, 0, 0, False)).with_columns(
        pl.lit(None, GENERATION_SCHEMA[name]).alias(name)
        for name in ("raw", "prompt_tokens", "completion_tokens")
    )
    key = stored(store, 0, (recording, None), recording="r")
    found = table(store, key, ABSENT, generator="recorded")
    (row,) = found.rows
    names = ("prompt_tokens", "completion_tokens", "attempts", "seconds", "gpu_seconds", "made_by")
    assert [row.values.get(name) for name in names] == [None] * 6
    assert row.values["records"] == 1
    assert "1 of 2 generations are not in this store and left out" in found.notes
    assert any("recorded texts carry no tokens" in note for note in found.notes)
    untimed = stored(store, 0, (rows(0, ("q1", 5, 5, 0, False)), None))
    found = table(store, untimed)
    assert found.rows[0].values.get("seconds") is None
    assert any("times are missing for some" in note for note in found.notes)


def test_the_published_cost_stands_beside(store):
    """SciFact, Prompt 1: 181.84333 and 85.38556 tokens of generation-costs.csv."""
    own = stored(store, 0, (rows(0, ("q1", 200, 90, 0, False)), None))
    found = table(store, own)
    study = Study(cell("scifact", "desa", generator="qwen2_5_7b"))
    beside = Published(build()).beside(found, study)
    assert beside is not None
    lines = {line.values["column"]: line.values for line in beside.rows}
    assert lines["prompt tokens"]["printed"] == pytest.approx(181.84333333333333)
    assert lines["prompt tokens"]["difference"] == pytest.approx(200 - 181.84333333333333)
    assert lines["completion tokens"]["printed"] == pytest.approx(85.38555555555556)
    assert lines["query-draws"]["printed"] == 900
    shown = {line[1]: line[2:5] for line in beside.shown()}
    assert shown["query-draws"] == ["1", "900", "−899"]
    assert lines["requests"]["generator"] == SAME
