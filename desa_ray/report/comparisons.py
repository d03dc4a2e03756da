"""Tables of comparisons: primary tests, operator controls, external methods, QuDAR (method.md
section 10).
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import polars as pl

from desa_ray.core.statistics.aggregate import reduction_pct
from desa_ray.core.statistics.inference import TIE, holm
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.depth_tails import macro_tails, tail_columns
from desa_ray.report.effects import (
    EFFECT_COLUMNS,
    THESE_DATASETS,
    effect_rows,
    macro_reduction,
    paired_effects,
    too_few,
)
from desa_ray.report.names import (
    DEPTH_TOTAL,
    EFFECTIVENESS,
    NDCG,
    PRIMARY,
    RECALL,
    Outcome,
    dataset_name,
    method_name,
)
from desa_ray.report.results import (
    macro_of,
    outcome_column,
    outcome_columns,
    outcome_values,
    over,
)
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

OPERATORS = ("original", "contextual_dense", "dense_only", "rewrite_sparse", "sparse_only")
OPERATOR_PAIRS = {
    "Dense residual": ("dense_only", "contextual_dense"),
    "Sparse product": ("sparse_only", "rewrite_sparse"),
}
QUDAR = ("qudar_complete", "qudar_weighted")
# Weighted against uniform, each on the same inputs.
WEIGHT_AUDIT = {
    "complete lists": ("qudar_weighted", "qudar_complete"),
    "Top-1000 prefixes": ("qudar_weighted_top1000", "qudar_top1000"),
    "Top-1000 scores": ("qudar_score_confidence", "qudar_score"),  # the paper's audit
}


def primary_tests_table(study: Study, sampling: Sampling) -> Table | None:
    """The subject against its baselines; one Holm family of four outcomes per comparator."""
    rows = []
    own = study.roles.own
    for other in study.roles.baselines:
        found = paired_effects(study, own, other, PRIMARY, sampling) if other != own else None
        if found:
            first: dict[str, Value] = {"comparator": method_name(other)}
            about: dict[str, object] = {"comparator": other}
            members = [(first, about, o, paired) for o, paired in found.items()]
            rows += effect_rows(members, sampling.resamples)
    if not rows:
        return None
    columns = (_against(study), Column("outcome", "outcome"), *EFFECT_COLUMNS)
    notes = [over(study), THESE_DATASETS, *too_few(len(PRIMARY), sampling.resamples)]
    return Table("primary_tests", "Primary tests", columns, rows, notes, about=study.about)


def _against(study: Study) -> Column:
    return Column("comparator", f"{method_name(study.roles.own)} against")


def operator_controls_tables(study: Study, sampling: Sampling) -> list[Table]:
    """Each operator against its unconstrained counterpart, the other channel being Original."""
    there = [method for method in OPERATORS if study.complete(method)]
    if not {"contextual_dense", "rewrite_sparse"} & set(there):
        return []
    titles = {"dense_only": "Residual Dense", "sparse_only": "Product Sparse"}
    rows = []
    for method in there:
        values: dict[str, Value] = {"method": titles.get(method, method_name(method))}
        for outcome in EFFECTIVENESS:
            values[outcome.column] = macro_of(study, method, outcome.column)
        rows.append(Row(values, {"method": method}))
    columns = (
        Column("method", "construction"),
        *(outcome_column(outcome) for outcome in EFFECTIVENESS),
    )
    tables = [Table("operator_controls", "Operator controls", columns, rows, [over(study)])]
    effects = []
    for title, (own, other) in OPERATOR_PAIRS.items():
        found = paired_effects(study, own, other, EFFECTIVENESS, sampling)
        if found:
            first: dict[str, Value] = {"control": title}
            about: dict[str, object] = {"control": title}
            members = [(first, about, o, paired) for o, paired in found.items()]
            effects += effect_rows(members, sampling.resamples)
    if effects:
        columns = (
            Column("control", "proposed − control"),
            Column("outcome", "outcome"),
            *EFFECT_COLUMNS,
        )
        tables.append(
            Table(
                "operator_effects",
                "Operator controls: paired effects",
                columns,
                effects,
                [over(study)],
            )
        )
    return tables


def external_table(study: Study) -> Table | None:
    """Subject and reference next to every method that is not a part, an ablation or a control of
    the subject.
    """
    roles = study.roles
    first = (roles.base, roles.own)
    inner = {*roles.inner, *roles.parts.values(), *roles.ablations, *first}
    others = [method for method in study.methods if method not in inner]
    if not others:
        return None
    rows = []
    for method in [m for m in study.methods if m in first] + others:
        values: dict[str, Value] = {"method": method_name(method)}
        values |= outcome_values(study, method, (*EFFECTIVENESS, DEPTH_TOTAL))
        own, depth = macro_of(study, roles.own, "depth_total"), values["depth_total"]
        if method != roles.own and own is not None and isinstance(depth, float):
            values["subject_reduction"] = reduction_pct(own, depth)
        rows.append(Row(values, {"method": method}))
    name = method_name(roles.own)
    columns = (
        Column("method", "method"),
        *outcome_columns((*EFFECTIVENESS, DEPTH_TOTAL)),
        Column(
            "subject_reduction",
            f"{name} reads less by %",
            "{:.2f}",
            help=f"1 − macro({name}) / macro(method)",
        ),
    )
    notes = [over(study), "total depth sums the depths of all rankings that a method reads"]
    notes += _why_empty(study, rows)
    return Table("external", "External comparison", columns, rows, notes, about=study.about)


def _why_empty(study: Study, rows: Sequence[Row]) -> list[str]:
    """Why cells of these rows hold no number: a note for each method that is not in every data set,
    and one for those without a total depth.
    """
    notes: list[str] = []
    unread: list[str] = []
    for row in rows:
        method, name = str(row.about["method"]), row.values["method"]
        absent = [own for own in study.datasets if study.cell(own, method) is None]
        if absent:
            missing = ", ".join(map(dataset_name, absent))
            notes.append(f"{name} has no numbers: no records on {missing}, and macros are over all")
        elif row.values[DEPTH_TOTAL.column] is None:
            unread.append(str(name))
    if unread:
        listed = ", ".join(unread)
        notes.append(f"no total depth of {listed}: they fuse scores, which certifies no depth")
    return notes


def qudar_effects_table(study: Study, sampling: Sampling) -> Table | None:
    """The subject against QuDAR: two effectiveness outcomes as one family, the two
    total-depth comparisons as another.
    """
    own = study.roles.own
    there = [method for method in QUDAR if method != own and study.complete(own, method)]
    rows: list[Row] = []
    depths = []
    for other in there:
        first: dict[str, Value] = {"comparator": method_name(other)}
        found = paired_effects(study, own, other, (*EFFECTIVENESS, DEPTH_TOTAL), sampling)
        assert found is not None
        about: dict[str, object] = {"comparator": other}
        tests = [(first, about, o, found[o]) for o in EFFECTIVENESS]
        rows += effect_rows(tests, sampling.resamples)
        reduced = macro_reduction(study, own, other, "depth_total", sampling)
        assert reduced is not None
        extra: dict[str, Value] = {**first, "reduction": reduced[0], "reduction_ci": reduced[1]}
        depths.append((extra, {"comparator": other}, DEPTH_TOTAL, found[DEPTH_TOTAL]))
    if not there:
        return None
    columns = (
        _against(study),
        Column("outcome", "outcome"),
        *EFFECT_COLUMNS,
        Column(
            "reduction",
            "reduction %",
            "{:.2f}",
            help=f"of total depth: 1 − macro({method_name(own)}) / macro(QuDAR)",
        ),
        Column("reduction_ci", "its 95 % CI", "{:.2f}"),
    )
    notes = [over(study), *_shrunk(study, there)]
    title = f"{method_name(own)} against QuDAR"
    rows += effect_rows(depths, sampling.resamples)
    return Table("qudar_effects", title, columns, rows, notes)


def _shrunk(study: Study, there: list[str]) -> list[str]:
    """What to know where the family of total-depth tests lacks a comparison: fewer tests are
    adjusted less.
    """
    absent = [method_name(method) for method in QUDAR if method not in there]
    if not absent:
        return []
    names = " and ".join(absent)
    held = f"the family of total-depth tests holds {len(there)} of {len(QUDAR)} comparisons"
    return [f"{held}, {names} missing in some data set: p (Holm) is adjusted for fewer tests"]


def qudar_weights_table(study: Study, sampling: Sampling) -> Table | None:
    """What QuDAR's confidence weights change compared with w = 1/4 on the same inputs."""
    rows = []
    for title, (weighted, uniform) in WEIGHT_AUDIT.items():
        found = paired_effects(study, weighted, uniform, (NDCG, RECALL), sampling)
        if found is None:
            continue
        values: dict[str, Value] = {"lists": title}
        adjusted = holm([found[outcome].p for outcome in EFFECTIVENESS])
        for outcome, p in zip(EFFECTIVENESS, adjusted, strict=True):
            values[f"{outcome.column}_effect"] = found[outcome].effect
            values[f"{outcome.column}_p_holm"] = p
            values[f"{outcome.column}_unchanged"] = _unchanged_pct(
                study, weighted, uniform, outcome.column
            )
        for key, method in (("depth_uniform", uniform), ("depth_weighted", weighted)):
            values[key] = macro_of(study, method, "depth_total")
            for name, value in macro_tails(study, method, "depth_total").items():
                values[name.replace("depth_total", key)] = value
        values["weights"] = _mean_weights(study, weighted)
        rows.append(Row(values, {"lists": title}))
    if not rows:
        return None
    columns = (
        Column("lists", "fused lists"),
        *(
            column
            for outcome in EFFECTIVENESS
            for column in (
                Column(
                    f"{outcome.column}_effect",
                    f"{outcome.title} change",
                    "{:+.5f}",
                    help="weighted − uniform",
                ),
                Column(f"{outcome.column}_p_holm", f"{outcome.title} p (Holm)", "{:.4f}"),
                Column(
                    f"{outcome.column}_unchanged",
                    f"{outcome.title} unchanged %",
                    "{:.2f}",
                    help="query-draws",
                ),
            )
        ),
        *_audited(),
        Column(
            "weights",
            "data set mean weights",
            "{:.4f}",
            help="smallest and largest over data sets and channels",
        ),
    )
    notes = [
        over(study),
        "weights as the paper's authors released them: a softmax of half the score margins",
    ]
    return Table("qudar_weights", "QuDAR's confidence weights", columns, rows, notes)


def _audited() -> list[Column]:
    """Mean total depths with their quantiles, with uniform and with confidence weights."""
    columns = []
    for words in ("uniform", "weighted"):
        own = Outcome(f"depth_{words}", f"depth, {words}", "{:.1f}", higher=False)
        columns += [Column(own.column, own.title, own.form), *tail_columns(own)]
    return columns


def _unchanged_pct(study: Study, own: str, other: str, column: str) -> float | None:
    """Share of pooled query-draws whose value is the same within 1e-12."""
    same: list[pl.Series] = []
    for first, second in (study.pairs(own, other) or {}).values():
        keys = ["query_id", "draw", column]
        both = (
            first.records.select(keys)
            .join(second.records.select(keys), on=keys[:2], suffix="_other")
            .drop_nulls()
        )
        same.append(both.select((pl.col(column) - pl.col(f"{column}_other")).abs() <= TIE)[column])
    pooled = pl.concat(same)
    return 100 * float(pooled.sum()) / len(pooled) if len(pooled) else None


def _mean_weights(study: Study, method: str) -> tuple[float, float] | None:
    """Smallest and largest mean weight of a channel in a data set, from the records' `weights`;
    None without them.
    """
    means = []
    for dataset in study.datasets:
        cell = study.cell(dataset, method)
        assert cell
        if "weights" not in cell.records.columns:
            return None
        weights = []
        for row in cell.records["weights"].drop_nulls().to_list():
            weights.append([float(Fraction(str(w))) for w in row])
        means += np.mean(weights, axis=0).tolist()
    return min(means), max(means)
