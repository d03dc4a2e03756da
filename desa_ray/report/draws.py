"""Query-draws of DESA beside Original's, for diagnostics that are not averaged over draws first.

A record column that a run did not write leaves the tables that need it out; the report says so.
"""

from collections.abc import Sequence

import polars as pl

from desa_ray.report.study import Study


def has(study: Study, methods: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether all these cells exist in every data set, with all these columns."""
    cells = [study.cell(dataset, method) for dataset in study.datasets for method in methods]
    return bool(cells) and all(cell and set(columns) <= set(cell.records.columns) for cell in cells)


def paired_draws(study: Study, dataset: str) -> pl.DataFrame:
    """DESA's query-draws beside Original's only draw, whose columns end in `_original`."""
    own, original = study.cell(dataset, "desa"), study.cell(dataset, "original")
    assert own
    assert original
    return own.records.join(
        original.records, on="query_id", suffix="_original", maintain_order="left"
    )
