"""The authors' published rows (reference/release), and the formulas of method.md section 10 that
make macros and percentages of them.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import polars as pl

from tests.release_data import RELEASE, results

COLUMNS = {
    "ndcg_at_10": "ndcg_at_10",
    "recall_at_20": "recall_at_20",
    "depth_dense": "dense_depth",
    "depth_sparse": "sparse_depth",
}
MACRO = "macro_equal_dataset"
Means = Mapping[str, Sequence[float]]


def rows(name: str, **equal: object) -> list[dict[str, Any]]:
    found = pl.read_csv(RELEASE / f"{name}.csv").filter(**equal)
    return found.sort(found.columns[0], maintain_order=True).to_dicts()


def means(method: str, **setting: object) -> dict[str, list[float]]:
    """Each outcome's data set means, by name of the data set."""
    own = results(method, **setting)
    return {name: [row[column] for row in own] for name, column in COLUMNS.items()}


def gain(own: Sequence[float], other: Sequence[float]) -> float:
    return 100 * (fmean(own) / fmean(other) - 1)


def reduction(own: Sequence[float], other: Sequence[float]) -> float:
    return fmean([100 * (1 - a / b) for a, b in zip(own, other, strict=True)])


def changes(own: Means, other: Means) -> dict[str, float]:
    found = {name: gain(own[name], other[name]) for name in ("ndcg_at_10", "recall_at_20")}
    depths = ("depth_dense", "depth_sparse")
    return found | {name: reduction(own[name], other[name]) for name in depths}


def no_macro(file: str, **equal: object) -> list[dict[str, Any]]:
    return [row for row in rows(file, **equal) if row["dataset"] != MACRO]


def macro_row(file: str, method: str) -> dict[str, float]:
    own = no_macro(file, method=method)
    assert len(own) == 7, (file, method)
    return {name: fmean([row[name] for row in own]) for name in ("ndcg_at_10", "recall_at_20")}


OUTCOMES = {
    "dense_depth": "depth_dense",
    "sparse_depth": "depth_sparse",
    "dense": "depth_dense",
    "sparse": "depth_sparse",
}


def tests_of(file: str, comparison: str) -> dict[str, Any]:
    found = {}
    for row in rows(file, comparison=comparison):
        outcome = OUTCOMES.get(row["metric"], row["metric"])
        interval = [row["ci95_lower"], row["ci95_upper"]]
        found[outcome] = {
            "effect": row["favorable_difference"],
            "ci": interval,
            "p": row["p_raw"],
            "p_holm": row["p_holm"],
        }
    return found
