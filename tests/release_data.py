"""The authors' published rows, as they lie in tests/reference/release."""

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

RELEASE = Path(__file__).parent / "reference" / "release"
DRAWS = 3  # of every query; the one that fell back to the original query has no row: no difference


@cache
def per_draw() -> pl.DataFrame:
    """Mechanism and outcomes of the seven collections, one row per query and draw."""
    file = RELEASE / "mechanism-per-draw.csv.gz"
    return pl.read_csv(file, schema_overrides={"query_id": pl.String})


def query_strata(*columns: str) -> list[np.ndarray]:
    """Query differences [Q, columns] per data set: by name, queries in order of code points."""
    totals = (
        per_draw()
        .group_by("dataset", "query_id")
        .agg(pl.col(columns).sum() / DRAWS)
        .sort("dataset", "query_id")
    )
    parts = totals.partition_by("dataset", maintain_order=True)
    return [part.select(columns).to_numpy() for part in parts]
