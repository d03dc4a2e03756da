"""Query records that hold the authors' published rows: one query per data set with its means."""

from collections.abc import Mapping
from fractions import Fraction
from math import lcm
from typing import Any

import polars as pl

from tests.release_data import DOCUMENTS, FIDELITY, METHODS, RELEASE, per_draw, results
from tests.report.made_up import cell

WITHOUT = (
    *("turnover", "rr_change", "support_retained", "weights"),
    *("cutoffs", "cut_same_top", "cut_ndcg_at_10", "cut_recall_at_20"),
)
OPERATORS = {"contextual_dense": "dense_contextual", "rewrite_sparse": "sparse_rewrite"}
QUDAR = {
    "qudar_complete": "qudar_complete_uniform_rrf",
    "qudar_weighted": "qudar_complete_confidence_rrf",
}


def row_cell(method: str, row: Mapping[str, Any], **labels: Any) -> pl.DataFrame:
    """The record of one published row."""
    dataset, _, size = row["dataset"].partition("covid-")
    name = f"{dataset}covid" if size else row["dataset"]
    documents = {"trec-covid": DOCUMENTS[-1]}.get(name, 1000)
    frame = cell(
        name,
        method,
        **{
            "queries": ["mean"],
            "draws": 1,
            "without": WITHOUT,
            "encoder": "bge_small",
            "generator": None if method == "original" else "qwen2_5_7b",
            "corpus_docs": int(size) if size else documents,
            **labels,
        },
    )
    total = row["dense_depth"] + row["sparse_depth"] if "dense_depth" in row else row.get("total")
    values = {
        "ndcg_at_10": row["ndcg_at_10"],
        "recall_at_20": row["recall_at_20"],
        "depth_dense": row.get("dense_depth"),
        "depth_sparse": row.get("sparse_depth"),
        "depth_total": total,
        "sparse_support": row.get("sparse_support"),
        "sparse_exhausted": row.get("sparse_exhaustion_rate"),
    }
    return frame.with_columns(
        *(pl.lit(value, pl.Float64).alias(column) for column, value in values.items()),
        fallback=pl.lit(row.get("fallback_rate", 0.0)),
    )


def published_records() -> pl.DataFrame:
    """Every method, kappa, number of references, encoder, generator and corpus size."""
    frames: list[pl.DataFrame] = []
    for method in METHODS:
        frames += [row_cell(method, row) for row in results(method)]
        if method in FIDELITY:
            continue
        for kappa in (2, 20, 100):
            frames += [row_cell(method, r, kappa=str(kappa)) for r in results(method, kappa=kappa)]
        for count in (1, 3) if method != "original" else ():
            rows = results(method, n_refs=count)
            frames += [row_cell(method, row, n_refs=count) for row in rows]
        for row in results(method, condition="contriever"):
            frames.append(row_cell(method, row, encoder="contriever"))
        for row in results(method, condition="mistral"):
            sampled = {"queries": ["sample"], "qrels_hash": f"sample of {row['dataset']}"}
            if method != "original":
                sampled["generator"] = "mistral_7b"
            frames.append(row_cell(method, row, **sampled))
        for size in DOCUMENTS[:-1]:
            name = f"trec-covid-{size}"
            rows = results(method, track="scale", dataset=name)
            frames += [row_cell(method, row, qrels_hash=name) for row in rows]
    for method, name in OPERATORS.items():
        frames += [row_cell(method, row) for row in rows_of("operator-control-results", name)]
    depths = {
        (row["dataset"], row["method"]): row["total_depth"]
        for row in pl.read_csv(RELEASE / "later" / "qudar-depth-results.csv").to_dicts()
    }
    for method, name in QUDAR.items():
        for row in rows_of("later/qudar-baseline-results", f"{name}_matched"):
            frames.append(row_cell(method, {**row, "total": depths[row["dataset"], name]}))
    return pl.concat(frames, how="diagonal_relaxed")


def rows_of(file: str, method: str) -> list[dict[str, Any]]:
    found = pl.read_csv(RELEASE / f"{file}.csv").filter(method=method)
    return [row for row in found.to_dicts() if row["dataset"] != "macro_equal_dataset"]


def difference_records() -> pl.DataFrame:
    """Original as 0 and DESA as its published difference to it, per query and draw.

    The draw that fell back is no row there: it differs by nothing. Depths are reductions in percent
    of Original's.
    """
    columns = {
        "ndcg_at_10": pl.col("proposed_delta_ndcg"),
        "recall_at_20": pl.col("proposed_delta_recall"),
        "depth_dense": -pl.col("proposed_dense_depth_reduction_pct"),
        "depth_sparse": -pl.col("proposed_sparse_depth_reduction_pct"),
    }
    frames: list[pl.DataFrame] = []
    for own in per_draw().partition_by("dataset", maintain_order=True):
        dataset, queries = own["dataset"][0], own["query_id"].unique(maintain_order=True)
        there = own.select("query_id", draw=pl.col("draw_id").cast(pl.Int64), **columns)
        every = pl.DataFrame({"query_id": queries}).join(
            pl.DataFrame({"draw": sorted(own["draw_id"].unique())}), how="cross"
        )
        desa = every.join(there, on=["query_id", "draw"], how="left").with_columns(
            pl.col(columns).fill_null(0.0)
        )
        original = pl.DataFrame({"query_id": queries}).with_columns(
            pl.lit(0, pl.Int64).alias("draw"), *(pl.lit(0.0).alias(name) for name in columns)
        )
        for method, values in (("original", original), ("desa", desa)):
            one = cell(dataset, method, queries=["any"], draws=1, without=WITHOUT)
            frames.append(one.drop("query_id", "draw", *columns).join(values, how="cross"))
    return pl.concat(frames, how="diagonal_relaxed")


DIAGNOSTICS: Mapping[str, pl.Expr] = {
    "dense_angle_deg": pl.col("dense_angle_degrees"),
    "turnover": pl.col("sparse_top20_turnover"),
    # 0 there without a ranked relevant document, null in our records
    "rr_change": pl.when(pl.col("sparse_ranked_relevant_documents") > 0).then(
        "sparse_relevant_rr_delta"
    ),
    "support_retained": pl.col("sparse_support_retention"),
}


MOST_DEPTH = 200_000  # more than any collection holds; fractions of less differ by 2.5e-11
THEIRS = {"desa": "proposed", "dense_only": "dense_only", "sparse_only": "sparse_only"}


def with_whole_depths(rows: pl.DataFrame, channel: str) -> pl.DataFrame:
    """Their reductions in percent as whole depths: the least that have exactly these shares."""
    found: dict[str, list[Fraction]] = {}
    base: dict[str, int] = {}
    for name in THEIRS.values():
        shares = 1 - rows[f"{name}_{channel}_depth_reduction_pct"] / 100
        found[name] = [Fraction(share).limit_denominator(MOST_DEPTH) for share in shares]
        for query, share in zip(rows["query_id"], found[name], strict=True):
            base[query] = lcm(base.get(query, 1), share.denominator)
    of_query = [base[query] for query in rows["query_id"]]
    columns = [pl.Series(f"original_{channel}", of_query)]
    for name, shares in found.items():
        own = [int(share * whole) for share, whole in zip(shares, of_query, strict=True)]
        columns.append(pl.Series(f"{name}_{channel}", own))
    return rows.with_columns(columns)


def mechanism_records() -> pl.DataFrame:
    """The published diagnostics per query-draw as DESA's, and its outcomes and those of each half
    as differences to an Original of effectiveness 0.

    The draw that is no row there fell back.
    """
    frames: list[pl.DataFrame] = []
    for of_dataset in per_draw().partition_by("dataset", maintain_order=True):
        rows = with_whole_depths(with_whole_depths(of_dataset, "dense"), "sparse")
        original = rows.unique("query_id", maintain_order=True).select(
            query_id="query_id",
            draw=0,
            fallback=False,
            ndcg_at_10=0.0,
            recall_at_20=0.0,
            depth_dense="original_dense",
            depth_sparse="original_sparse",
        )
        every = original.select("query_id").join(pl.DataFrame({"draw": [0, 1, 2]}), how="cross")
        usual = original.drop("draw", "fallback").rename(
            lambda n: n if n == "query_id" else f"_{n}"
        )
        values = {"original": original}
        for method, name in THEIRS.items():
            known = rows.select(
                query_id="query_id",
                draw=pl.col("draw_id").cast(pl.Int64),
                fallback=False,
                ndcg_at_10=f"{name}_delta_ndcg",
                recall_at_20=f"{name}_delta_recall",
                depth_dense=f"{name}_dense",
                depth_sparse=f"{name}_sparse",
                **(DIAGNOSTICS if method == "desa" else {}),
            )
            whole = every.join(known, on=["query_id", "draw"], how="left").join(
                usual, on="query_id"
            )
            outcomes = original.columns[3:]
            values[method] = whole.select(
                *(name for name in known.columns if name not in (*outcomes, "fallback")),
                pl.col("fallback").fill_null(value=True),
                *(pl.coalesce(column, f"_{column}").alias(column) for column in outcomes),
            )
        for method, own in values.items():
            one = cell(rows["dataset"][0], method, queries=["any"], draws=1, without=WITHOUT)
            frames.append(one.drop(set(own.columns) & set(one.columns)).join(own, how="cross"))
    return pl.concat(frames, how="diagonal_relaxed")
