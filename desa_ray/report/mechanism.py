"""What the operators did: dense angle, sparse turnover, rank movement, support, and how they relate
to the outcomes.

Fallbacks are left out. Means count query-draws within each data set, then data sets (method.md
section 9).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from desa_ray.core.statistics.aggregate import macro, reduction_pct, spearman
from desa_ray.report.draws import has, paired_draws
from desa_ray.report.names import dataset_name
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

DIAGNOSTICS = {
    "dense_angle_deg": "dense angle (°)",
    "turnover": "sparse top-20 turnover (%)",
    "rr_change": "relevant RR change",
}
QUARTERS = (0.25, 0.5, 0.75)


def paired_mechanism(study: Study) -> bool:
    """Whether DESA's diagnostics can be paired with its gains over Original everywhere."""
    return has(study, ("desa",), tuple(DIAGNOSTICS)) and study.complete("original")


def mechanism_draws(study: Study, dataset: str) -> pl.DataFrame:
    """DESA's query-draws without fallbacks, with each diagnostic, and its gain over Original as a
    query-draw.

    `ndcg_gain` and `depth_reduction` (documents, both channels) are differences to Original;
    turnover is in percent.
    """
    pairs = paired_draws(study, dataset).filter(~pl.col("fallback"))
    return pairs.with_columns(
        pl.col("turnover") * 100,
        ndcg_gain=pl.col("ndcg_at_10") - pl.col("ndcg_at_10_original"),
        depth_reduction=pl.col("depth_total_original") - pl.col("depth_total"),
    )


def mechanism_table(study: Study) -> Table | None:
    needed = (*DIAGNOSTICS, "support_retained")
    if not has(study, ("desa",), needed):
        return None
    rows, means = [], []
    for dataset in study.datasets:
        desa = study.cell(dataset, "desa")
        assert desa
        pairs = desa.records.filter(~pl.col("fallback")).with_columns(
            pl.col("turnover") * 100, pl.col("support_retained") * 100
        )
        mean = pairs.select(pl.col(needed).mean()).row(0, named=True)
        means.append(mean)
        rows.append(_mechanism_row({"dataset": dataset}, dataset_name(dataset), mean, [pairs]))
    pooled = [
        desa.records.filter(~pl.col("fallback"))
        for d in study.datasets
        if (desa := study.cell(d, "desa"))
    ]
    if len(rows) > 1:
        averaged = {
            k: macro([m[k] for m in means]) if None not in [m[k] for m in means] else None
            for k in means[0]
        }
        scaled = [frame.with_columns(pl.col("support_retained") * 100) for frame in pooled]
        rows.append(_mechanism_row({"macro": True}, "macro", averaged, scaled))
    columns = (
        Column("dataset", "data set"),
        *(
            Column(key, title, "{:.4f}" if key == "rr_change" else "{:.2f}")
            for key, title in DIAGNOSTICS.items()
        ),
        Column("support_retained", "support retained (%)", "{:.4f}"),
        Column("max_angle", "largest angle (°)", "{:.2f}", help="45° is the bound"),
        Column("min_support", "least support (%)", "{:.5f}"),
        Column("pairs", "query-draws", "{:d}", help="without fallbacks"),
    )
    return Table("mechanism", "What the operators did", columns, rows)


def _mechanism_row(
    about: dict, name: str, mean: Mapping[str, float | None], frames: Sequence[pl.DataFrame]
) -> Row:
    pooled = pl.concat([frame.select("dense_angle_deg", "support_retained") for frame in frames])
    extremes: dict[str, Value] = {
        "max_angle": pooled["dense_angle_deg"].max(),  # pyright: ignore[reportAssignmentType]
        "min_support": pooled["support_retained"].min(),  # pyright: ignore[reportAssignmentType]
        "pairs": pooled.height,
    }
    return Row({"dataset": name, **mean, **extremes}, about)


def quartiles_table(study: Study) -> Table | None:
    """Gains by quartile of each diagnostic, quartiles within each data set, then macro; equal
    values stay together.
    """
    if not paired_mechanism(study):
        return None
    rows = []
    for diagnostic, title in DIAGNOSTICS.items():
        by_dataset = [
            _quartiles(mechanism_draws(study, dataset), diagnostic) for dataset in study.datasets
        ]
        for quartile in range(4):
            there = [found[quartile] for found in by_dataset if quartile in found]
            if not there:
                continue
            values: dict[str, Value] = {"diagnostic": title, "quartile": quartile + 1}
            values |= {
                key: macro([entry[key] for entry in there])
                for key in ("mean", "ndcg_gain", "reduction")
            }
            values["pairs"] = int(sum(entry["pairs"] for entry in there))
            rows.append(Row(values, {"diagnostic": diagnostic, "quartile": quartile + 1}))
    columns = (
        Column("diagnostic", "diagnostic"),
        Column(
            "quartile", "quartile", "{:d}", help="within each data set; 1 holds the smallest values"
        ),
        Column("mean", "its mean", "{:.4f}"),
        Column("ndcg_gain", "nDCG@10 gain", "{:+.4f}", help="DESA − Original"),
        Column(
            "reduction", "total depth reduction %", "{:.2f}", help="1 − mean(DESA) / mean(Original)"
        ),
        Column("pairs", "query-draws", "{:d}"),
    )
    return Table("mechanism_quartiles", "Diagnostics by quartile", columns, rows)


def _quartiles(draws: pl.DataFrame, diagnostic: str) -> dict[int, dict[str, float]]:
    draws = draws.drop_nulls([diagnostic, "ndcg_gain"])
    if not draws.height:
        return {}
    edges = np.quantile(draws[diagnostic].to_numpy(), QUARTERS)
    place = np.searchsorted(edges, draws[diagnostic].to_numpy(), side="left")
    found = {}
    for quartile in range(4):
        own = draws.filter(pl.Series(place == quartile))
        if own.height:
            depth, original = (
                float(own["depth_total"].sum()),
                float(own["depth_total_original"].sum()),
            )
            found[quartile] = {
                "mean": own[diagnostic].mean(),
                "ndcg_gain": own["ndcg_gain"].mean(),
                "reduction": reduction_pct(depth, original),
                "pairs": own.height,
            }
    return found


def correlations_table(study: Study) -> Table | None:
    """Spearman over pooled query-draws, as chosen in method.md section 9."""
    if not paired_mechanism(study):
        return None
    pooled = pl.concat(
        [
            mechanism_draws(study, dataset)
            .select(
                *(
                    "query_id",
                    "draw",
                    *DIAGNOSTICS,
                    "ndcg_gain",
                    "depth_reduction",
                    "depth_total_original",
                )
            )
            .with_columns(dataset=pl.lit(dataset))
            for dataset in study.datasets
        ]
    ).with_columns(relative=pl.col("depth_reduction") / pl.col("depth_total_original"))
    pairs = [
        ("angle_vs_ndcg_gain", "dense_angle_deg", "DESA's nDCG@10 gain", pooled, "ndcg_gain"),
        (
            "angle_vs_depth_reduction",
            "dense_angle_deg",
            "total depth reduction (documents)",
            pooled,
            "depth_reduction",
        ),
        (
            "angle_vs_relative_reduction",
            "dense_angle_deg",
            "total depth reduction (share)",
            pooled,
            "relative",
        ),
    ]
    sparse = _sparse_only_gains(study)
    if sparse is not None:
        with_sparse = pooled.join(sparse, on=["dataset", "query_id", "draw"], maintain_order="left")
        title = "Sparse only's nDCG@10 gain"
        pairs = [
            ("rr_change_vs_sparse_only_ndcg_gain", "rr_change", title, with_sparse, "sparse_gain"),
            ("turnover_vs_sparse_only_ndcg_gain", "turnover", title, with_sparse, "sparse_gain"),
            *pairs,
        ]
    rows = []
    for name, diagnostic, title, frame, gain in pairs:
        coefficient, count = spearman(frame[diagnostic], frame[gain])
        values: dict[str, Value] = {"diagnostic": DIAGNOSTICS[diagnostic], "against": title}
        rows.append(Row({**values, "spearman": coefficient, "pairs": count}, {"correlation": name}))
    columns = (
        Column("diagnostic", "diagnostic"),
        Column("against", "against"),
        Column("spearman", "Spearman", "{:+.3f}"),
        Column("pairs", "query-draws", "{:d}"),
    )
    return Table(
        "correlations",
        "Diagnostics and outcomes",
        columns,
        rows,
        ["gains are over Original, a query-draw each"],
    )


def _sparse_only_gains(study: Study) -> pl.DataFrame | None:
    frames = []
    for dataset in study.datasets:
        own, original = study.cell(dataset, "sparse_only"), study.cell(dataset, "original")
        if own is None or original is None:
            return None
        both = own.records.join(original.records, on="query_id", suffix="_original")
        gain = (pl.col("ndcg_at_10") - pl.col("ndcg_at_10_original")).alias("sparse_gain")
        frames.append(both.select(pl.lit(dataset).alias("dataset"), "query_id", "draw", gain))
    return pl.concat(frames)
