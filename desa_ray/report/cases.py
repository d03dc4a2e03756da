"""Cases: the queries in which the subject differs most from each baseline, by each measure."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from desa_ray.core.statistics.inference import TIE
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.escapes import markdown, override
from desa_ray.report.names import PRIMARY, Outcome, dataset_name, method_name
from desa_ray.report.render import piped
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table


def cases_table(study: Study, sampling: Sampling | None = None, *, count: int) -> Table | None:
    """For every baseline and outcome the `count` queries, of all data sets together, whose
    draw-averaged values differ most, the largest difference first; equal ones by data set and id.
    """
    del sampling
    own = study.roles.own
    rows = []
    for other in study.roles.baselines:
        if other != own:
            for outcome in PRIMARY:
                rows += _cases(study, own, other, outcome, count)
    if not rows:
        return None
    name = method_name(own)
    columns = (
        Column("comparator", f"{name} against"),
        Column("outcome", "outcome"),
        Column("place", "case", "{:d}"),
        Column("dataset", "data set"),
        Column("query", "query"),
        Column("own", name, "{:.4f}"),
        Column("other", "the other", "{:.4f}"),
        Column("difference", "difference", "{:+.4f}", help="positive if the first is better"),
        Column("story", "its story"),
    )
    notes = ["values are averaged over draws; a story shows one draw (story.draw)"]
    title = f"The {count} queries that differ most"
    return Table("cases", title, columns, rows, notes)


def _cases(study: Study, own: str, other: str, outcome: Outcome, count: int) -> Sequence[Row]:
    frames = []
    for dataset, (first, second) in (study.pairs(own, other) or {}).items():
        both = first.means.select("query_id", own=outcome.column).join(
            second.means.select("query_id", other=outcome.column), on="query_id"
        )
        frames.append(both.drop_nulls().with_columns(dataset=pl.lit(dataset)))
    if not frames:
        return []
    change = outcome.sign * (pl.col("own") - pl.col("other"))
    found = pl.concat(frames).with_columns(difference=change, size=change.abs())
    found = found.filter(pl.col("size") > TIE)
    found = found.sort("size", "dataset", "query_id", descending=[True, False, False]).head(count)
    rows = []
    for place, case in enumerate(found.iter_rows(named=True), 1):
        values = {
            "comparator": method_name(other),
            "outcome": outcome.title,
            "place": place,
            "dataset": dataset_name(case["dataset"]),
            "query": case["query_id"],
            **{name: case[name] for name in ("own", "other", "difference")},
            "story": " ".join(
                (
                    override("query", case["query_id"]),
                    override("story.dataset", case["dataset"]),
                    override("story.beside", [other]),
                )
            ),
        }
        form = "{:+.4f}" if outcome.higher else "{:+.1f}"
        forms = {"own": outcome.form, "other": outcome.form, "difference": form}
        about = {"comparator": other, "outcome": outcome.column, "query": case["query_id"]}
        rows.append(Row(values, about, forms))
    return rows


def side_by_side(records: Sequence[Mapping[str, Any]], grades: Mapping[str, int]) -> str:
    """One query under several methods as Markdown: its numbers, and its fused top lists.

    Args:
        records: a row of query records of each method, in the order of the columns.
        grades: positive judgments by document; such a document is bold.
    """
    names = [markdown(method_name(str(record["method"]))) for record in records]
    lines = ["## Several methods", "", piped(["", *names]), piped(["---"] * (len(names) + 1))]
    for outcome in PRIMARY:
        values = [record[outcome.column] for record in records]
        shown = ["–" if value is None else outcome.form.format(value) for value in values]
        lines.append(piped([markdown(outcome.title), *shown]))
    tops = [list(record["top"]) for record in records]
    lines += ["", piped(["rank", *names]), piped(["---"] * (len(names) + 1))]
    for place in range(max(map(len, tops))):
        row = [str(place + 1)]
        for top in tops:
            shown_id = markdown(top[place]) if place < len(top) else ""
            relevant = place < len(top) and top[place] in grades
            row.append(f"**{shown_id}**" if relevant else shown_id)
        lines.append(piped(row))
    return "\n".join(lines) + "\n"
