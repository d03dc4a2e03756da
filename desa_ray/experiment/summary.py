"""The summary of a cell: means over queries of its records, and the names that metrics have."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from desa_ray.config import DEFAULT_RULE
from desa_ray.core.evaluation import (
    EXPONENTIAL_COLUMN,
    metric_name,
)
from desa_ray.core.fusion.cutoffs import CUTOFFS
from desa_ray.core.statistics.aggregate import fallback_pct
from desa_ray.engines.gpu_engines import CPU
from desa_ray.experiment.build import Cell
from desa_ray.experiment.fusing import fused_methods, kappa_of
from desa_ray.experiment.records import labels
from desa_ray.stages.rule_fusion import why_no_depths

TIE = 1e-12

# What a summary has beside measures and values of cutoffs.
METRICS = (
    *("depth_dense", "depth_sparse", "depth_total", "sparse_support"),
    *("dense_exhausted", "sparse_exhausted", "both_shallower", "support_ratio"),
    *("dense_angle_deg", "turnover", "rr_change", "support_retained"),
    *("dense_angle_deg_max", "support_retained_min", "rr_change_absent"),
)


CUT = ("ndcg_at_10", "recall_at_20")  # measures of prefixes


def summarise(records: pl.DataFrame, measures: list[str]) -> dict[str, float | None]:
    """Means over queries of draw-averaged values; None where no query has a value.

    Depths, support and exhaustion are over all queries, measures over those with a positive
    judgment. `both_shallower` is the share of queries whose draw-averaged depths are both below
    Original's, `support_ratio` the ratio of the mean sparse supports. Mechanism diagnostics leave
    fallbacks out (method.md section 9).
    """
    columns = {
        **{metric_name(measure): pl.col(metric_name(measure)) for measure in measures},
        EXPONENTIAL_COLUMN: pl.col(EXPONENTIAL_COLUMN),
        "depth_dense": pl.col("depth_dense"),
        "depth_sparse": pl.col("depth_sparse"),
        "depth_total": pl.col("depth_total"),
        "sparse_support": pl.col("sparse_support"),
        "dense_exhausted": pl.col("dense_exhausted").cast(pl.Float64),
        "sparse_exhausted": pl.col("sparse_exhausted").cast(pl.Float64),
    }
    by_query = records.group_by("query_id", maintain_order=True).agg(
        *(column.mean().alias(name) for name, column in columns.items()),
        *(
            pl.col(f"reference_{name}").first()
            for name in ("depth_dense", "depth_sparse", "sparse_support")
        ),
    )
    shallower = (pl.col("depth_dense") < pl.col("reference_depth_dense")) & (
        pl.col("depth_sparse") < pl.col("reference_depth_sparse")
    )
    means = by_query.select(
        *(pl.col(name).mean() for name in columns),
        both_shallower=shallower.mean(),
        support_ratio=_ratio(
            pl.col("sparse_support").mean(), pl.col("reference_sparse_support").mean()
        ),
    )
    return means.row(0, named=True) | _mechanism(records)


def metric_names(measures: Sequence[str]) -> list[str]:
    """The names of all metrics of a cell with these measures, as its summary has them."""
    own = [metric_name(measure) for measure in measures]
    cut = [f"cut_{name}{end}" for name in CUT for end in ("", "_changed", "_reversed")]
    of_cutoffs = [f"{name}/L{cutoff}" for cutoff in CUTOFFS for name in ("cut_same_top", *cut)]
    return [*dict.fromkeys([*own, EXPONENTIAL_COLUMN]), *METRICS, *of_cutoffs]


def _mechanism(records: pl.DataFrame) -> dict[str, float | None]:
    """Means over queries of draw-averaged diagnostics, as the report's table has them.

    `rr_change` counts a query-draw without a relevant document in both rankings as 0, and
    `rr_change_absent` is the number of those; both are None where nothing was compared.
    """
    compared = pl.col("turnover").is_not_null()
    own = records.filter(~pl.col("fallback")).with_columns(
        rr_change=pl.when(compared).then(pl.col("rr_change").fill_null(0.0)),
        rr_change_absent=pl.when(compared).then(pl.col("rr_change").is_null()),
    )
    names = ("dense_angle_deg", "turnover", "rr_change", "support_retained")
    means = own.group_by("query_id", maintain_order=True).agg(pl.col(names).mean())
    extremes = own.select(
        dense_angle_deg_max=pl.col("dense_angle_deg").max(),
        support_retained_min=pl.col("support_retained").min(),
        rr_change_absent=pl.when(pl.col("rr_change_absent").count() > 0).then(
            pl.col("rr_change_absent").sum()
        ),
    )
    return means.select(pl.col(names).mean()).row(0, named=True) | extremes.row(0, named=True)


def _ratio(value: pl.Expr, reference: pl.Expr) -> pl.Expr:
    return pl.when(reference > 0).then(value / reference)


def summarise_cutoffs(records: pl.DataFrame) -> dict[str, float | None]:
    """Fixed-cutoff diagnostics as `NAME/L<cutoff>`, shares over query-draws (method.md section 7).

    `cut_same_top`: the ordered top under L is the complete one. `cut_ndcg_at_10`,
    `cut_recall_at_20`: mean under L. `..._changed`: the method's label against Original (gain, tie,
    loss) under L is another than that of the complete rankings; `..._reversed`: a gain became a
    loss or a loss a gain. None for cells without a reference.
    """
    found: dict[str, float | None] = {}
    for place, cutoff in enumerate(records["cutoffs"][0].to_list()):
        columns: dict[str, pl.Expr] = {
            "cut_same_top": pl.col("cut_same_top").list.get(place).mean()
        }
        for name in CUT:
            under = pl.col(f"cut_{name}").list.get(place)
            label = outcome(under, pl.col(f"reference_cut_{name}").list.get(place))
            complete = outcome(pl.col(name), pl.col(f"reference_{name}"))
            columns[f"cut_{name}"] = under.mean()
            columns[f"cut_{name}_changed"] = (label != complete).mean()
            columns[f"cut_{name}_reversed"] = (label * complete == -1).mean()
        found |= {
            f"{name}/L{cutoff}": value
            for name, value in records.select(**columns).row(0, named=True).items()
        }
    return found


def outcome(value: pl.Expr, reference: pl.Expr) -> pl.Expr:
    """1 for a gain, -1 for a loss, 0 for a tie, which is a difference of at most 1e-12; null where
    one is null.
    """
    difference = value - reference
    return pl.when(difference.abs() <= TIE).then(0).otherwise(difference.sign()).cast(pl.Int8)


def per_draw(records: pl.DataFrame, measures: list[str]) -> list[dict[str, float | None]]:
    """The summary of each draw on its own."""
    return [
        summarise(frame, measures) for frame in records.partition_by("draw", maintain_order=True)
    ]


def cell_summary(cell: Cell, records: pl.DataFrame) -> dict[str, Any]:
    """A cell's entry in `summary.json`, without the run's own fields (ids, artifact hashes, stage
    counts).
    """
    measures = cell.fused[0].params["measures"]
    kappa = kappa_of(cell.config.fusion, fused_methods(cell.config))
    shown = labels(cell)
    if kappa is not None and kappa.denominator == 1:
        shown["kappa"] = int(kappa)
    of_draws, of_queries = fallback_pct(records)
    rule, reason = cell.config.fusion.rule, why_no_depths(cell.fused[0].params)
    return {
        **shown,
        **({"rule": rule} if rule != DEFAULT_RULE else {}),
        **({"engine": cell.engine} if cell.engine != CPU else {}),
        **({"no_depths": reason} if reason else {}),
        "ranking": cell.config.ranking,
        "n_queries": records["query_id"].n_unique(),
        "draws": len(cell.fused),
        "fallbacks": int(records["fallback"].sum()),
        "fallback_pct_of_query_draws": of_draws,
        "fallback_pct_of_queries": of_queries,
        "metrics": summarise(records, measures) | summarise_cutoffs(records),
    }
