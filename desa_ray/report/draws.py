"""Query-draws of a method paired with those of the reference, for tables that do not average over
draws first.

A record column that a run did not write leaves the tables that need it out; the report says so.
"""

from collections.abc import Sequence

import polars as pl

from desa_ray.report.study import Study


def has(study: Study, methods: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether all these cells exist in every data set, with all these columns."""
    cells = [study.cell(dataset, method) for dataset in study.datasets for method in methods]
    return bool(cells) and all(cell and set(columns) <= set(cell.records.columns) for cell in cells)


def paired_draws(study: Study, dataset: str, method: str, columns: Sequence[str]) -> pl.DataFrame:
    """A method's query-draws paired with the reference's, whose columns end in `_original`: ids,
    draws and these columns, as far as they are there.

    A reference without generated text has one draw, which is paired with all of the method's;
    otherwise equal draws are paired.
    """
    own, original = study.cell(dataset, method), study.cell(dataset, study.roles.base)
    assert own
    assert original
    keys = ["query_id"] if original.draws == 1 else ["query_id", "draw"]
    wanted = ("query_id", "draw", *columns)
    first = own.records.select(name for name in wanted if name in own.records.columns)
    second = original.records.select(name for name in wanted if name in original.records.columns)
    return first.join(second, on=keys, suffix="_original", maintain_order="left")
