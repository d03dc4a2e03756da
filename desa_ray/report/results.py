"""The main table, the table of data sets, and the evidence per channel (the paper's tables
1, 2 and 6a).
"""

from collections.abc import Sequence
from dataclasses import replace

from desa_ray.core.statistics.aggregate import gain_pct, macro, mean_reduction_pct, reduction_pct
from desa_ray.report.depth_tails import cell_tails, compared_tails, macro_tails, tail_columns
from desa_ray.report.fallbacks import FALLBACKS, fallback_values
from desa_ray.report.names import (
    DEPTH_DENSE,
    DEPTH_SPARSE,
    NDCG,
    PRIMARY,
    RECALL,
    Outcome,
    dataset_name,
    method_name,
)
from desa_ray.report.paper import CONSTRUCTIONS
from desa_ray.report.study import Setting, Study, paired_values
from desa_ray.report.table import Column, Row, Table, Value

PCT = "{:+.2f}"
DEPTHS = ("depth_dense", "depth_sparse")
DEPTH_COLUMNS = (*DEPTHS, "depth_total")
REDUCED_DENSE, REDUCED_SPARSE = ("reduction %", "L_D"), ("reduction %", "L_S")


def outcome_column(outcome: Outcome) -> Column:
    return Column(outcome.column, outcome.title, outcome.form, "high" if outcome.higher else "low")


def outcome_columns(outcomes: Sequence[Outcome]) -> list[Column]:
    """A column of each outcome's macro, and, for depths, their quantiles."""
    columns = []
    for outcome in outcomes:
        columns.append(outcome_column(outcome))
        columns += tail_columns(outcome) if outcome.column in DEPTH_COLUMNS else []
    return columns


def outcome_values(study: Study, method: str, outcomes: Sequence[Outcome]) -> dict[str, Value]:
    """The values of `outcome_columns` for one method."""
    values: dict[str, Value] = {}
    for outcome in outcomes:
        values[outcome.column] = macro_of(study, method, outcome.column)
        if outcome.column in DEPTH_COLUMNS:
            values |= macro_tails(study, method, outcome.column)
    return values


def gain(
    study: Study, own: str, other: str, column: str, setting: Setting | None = None
) -> float | None:
    """Effectiveness gain in percent, the ratio of unrounded macros; None without both macros."""
    pair = study.paired_means(own, other, column, setting)
    return gain_pct(*pair) if pair else None


def reduction(
    study: Study, own: str, other: str, column: str, setting: Setting | None = None
) -> float | None:
    """Depth reduction in percent, the mean of the data sets' own reductions; None without both
    macros.
    """
    pair = study.paired_means(own, other, column, setting)
    return mean_reduction_pct(*pair) if pair else None


def macro_of(
    study: Study, method: str, column: str, setting: Setting | None = None
) -> float | None:
    means = study.dataset_means(method, column, setting)
    return None if means is None else macro(means)


def both_shallower_pct(study: Study, method: str) -> float | None:
    """Macro share of queries whose draw-averaged depths are both below the reference's."""
    pairs = study.pairs(method, study.roles.base)
    if pairs is None or any(
        own.mean(column) is None for own, _ in pairs.values() for column in DEPTHS
    ):
        return None
    shares = []
    for own, original in pairs.values():
        values = paired_values(own, original, DEPTHS)
        shares.append(100 * float((values[:, :, 0] < values[:, :, 1]).all(1).mean()))
    return macro(shares)


def over(study: Study) -> str:
    names = ", ".join(dataset_name(dataset) for dataset in study.datasets)
    count = len(study.datasets)
    return f"macro over {count} data sets: {names}" if count > 1 else f"one data set: {names}"


def main_methods(study: Study) -> list[str]:
    """The methods of the main table: those that a preset names, else all with two channels."""
    return [m for m in study.methods if m in (study.roles.main or study.two_channels)]


def _better(key: str, title: str, form: str, help_: str, heads: tuple[str, str]) -> Column:
    """A column that is better the higher it is, with its common and its own heading in print."""
    group, short = heads
    return Column(key, title, form, help=help_, toward="high", group=group, short=short)


def main_table(study: Study) -> Table | None:
    """Macro means of the main methods, and what they change compared with the reference."""
    rows = []
    base = study.roles.base
    for method in main_methods(study):
        values: dict[str, Value] = {
            "method": method_name(method),
            "construction": CONSTRUCTIONS.get(method),
        }
        values |= outcome_values(study, method, PRIMARY)
        if method != base:
            values |= {
                f"{o.column}_gain": gain(study, method, base, o.column) for o in (NDCG, RECALL)
            }
            depths = (DEPTH_DENSE, DEPTH_SPARSE)
            values |= {
                f"{o.column}_reduction": reduction(study, method, base, o.column) for o in depths
            }
            values["both_shallower"] = both_shallower_pct(study, method)
        rows.append(Row(values, {"method": method}))
    if not rows:
        return None
    over_base = f"over {method_name(base)}: ratio of unrounded macros"
    from_base = f"from {method_name(base)}: mean of data sets"
    shallower = f"queries whose depths are both below {method_name(base)}'s"
    named = any(row.values["construction"] for row in rows)
    columns = (
        Column("method", "method"),
        *([Column("construction", "construction")] if named else []),
        *outcome_columns(PRIMARY),
        _better("ndcg_at_10_gain", "nDCG gain %", PCT, over_base, ("gain %", "nDCG")),
        _better("recall_at_20_gain", "Recall gain %", PCT, over_base, ("gain %", "Recall")),
        _better("depth_dense_reduction", "L_D reduction %", "{:.2f}", from_base, REDUCED_DENSE),
        _better("depth_sparse_reduction", "L_S reduction %", "{:.2f}", from_base, REDUCED_SPARSE),
        _better("both_shallower", "shallower in both %", "{:.2f}", shallower, ("", "")),
    )
    notes = [over(study), *_lacking(study, [row.about["method"] for row in rows])]
    return Table("main", "Main results", columns, rows, notes, about=study.about)


def _lacking(study: Study, methods: list[str]) -> list[str]:
    """Which methods have no macro because a data set lacks them."""
    notes = []
    for method in methods:
        absent = [
            dataset_name(dataset) for dataset in study.datasets if not study.cell(dataset, method)
        ]
        if absent:
            notes.append(
                f"{method_name(method)} has no macro: it was not run on {', '.join(absent)}"
            )
    return notes


def per_dataset_table(study: Study) -> Table:
    rows = []
    for dataset in study.datasets:
        for method in study.methods:
            cell = study.cell(dataset, method)
            if cell is None:
                continue
            values: dict[str, Value] = {
                "dataset": dataset_name(dataset),
                "method": method_name(method),
                "queries": len(cell.queries),
                **{outcome.column: cell.mean(outcome.column) for outcome in PRIMARY},
                **cell_tails(cell, "depth_dense"),
                **cell_tails(cell, "depth_sparse"),
                "sparse_support": cell.mean("sparse_support"),
                "exhausted": _percent(cell.mean("sparse_exhausted")),
                **(fallback_values([cell]) if cell.generator else {}),
            }
            rows.append(Row(values, {"dataset": dataset, "method": method}))
    columns = (
        Column("dataset", "data set"),
        Column("method", "method"),
        Column("queries", "queries", "{:d}"),
        *(replace(own, better=None, toward=own.better) for own in outcome_columns(PRIMARY)),
        Column(
            "sparse_support", "sparse support", "{:.1f}", help="documents in the sparse ranking"
        ),
        Column(
            "exhausted",
            "exhausted %",
            "{:.2f}",
            help="queries whose sparse ranking was read to its end",
        ),
        *FALLBACKS,
    )
    return Table("per_dataset", "Every data set", columns, rows)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def channel_evidence_table(study: Study) -> Table | None:
    """Relative nDCG changes, depth reductions and support ratios within each data set: the subject
    against the reference, and against each of its parts alone.
    """
    roles = study.roles
    if not {roles.base, roles.own} <= set(study.methods) or roles.base == roles.own:
        return None
    others = [m for m in roles.baselines if m in study.methods and m != roles.base]
    rows = [_evidence(study, dataset, others) for dataset in study.datasets]
    supports = (*(f"{method}_support" for method in others), "subject_support")
    rows.append(Row(_pattern(rows, supports), {"pattern": True}))
    own, base = method_name(roles.own), method_name(roles.base)
    alone = {kind: method_name(method) for kind, method in roles.parts.items()}
    against = f"{own} against {base}"
    ratio = f"ratio of mean sparse supports to {base}'s"
    changed = "change of nDCG %"
    columns = (
        Column("dataset", "data set"),
        _better("subject_gain", f"{own} vs {base}: nDCG %", PCT, "", (changed, f"{own} vs {base}")),
        _better(
            "plus_dense",
            "+Dense given Sparse: nDCG %",
            PCT,
            f"{own} against {alone.get('sparse', 'its sparse part alone')}",
            (changed, "+Dense given Sparse"),
        ),
        _better(
            "plus_sparse",
            "+Sparse given Dense: nDCG %",
            PCT,
            f"{own} against {alone.get('dense', 'its dense part alone')}",
            (changed, "+Sparse given Dense"),
        ),
        _better("dense_reduction", "L_D reduction %", "{:.1f}", against, REDUCED_DENSE),
        *tail_columns(DEPTH_DENSE, reduction=True),
        _better("sparse_reduction", "L_S reduction %", "{:.1f}", against, REDUCED_SPARSE),
        *tail_columns(DEPTH_SPARSE, reduction=True),
        *(_support(f"{m}_support", method_name(m), ratio) for m in others),
        _support("subject_support", own, ratio),
    )
    return Table("channel_evidence", "Evidence per channel", columns, rows)


def _support(key: str, name: str, help_: str) -> Column:
    title = f"support: {name} ×"
    return Column(key, title, "{:.2f}", help=help_, group="support ×", short=name)


def _evidence(study: Study, dataset: str, others: Sequence[str]) -> Row:
    roles = study.roles

    def change(other: str) -> float | None:
        pair = _means(study, dataset, (roles.own, other), "ndcg_at_10")
        return gain_pct(pair[:1], pair[1:]) if pair else None

    def depth(column: str) -> float | None:
        pair = _means(study, dataset, (roles.own, roles.base), column)
        return reduction_pct(*pair) if pair else None

    def support(method: str) -> float | None:
        pair = _means(study, dataset, (method, roles.base), "sparse_support")
        return pair[0] / pair[1] if pair and pair[1] else None

    values: dict[str, Value] = {
        "dataset": dataset_name(dataset),
        "subject_gain": change(roles.base),
        "plus_dense": change(roles.parts.get("sparse", "")),
        "plus_sparse": change(roles.parts.get("dense", "")),
        "dense_reduction": depth("depth_dense"),
        "sparse_reduction": depth("depth_sparse"),
        "subject_support": support(roles.own),
    }
    for column in DEPTHS:
        values |= compared_tails(study, (roles.own, roles.base), column, datasets=[dataset])
    values |= {f"{method}_support": support(method) for method in others}
    return Row(values, {"dataset": dataset})


def _means(study: Study, dataset: str, methods: tuple[str, ...], column: str) -> list[float] | None:
    cells = [study.cell(dataset, method) for method in methods]
    means = [cell.mean(column) if cell else None for cell in cells]
    return None if None in means else means  # pyright: ignore[reportReturnType]


def _pattern(rows: list[Row], supports: Sequence[str]) -> dict[str, Value]:
    pattern: dict[str, Value] = {"dataset": "pattern"}
    for key, word in (
        *dict.fromkeys(("subject_gain", "plus_dense", "plus_sparse"), "improve").items(),
        *dict.fromkeys(("dense_reduction", "sparse_reduction"), "shallower").items(),
    ):
        values = [row.values[key] for row in rows]
        numbers = [value for value in values if isinstance(value, float)]
        pattern[key] = (
            f"{sum(value > 0 for value in numbers)}/{len(numbers)} {word}" if numbers else None
        )
    for key in supports:
        values = [row.values[key] for row in rows]
        ratios = [value for value in values if isinstance(value, float)]
        pattern[key] = f"up to {max(ratios):.2f}" if ratios else None
    return pattern
