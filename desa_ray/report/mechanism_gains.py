"""How the effects of the operators relate to their gains: quarters and rank correlations
(method.md section 9).

The dense angle is compared with the outcomes of the subject's dense part alone, turnover and
relevant RR change with those of its sparse part alone (the subject's own outcomes where no part is
named), each against the reference. Draws are averaged within a query first; draws that fell back to
the original query are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from desa_ray.core.statistics.aggregate import macro, quarters, spearman
from desa_ray.core.statistics.correlation import (
    mean_interval,
    pooled_interval,
    spearman_interval,
)
from desa_ray.report.draws import paired_draws
from desa_ray.report.mechanism import DIAGNOSTICS, PERCENT, diagnostic_draws, has_mechanism
from desa_ray.report.names import dataset_name, method_name
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

OUTCOMES = ("ndcg_gain", "recall_gain", "dense_reduction", "sparse_reduction")


@dataclass(frozen=True)
class Relation:
    """A diagnostic and an outcome of the method that has only that operator."""

    name: str
    diagnostic: str
    outcome: str


KINDS = {"dense_angle_deg": "dense", "turnover": "sparse", "rr_change": "sparse"}
RELATIONS = (
    Relation("rr_change_vs_sparse_only_ndcg_gain", "rr_change", "ndcg_gain"),
    Relation("turnover_vs_sparse_only_ndcg_gain", "turnover", "ndcg_gain"),
    Relation("turnover_vs_depth_reduction", "turnover", "sparse_reduction"),
    Relation("angle_vs_ndcg_gain", "dense_angle_deg", "ndcg_gain"),
    Relation("angle_vs_depth_reduction", "dense_angle_deg", "dense_reduction"),
)
OUTCOME_TITLES = {
    "ndcg_gain": "nDCG@10 gain",
    "recall_gain": "Recall@20 gain",
    "dense_reduction": "dense depth reduction %",
    "sparse_reduction": "sparse depth reduction %",
}


def alone(study: Study, diagnostic: str) -> str:
    """The method whose outcomes are compared with a diagnostic."""
    return study.roles.parts.get(KINDS[diagnostic], study.roles.own)


def operator_draws(study: Study, dataset: str, diagnostic: str) -> pl.DataFrame:
    """One row per query-draw: the diagnostic and the outcomes of its operator alone.

    Returns:
        Columns `query_id`, `draw`, the diagnostic (turnover as the share that records hold: in
        percent, other means over draws would be equal floats; a missing RR change as 0), and
        `OUTCOMES` over the reference: differences of nDCG@10 and Recall@20, reductions of each
        depth in percent of the reference's (0 where that is 0). Fallbacks are left out.
    """
    method = alone(study, diagnostic)
    assert study.cell(dataset, method)
    assert study.cell(dataset, study.roles.base)
    drivers = diagnostic_draws(study, dataset).select("query_id", "draw", diagnostic)
    needed = ("fallback", "ndcg_at_10", "recall_at_20", "depth_dense", "depth_sparse")
    both = paired_draws(study, dataset, method, needed).filter(~pl.col("fallback"))
    outcomes = both.select(
        "query_id",
        "draw",
        ndcg_gain=pl.col("ndcg_at_10") - pl.col("ndcg_at_10_original"),
        recall_gain=pl.col("recall_at_20") - pl.col("recall_at_20_original"),
        dense_reduction=_reduction("depth_dense"),
        sparse_reduction=_reduction("depth_sparse"),
    )
    return drivers.join(outcomes, on=["query_id", "draw"], maintain_order="left")


def _reduction(depth: str) -> pl.Expr:
    own, other = pl.col(depth), pl.col(f"{depth}_original")
    return pl.when(other > 0).then(100 * (1 - own / other)).otherwise(0.0)


def query_means(draws: pl.DataFrame, diagnostic: str) -> pl.DataFrame:
    """Means over draws, one row per query that has all values, sorted by query id."""
    columns = [diagnostic, *OUTCOMES]
    means_of = pl.col(columns).cast(pl.Float64).mean()
    means = draws.group_by("query_id", maintain_order=True).agg(means_of)
    return means.drop_nulls(columns).sort("query_id")


def quarter_rows(means: pl.DataFrame, diagnostic: str) -> list[dict[str, float]]:
    """Means of the diagnostic and the outcomes in each quarter of one data set.

    Equal values share a quarter, so quarters may differ in size, and one may be absent.

    Returns:
        `quarter` 1 to 4 (1 holds the smallest values), `queries`, `mean`, and `OUTCOMES`.
    """
    place = quarters(means[diagnostic].to_numpy())
    found: list[dict[str, float]] = []
    for quarter in range(1, 5):
        own = means.filter(pl.Series(place == quarter))
        if own.height:
            row = own.select(pl.col(diagnostic, *OUTCOMES).mean()).row(0, named=True)
            mean = row.pop(diagnostic)
            found.append({"quarter": quarter, "queries": own.height, "mean": mean, **row})
    return found


def _ready(study: Study, diagnostic: str) -> bool:
    roles = study.roles
    return (
        roles.base != roles.own
        and has_mechanism(study)
        and study.complete(roles.base, alone(study, diagnostic))
    )


def quartiles_tables(study: Study) -> list[Table]:
    """Outcomes by quarter of each diagnostic: macro, and data set by data set."""
    macros, by_dataset = [], []
    for diagnostic, title in DIAGNOSTICS.items():
        if not _ready(study, diagnostic):
            continue
        found: dict[str, list[dict[str, float]]] = {}
        for dataset in study.datasets:
            means = query_means(operator_draws(study, dataset, diagnostic), diagnostic)
            found[dataset] = quarter_rows(means, diagnostic) if means.height else []
        about = {"diagnostic": diagnostic}
        for dataset, rows in found.items():
            label = {"dataset": dataset_name(dataset), "diagnostic": title}
            by_dataset += [_quarter_row(row, label, {**about, "dataset": dataset}) for row in rows]
        averaged = average_quarters(list(found.values()))
        macros += [_quarter_row(row, {"diagnostic": title}, about) for row in averaged]
    tables = []
    title = "Gains of one operator alone by quarter of its diagnostic"
    if macros:
        tables.append(Table("mechanism_quartiles", title, _quarter_columns(study), macros))
    if len(study.datasets) > 1 and by_dataset:
        columns = (Column("dataset", "data set"), *_quarter_columns(study))
        name = "mechanism_quartiles_by_dataset"
        tables.append(Table(name, f"{title}, each data set", columns, by_dataset))
    return tables


def average_quarters(found: Sequence[Sequence[Mapping[str, float]]]) -> list[dict[str, float]]:
    """Each quarter's means over the data sets that have it; their queries are counted together."""
    averaged: list[dict[str, float]] = []
    for quarter in range(1, 5):
        own = [row for rows in found for row in rows if row["quarter"] == quarter]
        if own:
            means = pl.DataFrame(own).select(pl.col("mean", *OUTCOMES).mean())
            queries = sum(row["queries"] for row in own)
            averaged.append({"quarter": quarter, "queries": queries, **means.row(0, named=True)})
    return averaged


def _quarter_row(
    found: Mapping[str, float], label: Mapping[str, Value], about: Mapping[str, object]
) -> Row:
    mean = found["mean"] * PERCENT.get(str(about["diagnostic"]), 1)
    return Row({**label, **found, "mean": mean}, {**about, "quartile": found["quarter"]})


def _quarter_columns(study: Study) -> tuple[Column, ...]:
    base = f"over {method_name(study.roles.base)}"
    rank = "within each data set, by average rank of the queries' means; 1 holds the smallest"
    return (
        Column("diagnostic", "diagnostic"),
        Column("quarter", "quarter", "{:d}", help=rank),
        Column("mean", "its mean", "{:.4f}"),
        Column("ndcg_gain", OUTCOME_TITLES["ndcg_gain"], "{:+.4f}", help=base),
        Column("recall_gain", OUTCOME_TITLES["recall_gain"], "{:+.4f}", help=base),
        Column("dense_reduction", OUTCOME_TITLES["dense_reduction"], "{:.2f}"),
        Column("sparse_reduction", OUTCOME_TITLES["sparse_reduction"], "{:.2f}"),
        Column("queries", "queries", "{:d}"),
    )


def correlations_tables(study: Study, seed: int = 0) -> list[Table]:
    """Spearman within each data set over query means, their mean, and the pooled value, each with a
    95 % interval.
    """
    macros, by_dataset, constant = [], [], []
    for relation in RELATIONS:
        if not _ready(study, relation.diagnostic):
            continue
        label = _relation_label(study, relation)
        coefficients, sizes, pooled = [], [], []
        for dataset in study.datasets:
            draws = operator_draws(study, dataset, relation.diagnostic)
            means = query_means(draws, relation.diagnostic)
            found, queries = spearman(means[relation.diagnostic], means[relation.outcome])
            pooled.append(draws.select("query_id", relation.diagnostic, relation.outcome))
            about = {"correlation": relation.name, "dataset": dataset}
            values: dict[str, Value] = {"dataset": dataset_name(dataset), **label}
            if np.isnan(found):
                constant.append(f"{dataset} ({relation.name})")
                found = ends = None
            else:
                coefficients.append(found)
                sizes.append(queries)
                ends = spearman_interval(found, queries)
            values |= {"spearman": found, "ci": ends, "queries": queries}
            by_dataset.append(Row(values, about))
        draws = pl.concat(pooled)
        over_draws, pairs = spearman(draws[relation.diagnostic], draws[relation.outcome])
        values = {
            **label,
            "spearman": macro(coefficients) if coefficients else None,
            "ci": mean_interval(coefficients, sizes),
            "pooled": None if np.isnan(over_draws) else over_draws,
            "pooled_ci": pooled_interval(pooled, relation.diagnostic, relation.outcome, seed),
            "datasets": len(coefficients),
            "pairs": pairs,
        }
        macros.append(Row(values, {"correlation": relation.name}))
    if not macros:
        return []
    notes = [
        f"gains and reductions of the operator alone, relative to {method_name(study.roles.base)}"
    ]
    if constant:
        notes.append(f"a value that never changes has no correlation: {', '.join(constant)}")
    head = (Column("diagnostic", "diagnostic"), Column("against", "against"))
    columns = (
        *head,
        Column("spearman", "Spearman", "{:+.4f}", help="mean of the data sets, over query means"),
        Column("ci", "95 % CI", "{:+.4f}", help="Bonett and Wright's errors, data sets combined"),
        Column("pooled", "pooled", "{:+.4f}", help="over all query-draws together"),
        Column("pooled_ci", "its 95 % CI", "{:+.4f}", help="bootstrap of queries with their draws"),
        Column("datasets", "data sets", "{:d}"),
        Column("pairs", "query-draws", "{:d}"),
    )
    tables = [Table("correlations", "Diagnostics and outcomes", columns, macros, notes)]
    if len(study.datasets) > 1:
        own = (
            Column("spearman", "Spearman", "{:+.4f}"),
            Column("ci", "95 % CI", "{:+.4f}", help="Fisher's, with Bonett and Wright's errors"),
            Column("queries", "queries", "{:d}"),
        )
        columns = (Column("dataset", "data set"), *head, *own)
        title = "Diagnostics and outcomes, each data set"
        tables.append(Table("correlations_by_dataset", title, columns, by_dataset))
    return tables


def _relation_label(study: Study, relation: Relation) -> dict[str, Value]:
    method = method_name(alone(study, relation.diagnostic))
    return {
        "diagnostic": DIAGNOSTICS[relation.diagnostic],
        "against": f"{method}'s {OUTCOME_TITLES[relation.outcome]}",
    }
