"""The record of one generation (method.md section 12): one row per query and draw of a prompt,
whatever produced the text.

Recorded text leaves empty what only a live engine knows. The order of rows is that of query ids
(UTF-8), then draws.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from desa_ray.types import sha256_json

GENERATION_SCHEMA = pl.Schema(
    {
        "query_id": pl.String,
        "prompt": pl.String,
        "draw": pl.Int32,
        "texts": pl.List(pl.String),  # what channels are built from; empty for a fallback
        "raw": pl.List(pl.String),  # the engine's last outputs, one per request
        # One per request: the first output where it was retried, else null
        "rejected": pl.List(pl.String),
        "prompt_hash": pl.String,
        "seeds": pl.List(pl.Int64),  # one per request
        "retries": pl.Int32,
        "finish_reasons": pl.List(pl.String),  # one per request
        "prompt_tokens": pl.Int64,  # summed over requests and retries, like the next
        "completion_tokens": pl.Int64,
        "fallback": pl.Boolean,  # invalid: every channel built from it becomes the Original channel
        "reason": pl.String,  # why it fell back
        "generator": pl.String,
        "model": pl.String,
        "revision": pl.String,
        "text_hash": pl.String,  # SHA-256 of the canonical JSON of `texts`
        "decoding": pl.String,  # canonical JSON of the decoding settings
    }
)


def generation_frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows in their one order, with `text_hash` filled in and columns not given left null."""
    ordered = sorted(rows, key=lambda row: (row["query_id"], row["draw"]))
    return pl.DataFrame(
        [{**row, "text_hash": sha256_json(row["texts"])} for row in ordered], GENERATION_SCHEMA
    )
