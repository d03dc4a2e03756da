"""The authors' published rows, as they lie in tests/reference/release."""

from functools import cache
from pathlib import Path
from typing import Any

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


# Our method -> theirs.
METHODS = {
    "original": "original",
    "shared": "bridge_shared",
    "dense_only": "dense_only",
    "sparse_only": "sparse_only",
    "desa": "proposed",
    "binary_mask": "sparse_boolean_mask",
    "references_only": "sparse_references_only",
    "mugi_controlled": "mugi_controlled",
    "hyde": "hyde",
    "mugi": "mugi",
    "query2doc": "query2doc",
}
FIDELITY = ("hyde", "mugi", "query2doc")
DOCUMENTS = (25000, 50000, 100000, 171332)  # of TREC-COVID's snapshots


@cache
def all_results() -> pl.DataFrame:
    return pl.read_csv(RELEASE / "all-results.csv")


def results(
    method: str,
    *,
    kappa: int = 60,
    n_refs: int = 5,
    condition: str = "primary",
    track: str | None = None,
    dataset: str | None = None,
) -> list[dict[str, Any]]:
    """The published rows of one of our methods under one setting, by data set."""
    varied = (kappa, n_refs) != (60, 5)
    fidelity = "fidelity" if method in FIDELITY else "controlled"
    usual = "robustness" if condition != "primary" else "ablation" if varied else fidelity
    rows = all_results().filter(
        method=METHODS[method], track=track or usual, condition_id=condition, rrf_constant=kappa
    )
    if method not in FIDELITY:
        rows = rows.filter(reference_count=n_refs)
    if dataset is not None:
        rows = rows.filter(dataset=dataset)
    assert rows["dataset"].is_unique().all()
    assert rows.height, (method, kappa, n_refs, condition, track, dataset)
    return rows.sort("dataset").to_dicts()
