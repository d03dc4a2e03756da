"""The quality of generated texts, against hand computations over a store written by hand."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.engines.generation import GENERATION_SCHEMA, generation_frame
from desa_ray.report.generation_quality import generation_quality_table
from desa_ray.report.study import Study
from desa_ray.report.table import Row
from desa_ray.store.artifacts import Store
from desa_ray.store.content import rows_content
from desa_ray.store.keys import Key
from desa_ray.store.tables import write_table
from tests.report.made_up import cell

QUERIES = {"q1": "Sort a list", "q2": "cats"}
TABLE = pl.Schema({"id": pl.String, "text": pl.String})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def finished(store: Store, key: Key, frame: pl.DataFrame, schema: pl.Schema) -> str:
    artifact = store.artifact(key)
    artifact.layout({"bounds": [0]})
    write_table(artifact, "part-00000.parquet", frame, schema)
    artifact.finish(rows_content(frame), counts={"rows": frame.height}, meta={})
    return key.digest


def generation(store: Store, *rows: tuple[str, list[str], int, bool], **changes: Any) -> str:
    """The digest of a generation of (query, texts, retries, fallback)."""
    queries = pl.DataFrame({"id": [*QUERIES], "text": [*QUERIES.values()]}, TABLE)
    asked = finished(store, Key("queries", 1, {"content": "c"}, {}), queries, TABLE)
    frame = generation_frame(
        {
            "query_id": query,
            "prompt": "references",
            "draw": 0,
            "texts": texts,
            "raw": ["x"],
            "retries": retries,
            "fallback": fallback,
            "generator": "smollm2",
        }
        for query, texts, retries, fallback in rows
    ).with_columns(**changes)
    params = {"draw": 0, "prompt": "references"}
    return finished(
        store, Key("generation", 2, params, {"queries": asked}), frame, GENERATION_SCHEMA
    )


def quality(store: Store, digest: str) -> Row:
    own = cell("scifact", "desa", draws=1, generator="smollm2")
    records = [
        cell("scifact", "original", draws=1),
        own.with_columns(generation_key=pl.lit(digest)),
    ]
    study = Study(pl.concat(records, how="diagonal"))
    table = generation_quality_table(store, study, Sampling(5))
    assert table is not None
    (row,) = table.rows
    return row


def test_shares_lengths_and_overlaps_by_hand(store):
    texts = ["sort the list", "Sort a list", "other words here, and more"]
    digest = generation(store, ("q1", texts, 1, False), ("q2", [], 2, True))
    found = dict(quality(store, digest).values)
    assert (found["records"], found["valid"], found["valid_at_once"]) == (2, 50, 0)
    assert found["retries"] == 1.5
    assert found["texts"] == 3
    assert found["words"] == pytest.approx((3 + 3 + 5) / 3)
    assert found["characters"] == pytest.approx(sum(map(len, texts)) / 3)
    assert found["distinct"] == 100
    assert found["query_in_text"] == pytest.approx(100 * (2 / 3 + 1 + 0) / 3)
    assert found["text_in_query"] == pytest.approx(100 * (2 / 3 + 1 + 0) / 3)
    assert found["copies"] == pytest.approx(100 / 3)


def test_repeated_texts_are_counted_once(store):
    digest = generation(store, ("q1", ["a", "a", "b"], 0, False), ("q2", ["a"], 0, False))
    found = quality(store, digest).values
    assert found["distinct"] == 50
    assert (found["valid"], found["valid_at_once"]) == (100, 100)


def test_recorded_texts_have_no_retries(store):
    nothing = pl.lit(None, GENERATION_SCHEMA["raw"])
    found = quality(store, generation(store, ("q1", ["a list"], 0, False), raw=nothing)).values
    assert found.get("retries") is None
    assert found.get("valid_at_once") is None
    assert found["valid"] == 100
    assert found["query_in_text"] == pytest.approx(200 / 3)
