"""Each data set on its own: tests of the subject against its baselines as one family, and how
depths are distributed.
"""

import numpy as np

from desa_ray.core.statistics.aggregate import macro
from desa_ray.core.statistics.inference import paired_outcomes
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.depth_tails import QUANTILES, quantiles
from desa_ray.report.effects import EFFECT_COLUMNS, effect_rows, too_few
from desa_ray.report.names import (
    DEPTH_DENSE,
    DEPTH_SPARSE,
    DEPTH_TOTAL,
    EFFECTIVENESS,
    PRIMARY,
    dataset_name,
    method_name,
)
from desa_ray.report.study import Study, signed_differences
from desa_ray.report.table import Column, Row, Table, Value

FAMILY = "per data set"
DEPTHS = (DEPTH_DENSE, DEPTH_SPARSE, DEPTH_TOTAL)


def dataset_tests_table(study: Study, sampling: Sampling) -> Table | None:
    """The subject against each baseline within each data set: effects with intervals and tests, all
    of them one family for Holm's adjustment.
    """
    own = study.roles.own
    members = []
    for dataset in study.datasets:
        for other in study.roles.baselines:
            first, second = study.cell(dataset, own), study.cell(dataset, other)
            if first is None or second is None or other == own:
                continue
            label: dict[str, Value] = {"dataset": dataset_name(dataset)}
            label |= {"comparator": method_name(other)}
            about: dict[str, object] = {"dataset": dataset, "comparator": other, "family": FAMILY}
            for judged in (True, False):
                group = [o for o in PRIMARY if (o in EFFECTIVENESS) is judged]
                differences = signed_differences(first, second, group)
                if len(differences):
                    found = paired_outcomes([differences], sampling)
                    members += [(label, about, *one) for one in zip(group, found, strict=True)]
    if not members or len(study.datasets) < 2:
        return None
    columns = (
        Column("dataset", "data set"),
        Column("comparator", f"{method_name(own)} against"),
        Column("outcome", "outcome"),
        *EFFECT_COLUMNS,
    )
    notes = [
        f'one family, "{FAMILY}": p (Holm) is adjusted over {len(members)} tests',
        *too_few(len(members), sampling.resamples),
    ]
    rows = effect_rows(members, sampling.resamples)
    title = "Tests within each data set"
    return Table("tests_by_dataset", title, columns, rows, notes, detail=True, about=study.about)


def depth_quantiles_tables(study: Study) -> list[Table]:
    """Mean, median, P90, P95 and P99 of draw-averaged depths over queries: the macro of each
    method, and each data set.
    """
    by_dataset, macros = [], []
    for method in study.methods:
        for outcome in DEPTHS:
            found = []
            for dataset in study.datasets:
                cell = study.cell(dataset, method)
                values = cell.means[outcome.column].drop_nulls().to_numpy() if cell else []
                if cell is None or not len(values):
                    continue
                own = _distribution(np.asarray(values, np.float64))
                found.append(own)
                label = {"dataset": dataset_name(dataset)} | _label(method, outcome.title)
                about = {"dataset": dataset, "method": method, "outcome": outcome.column}
                by_dataset.append(Row({**label, **own}, about))
            if found and len(found) == len(study.datasets):
                averaged: dict[str, Value] = {}
                for key in found[0]:
                    averaged[key] = macro([own[key] for own in found])
                about = {"method": method, "outcome": outcome.column}
                macros.append(Row({**_label(method, outcome.title), **averaged}, about))
    columns = (
        Column("method", "method"),
        Column("outcome", "depth"),
        Column("mean", "mean", "{:.1f}"),
        *(Column(name, title, "{:.1f}") for name, (title, _) in QUANTILES.items()),
        Column("largest", "largest", "{:.1f}"),
    )
    note = "of queries, whose draws are averaged; linear interpolation"
    tables = []
    if macros:
        notes = [note, "each is the mean over the data sets"]
        title = "How depths are distributed"
        tables.append(
            Table("depths", title, columns, macros, notes, detail=True, about=study.about)
        )
    if by_dataset and len(study.datasets) > 1:
        columns = (Column("dataset", "data set"), *columns)
        title = "How depths are distributed, each data set"
        tables.append(Table("depths_by_dataset", title, columns, by_dataset, [note], detail=True))
    return tables


def _label(method: str, outcome: str) -> dict[str, Value]:
    return {"method": method_name(method), "outcome": outcome}


def _distribution(values: np.ndarray) -> dict[str, float]:
    return {"mean": float(values.mean()), **quantiles(values), "largest": float(values.max())}
