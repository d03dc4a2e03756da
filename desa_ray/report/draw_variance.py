"""How much generated text matters: draw by draw, and in intervals of queries and draws together."""

import numpy as np
import polars as pl

from desa_ray.core.statistics.draws import draw_deviations, hierarchical_means
from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.names import PRIMARY, Outcome, method_name
from desa_ray.report.results import over
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value


def by_draw(study: Study, method: str, outcome: Outcome) -> list[np.ndarray] | None:
    """A method's values, float64 [Q, D, 1] a data set, over the queries that have a value in every
    draw; None where a data set has none, or draws differ in number.
    """
    strata = []
    for dataset in study.datasets:
        cell = study.cell(dataset, method)
        if cell is None:
            return None
        own = cell.records.sort("query_id", "draw").select("query_id", pl.col(outcome.column))
        kept = own.filter(pl.col(outcome.column).is_not_null().all().over("query_id"))
        if not kept.height:
            return None
        values = kept[outcome.column].cast(pl.Float64).to_numpy()
        strata.append(values.reshape(-1, cell.draws, 1))
    return strata if len({values.shape[1] for values in strata}) == 1 else None


def draw_variance_table(study: Study, sampling: Sampling) -> Table | None:
    """Every method with several draws: each draw's macro, how far draws differ, and the macro's
    interval over queries next to that over queries and draws.
    """
    rows = []
    most = 0
    for method in study.methods:
        if not any(cell.draws > 1 for cell in study.cells_of(method)):
            continue
        for outcome in PRIMARY:
            strata = by_draw(study, method, outcome)
            if strata is None or strata[0].shape[1] < 2:
                continue
            macros = np.mean([values.mean(0) for values in strata], axis=0)[:, 0]
            over_draws, within = draw_deviations(strata)
            means = [values.mean(1) for values in strata]
            queries = sampling.bootstrap_means(means).mean(1)[:, 0]
            both = hierarchical_means(strata, sampling.resamples, sampling.seed).mean(1)[:, 0]
            values: dict[str, Value] = {"method": method_name(method), "outcome": outcome.title}
            values |= {
                "mean": float(macros.mean()),
                "between": float(over_draws[0]),
                "within": float(within[0]),
                "ci": interval(queries),
                "ci_draws": interval(both),
            }
            values |= {f"draw_{place}": float(macro) for place, macro in enumerate(macros)}
            most = max(most, len(macros))
            form = "{:.5f}" if outcome.higher else "{:.1f}"
            about = {"method": method, "outcome": outcome.column}
            rows.append(Row(values, about, dict.fromkeys([*values][2:], form)))
    if not rows:
        return None
    columns = (
        Column("method", "method"),
        Column("outcome", "outcome"),
        Column("mean", "macro", "{:.5f}"),
        Column("between", "SD over draws", "{:.5f}", help="of the macros of the draws"),
        Column(
            "within", "SD within a query", "{:.5f}", help="root of the mean variance over draws"
        ),
        Column("ci", "95 % CI, queries", "{:.5f}", help="draws averaged within each query first"),
        Column("ci_draws", "95 % CI, queries and draws", "{:.5f}", help="hierarchical bootstrap"),
        *(Column(f"draw_{place}", f"draw {place}", "{:.5f}") for place in range(most)),
    )
    title = "Draws of generated text"
    return Table("draws", title, columns, rows, [over(study)], detail=True, about=study.about)
