"""Named families of tests: all pairs and outcomes of a family are adjusted together."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from desa_ray.core.statistics.families import max_t
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.effects import (
    EFFECT_COLUMNS,
    MAX_T,
    THESE_DATASETS,
    effect_rows,
    family_differences,
    paired_effects,
    too_few,
)
from desa_ray.report.names import PRIMARY, method_name
from desa_ray.report.results import over
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value


def families_table(study: Study, sampling: Sampling) -> Table | None:
    """The families of tests that were named: all pairs and outcomes of one are adjusted together.

    `all_pairs` adds the family of every two methods with two channels.
    """
    families = dict(study.roles.families)
    if study.roles.all_pairs:
        families["all pairs"] = list(combinations(reversed(study.two_channels), 2))
    rows: list[Row] = []
    sizes: list[int] = []
    for name, pairs in families.items():
        members = []
        for own, other in pairs:
            found = paired_effects(study, own, other, PRIMARY, sampling) or {}
            first: dict[str, Value] = {"family": name, "own": method_name(own)}
            first["comparator"] = method_name(other)
            about: dict[str, object] = {"family": name, "method": own, "comparator": other}
            members += [(first, about, o, paired) for o, paired in found.items()]
        rows += with_max_t(effect_rows(members, sampling.resamples), study, pairs, sampling)
        sizes.append(len(members))
    if not rows:
        return None
    columns = (
        Column("family", "family"),
        Column("own", "method"),
        Column("comparator", "against"),
        Column("outcome", "outcome"),
        *EFFECT_COLUMNS,
        MAX_T,
    )
    notes = [
        over(study),
        THESE_DATASETS,
        "p (Holm) and p (max-T) are adjusted over all pairs and outcomes of a family",
        *too_few(max(sizes), sampling.resamples),
    ]
    return Table("families", "Families of tests", columns, rows, notes, about=study.about)


def with_max_t(
    rows: list[Row], study: Study, pairs: Sequence[tuple[str, str]], sampling: Sampling
) -> list[Row]:
    """A family's rows with max-T p of all pairs that every data set has, in the rows' order."""
    whole = [pair for pair in pairs if study.complete(*pair)]
    if not rows:
        return rows
    _, adjusted = max_t(
        family_differences(study, whole, PRIMARY), sampling.resamples, sampling.seed
    )
    found = {}
    for place, (own, other) in enumerate(whole):
        for nth, outcome in enumerate(PRIMARY):
            found[own, other, outcome.column] = float(adjusted[place * len(PRIMARY) + nth])
    lines = []
    for row in rows:
        key = row.about["method"], row.about["comparator"], row.about["outcome"]
        lines.append(replace(row, values={**row.values, "p_max_t": found.get(key)}))
    return lines
