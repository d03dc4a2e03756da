"""The authors' published values about cutoffs and about the mechanism, from their rows."""

from typing import Any

import polars as pl

from tests.release_data import per_draw
from tests.release_rows import MACRO, rows

RELATIONS = {
    "rr_change_vs_sparse_only_ndcg_gain": "relevant_rr_gain_vs_sparse_only_delta_ndcg",
    "turnover_vs_sparse_only_ndcg_gain": "sparse_turnover_vs_sparse_only_delta_ndcg",
    "turnover_vs_depth_reduction": "sparse_turnover_vs_sparse_depth_reduction",
    "angle_vs_ndcg_gain": "dense_angle_vs_dense_only_delta_ndcg",
    "angle_vs_depth_reduction": "dense_angle_vs_dense_depth_reduction",
}


def cutoffs() -> dict[str, Any]:
    found = {}
    for row in rows("fixed-top-l-conclusion-changes", method="proposed"):
        (same,) = rows("fixed-top-l-query-diagnostics", method="proposed", top_l=row["top_l"])
        found[str(row["top_l"])] = {
            "same_top": 100 * same["complete_top20_exact"],
            "ndcg_at_10_change": 100 * row["ndcg_conclusion_change"],
            "ndcg_at_10_reversal": 100 * row["ndcg_direction_reversal"],
            "recall_at_20_change": 100 * row["recall_conclusion_change"],
            "recall_at_20_reversal": 100 * row["recall_direction_reversal"],
        }
    return found


def mechanism() -> dict[str, Any]:
    """Extremes are over query-draws, as the paper has them and our records; those of
    mechanism-summary.csv are over query means.
    """
    draws = per_draw()
    found = {}
    for row in rows("mechanism-summary"):
        dataset = "macro" if row["dataset"] == MACRO else row["dataset"]
        own = draws if dataset == "macro" else draws.filter(dataset=dataset)
        found[dataset] = {
            "dense_angle_deg": row["dense_angle_mean"],
            "turnover": 100 * row["sparse_top20_turnover_mean"],
            "rr_change": row["sparse_relevant_rr_delta_mean"],
            "support_retained": 100 * row["support_retention_mean"],
            "max_angle": own["dense_angle_degrees"].max(),
            "min_support": 100 * own["sparse_support_retention"].min(),
            "pairs": own.height,
            "no_relevant": own.filter(pl.col("sparse_ranked_relevant_documents") == 0).height,
        }
    return found


def quartiles() -> tuple[dict[str, Any], dict[str, Any]]:
    """Macro and data set rows, by diagnostic, data set and quarter."""
    titles = {"dense": ("dense_angle_deg", 1), "sparse": ("turnover", 100)}
    macros: dict[str, Any] = {}
    datasets: dict[str, Any] = {}
    for row in rows("mechanism-binned-effects"):
        diagnostic, scale = titles[row["mechanism"]]
        values = {
            "mean": scale * row["driver_mean"],
            "ndcg_gain": row["delta_ndcg"],
            f"{row['mechanism']}_reduction": row["depth_reduction_pct"],
            "queries": row["queries"],
        }
        own = macros if row["dataset"] == MACRO else datasets.setdefault(row["dataset"], {})
        own.setdefault(diagnostic, {})[str(row["bin"])] = values
    return macros, datasets


def correlations() -> tuple[dict[str, float], dict[str, Any]]:
    macros: dict[str, float] = {}
    datasets: dict[str, Any] = {}
    for name, analysis in RELATIONS.items():
        for row in rows("mechanism-correlations", analysis=analysis):
            if row["dataset"] == MACRO:
                macros[name] = row["spearman_rho"]
            else:
                datasets.setdefault(row["dataset"], {})[name] = row["spearman_rho"]
    return macros, datasets
