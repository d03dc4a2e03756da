"""The verdict of the subject's four outcomes together: better in all, worse in all, or mixed (the
authors' rule, method.md section 10).

An outcome is better where the 95 % interval of its favourable difference (for depths: the other's
less the subject's) lies above 0, worse where it lies below, and open where it holds 0.
"""

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.comparisons import primary_tests_table
from desa_ray.report.names import PRIMARY, method_name
from desa_ray.report.results import over
from desa_ray.report.study import Study
from desa_ray.report.table import Column, Row, Table, Value

BETTER, WORSE, OPEN = "better", "worse", "open"
ALL_BETTER, ALL_WORSE, MIXED = "better in all four", "worse in all four", "mixed"


def outcome_labels_table(study: Study, sampling: Sampling) -> Table | None:
    """A row per comparator: how each outcome came out, and what they are together."""
    tests = primary_tests_table(study, sampling)
    if tests is None:
        return None
    found: dict[str, dict[str, Value]] = {}
    for row in tests.rows:
        ends = row.values["ci"]
        assert isinstance(ends, tuple)
        values = found.setdefault(row.about["comparator"], {"comparator": row.values["comparator"]})
        values[row.about["outcome"]] = _label(*ends)
    rows = []
    for comparator, values in found.items():
        labels = [values[outcome.column] for outcome in PRIMARY]
        together = {BETTER: ALL_BETTER, WORSE: ALL_WORSE, OPEN: MIXED}
        values["together"] = together[str(labels[0])] if len(set(labels)) == 1 else MIXED
        values |= {label: labels.count(label) for label in (BETTER, WORSE)}
        rows.append(Row(values, {"comparator": comparator}))
    columns = (
        Column("comparator", f"{method_name(study.roles.own)} against"),
        *(Column(outcome.column, outcome.title) for outcome in PRIMARY),
        Column("together", "together"),
        Column(BETTER, "outcomes better", "{:d}"),
        Column(WORSE, "outcomes worse", "{:d}"),
    )
    notes = [
        over(study),
        "better, worse: the 95 % interval of the primary tests lies above or below 0",
        "open: it holds 0; mixed: the four outcomes do not agree, or all are open",
    ]
    return Table("outcome_labels", "Outcomes together", columns, rows, notes)


def _label(low: float, high: float) -> str:
    return BETTER if low > 0 else WORSE if high < 0 else OPEN
