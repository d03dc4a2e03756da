"""The main table, the table of data sets, and the evidence a channel at a time (the paper's tables
1, 2 and 6a).
"""

from desa_ray.core.statistics.aggregate import gain_pct, macro, mean_reduction_pct, reduction_pct
from desa_ray.report.fallbacks import FALLBACKS, fallback_values
from desa_ray.report.names import (
    CONSTRUCTIONS,
    DEPTH_DENSE,
    DEPTH_SPARSE,
    NDCG,
    PRIMARY,
    RECALL,
    Outcome,
    dataset_name,
    method_name,
)
from desa_ray.report.study import Setting, Study, paired_values
from desa_ray.report.table import Column, Row, Table, Value

PCT = "{:+.2f}"
DEPTHS = ("depth_dense", "depth_sparse")


def outcome_column(outcome: Outcome) -> Column:
    return Column(outcome.column, outcome.title, outcome.form, "high" if outcome.higher else "low")


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
    """Macro share of queries whose draw-averaged depths are both below Original's."""
    pairs = study.pairs(method, "original")
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


def main_table(study: Study) -> Table | None:
    rows = []
    for method in [method for method in study.methods if method in CONSTRUCTIONS]:
        values: dict[str, Value] = {
            "method": method_name(method),
            "construction": CONSTRUCTIONS[method],
        }
        values |= {outcome.column: macro_of(study, method, outcome.column) for outcome in PRIMARY}
        if method != "original":
            values |= {
                f"{o.column}_gain": gain(study, method, "original", o.column)
                for o in (NDCG, RECALL)
            }
            depths = (DEPTH_DENSE, DEPTH_SPARSE)
            values |= {
                f"{o.column}_reduction": reduction(study, method, "original", o.column)
                for o in depths
            }
            values["both_shallower"] = both_shallower_pct(study, method)
        rows.append(Row(values, {"method": method}))
    if not rows:
        return None
    columns = (
        Column("method", "method"),
        Column("construction", "construction"),
        *(outcome_column(outcome) for outcome in PRIMARY),
        Column(
            "ndcg_at_10_gain", "nDCG gain %", PCT, help="over Original: ratio of unrounded macros"
        ),
        Column(
            "recall_at_20_gain",
            "Recall gain %",
            PCT,
            help="over Original: ratio of unrounded macros",
        ),
        Column(
            "depth_dense_reduction",
            "L_D reduction %",
            "{:.2f}",
            help="from Original: mean of data sets",
        ),
        Column(
            "depth_sparse_reduction",
            "L_S reduction %",
            "{:.2f}",
            help="from Original: mean of data sets",
        ),
        Column(
            "both_shallower",
            "shallower in both %",
            "{:.2f}",
            help="queries whose depths are both below Original's",
        ),
    )
    notes = [over(study), *_lacking(study, [row.about["method"] for row in rows])]
    return Table("main", "Main results", columns, rows, notes)


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
                "sparse_support": cell.mean("sparse_support"),
                "exhausted": _percent(cell.mean("sparse_exhausted")),
                **(fallback_values([cell]) if cell.generator else {}),
            }
            rows.append(Row(values, {"dataset": dataset, "method": method}))
    columns = (
        Column("dataset", "data set"),
        Column("method", "method"),
        Column("queries", "queries", "{:d}"),
        *(Column(outcome.column, outcome.title, outcome.form) for outcome in PRIMARY),
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
    """Relative nDCG changes, depth reductions and support ratios within each data set."""
    if not {"original", "desa"} <= set(study.methods):
        return None
    rows = []
    for dataset in study.datasets:

        def change(own: str, other: str, dataset: str = dataset) -> float | None:
            pair = _means(study, dataset, (own, other), "ndcg_at_10")
            return gain_pct(pair[:1], pair[1:]) if pair else None

        def depth(column: str, dataset: str = dataset) -> float | None:
            pair = _means(study, dataset, ("desa", "original"), column)
            return reduction_pct(*pair) if pair else None

        def support(method: str, dataset: str = dataset) -> float | None:
            pair = _means(study, dataset, (method, "original"), "sparse_support")
            return pair[0] / pair[1] if pair and pair[1] else None

        values: dict[str, Value] = {
            "dataset": dataset_name(dataset),
            "desa_gain": change("desa", "original"),
            "plus_dense": change("desa", "sparse_only"),
            "plus_sparse": change("desa", "dense_only"),
            "dense_reduction": depth("depth_dense"),
            "sparse_reduction": depth("depth_sparse"),
            "shared_support": support("shared"),
            "desa_support": support("desa"),
        }
        rows.append(Row(values, {"dataset": dataset}))
    rows.append(Row(_pattern(rows), {"pattern": True}))
    columns = (
        Column("dataset", "data set"),
        Column("desa_gain", "DESA vs Original: nDCG %", PCT),
        Column("plus_dense", "+Dense given Sparse: nDCG %", PCT, help="DESA against Sparse only"),
        Column("plus_sparse", "+Sparse given Dense: nDCG %", PCT, help="DESA against Dense only"),
        Column("dense_reduction", "L_D reduction %", "{:.1f}", help="DESA against Original"),
        Column("sparse_reduction", "L_S reduction %", "{:.1f}", help="DESA against Original"),
        Column(
            "shared_support",
            "support: Shared ×",
            "{:.2f}",
            help="ratio of mean sparse supports to Original's",
        ),
        Column(
            "desa_support",
            "support: DESA ×",
            "{:.2f}",
            help="ratio of mean sparse supports to Original's",
        ),
    )
    return Table("channel_evidence", "Evidence a channel at a time", columns, rows)


def _means(study: Study, dataset: str, methods: tuple[str, ...], column: str) -> list[float] | None:
    cells = [study.cell(dataset, method) for method in methods]
    means = [cell.mean(column) if cell else None for cell in cells]
    return None if None in means else means  # pyright: ignore[reportReturnType]


def _pattern(rows: list[Row]) -> dict[str, Value]:
    pattern: dict[str, Value] = {"dataset": "pattern"}
    for key, word in (
        *dict.fromkeys(("desa_gain", "plus_dense", "plus_sparse"), "improve").items(),
        *dict.fromkeys(("dense_reduction", "sparse_reduction"), "shallower").items(),
    ):
        values = [row.values[key] for row in rows]
        numbers = [value for value in values if isinstance(value, float)]
        pattern[key] = (
            f"{sum(value > 0 for value in numbers)}/{len(numbers)} {word}" if numbers else None
        )
    for key in ("shared_support", "desa_support"):
        values = [row.values[key] for row in rows]
        ratios = [value for value in values if isinstance(value, float)]
        pattern[key] = f"up to {max(ratios):.2f}" if ratios else None
    return pattern
