"""How much of the top lists was judged, and the possible effect of unjudged documents (method.md
section 8).
"""

from collections.abc import Sequence

import numpy as np

from desa_ray.core.judged import COLUMNS, JUDGED, NDCG_UPPER, RECALL_UPPER
from desa_ray.core.statistics.aggregate import by_query, macro
from desa_ray.report.cells import RecordedCell
from desa_ray.report.gain import LINEAR_COLUMN
from desa_ray.report.names import dataset_name, method_name
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

LINEAR = "linear gain; an interval's lower end is the usual value: unjudged documents have no gain"
UPPER = "its upper end gives each unjudged document of the top the highest grade of its query"


def judgments_table(study: Study) -> Table | None:
    """judged@10 and judged@20 and the bounds of nDCG@10 and Recall@20, per data set, then macro;
    None where no record has them.
    """
    rows, macros = [], []
    for method in study.methods:
        found = []
        for dataset in study.datasets:
            cell = study.cell(dataset, method)
            means = _means(cell) if cell else None
            if means is None:
                continue
            found.append(means)
            values = {"dataset": dataset_name(dataset), "method": method_name(method)}
            rows.append(Row(values | _shown(means), {"dataset": dataset, "method": method}))
        if len(found) == len(study.datasets) > 1:
            means = [macro(own) for own in zip(*found, strict=True)]
            values = {"dataset": "macro", "method": method_name(method)}
            macros.append(Row(values | _shown(means), {"macro": True, "method": method}))
    if not rows:
        return None
    columns = (
        Column("dataset", "data set"),
        Column("method", "method"),
        *(Column(COLUMNS[n], f"{JUDGED[n].lower()} %", "{:.2f}") for n in range(2)),
        Column("ndcg_bounds", "nDCG@10 bounds", "{:.4f}"),
        Column("recall_bounds", "Recall@20 bounds", "{:.4f}"),
    )
    title = "Judged documents, and the possible effect of unjudged ones"
    return Table("judgments", title, columns, [*rows, *macros], [LINEAR, UPPER], about=study.about)


def _means(cell: RecordedCell) -> list[float] | None:
    """Means over queries of draw-averaged values: both shares, then both ends of both measures."""
    ndcg = LINEAR_COLUMN if LINEAR_COLUMN in cell.records.columns else "ndcg_at_10"
    names = [*COLUMNS[:2], ndcg, NDCG_UPPER, "recall_at_20", RECALL_UPPER]
    values = by_query(cell.records, names).drop("query_id").drop_nulls().to_numpy()
    return np.asarray(values, np.float64).mean(0).tolist() if len(values) else None


def _shown(means: Sequence[float]) -> dict[str, Value]:
    first, second, ndcg, ndcg_upper, recall, upper = means
    shares: dict[str, Value] = dict(zip(COLUMNS, (100 * first, 100 * second), strict=False))
    return {**shares, "ndcg_bounds": (ndcg, ndcg_upper), "recall_bounds": (recall, upper)}
