"""Tests of equivalence (TOST), and how much a macro depends on each data set.

Two methods are equivalent in an outcome where the 90 % interval of their macro difference lies
within a margin that was set in advance: two one-sided tests at level 0.05.

Source: Schuirmann (1987); the interval is the bootstrap's percentile interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.effects import THESE_DATASETS
from desa_ray.report.names import PRIMARY, Outcome, dataset_name, method_name
from desa_ray.report.results import over
from desa_ray.report.study import Study, paired_values
from desa_ray.report.table import Column, Row, Table, Value

LEVEL = 0.90
SAME, OTHER, BOTH, OPEN = "equivalent", "different", "different, within the margin", "open"


@dataclass(frozen=True)
class Margin:
    """How far apart two methods may be and still count as equivalent.

    Attributes:
        effectiveness: of nDCG and Recall, absolute.
        depth_pct: of depths, in percent of the other method's macro.
    """

    effectiveness: float = 0.01
    depth_pct: float = 5.0

    def of(self, outcome: Outcome) -> float:
        return self.effectiveness if outcome.higher else self.depth_pct


def equivalent(samples: np.ndarray, margin: float) -> tuple[tuple[float, float], bool]:
    """The 90 % interval of bootstrap differences [B], and whether it lies within +-margin."""
    low, high = interval(samples, LEVEL)
    return (low, high), -margin < low and high < margin


def equivalence_table(study: Study, sampling: Sampling, margin: Margin) -> Table | None:
    """The subject against each baseline: the difference (of depths: in percent of the baseline's),
    its 90 % interval, and what follows.
    """
    own = study.roles.own
    rows = []
    for other in study.roles.baselines:
        pairs = study.pairs(own, other) if other != own else None
        for outcome in PRIMARY if pairs else ():
            assert pairs
            strata = [paired_values(*pair, [outcome.column])[:, 0] for pair in pairs.values()]
            if all(map(len, strata)):
                first: dict[str, Value] = {"comparator": method_name(other)}
                first["outcome"] = outcome.title
                about = {"comparator": other, "outcome": outcome.column}
                values = _tost(strata, outcome, sampling, margin)
                form = "{:+.5f}" if outcome.higher else "{:+.2f}"
                forms = dict.fromkeys(("change", "ci", "margin"), form)
                rows.append(Row({**first, **values}, about, forms | {"margin": "{:g}"}))
    if not rows:
        return None
    columns = (
        Column("comparator", f"{method_name(own)} against"),
        Column("outcome", "outcome"),
        Column(
            "change", "difference", "{:+.5f}", help="own − other; of depths in % of the other's"
        ),
        Column("ci", "90 % CI", "{:+.5f}", help="percentile interval of bootstrap samples"),
        Column("margin", "margin ±", "{:g}", help="set in advance: report.margin"),
        Column("verdict", "verdict"),
    )
    meant = (
        f"{SAME}: the 90 % interval lies within the margin; {OTHER}: the 95 % interval excludes 0"
    )
    notes = [over(study), f"{meant}; {BOTH}: both; {OPEN}: neither", THESE_DATASETS]
    title = "Equivalence"
    return Table("equivalence", title, columns, rows, notes, detail=True, about=study.about)


def _tost(
    strata: Sequence[np.ndarray], outcome: Outcome, sampling: Sampling, margin: Margin
) -> dict[str, Value]:
    macros = sampling.bootstrap_means(strata).mean(1)
    own, other = np.mean([values.mean(0) for values in strata], axis=0)
    if outcome.higher:
        change, samples = own - other, macros[:, 0] - macros[:, 1]
    elif other > 0 and (macros[:, 1] > 0).all():
        change, samples = 100 * (own / other - 1), 100 * (macros[:, 0] / macros[:, 1] - 1)
    else:
        return {"verdict": OPEN}
    reach = margin.of(outcome)
    ends, within = equivalent(samples, reach)
    low, high = interval(samples)
    differs = low > 0 or high < 0
    verdict = BOTH if within and differs else SAME if within else OTHER if differs else OPEN
    return {"change": float(change), "ci": ends, "margin": reach, "verdict": verdict}


def leave_one_out_table(study: Study) -> Table | None:
    """The subject's macro difference to each baseline with each data set left out in turn."""
    own = study.roles.own
    if len(study.datasets) < 2:
        return None
    rows = []
    for other in study.roles.baselines:
        for outcome in PRIMARY if other != own else ():
            changes = _changes(study, own, other, outcome)
            if len(changes) < len(study.datasets):
                continue
            whole = sum(changes.values())
            left = {name: (whole - own) / (len(changes) - 1) for name, own in changes.items()}
            ends = (min(left.values()), max(left.values()))
            shown: dict[str, Value] = {"all": whole / len(changes), "range": ends}
            shown |= {f"without_{name}": change for name, change in left.items()}
            form = "{:+.5f}" if outcome.higher else "{:+.1f}"
            about = {"comparator": other, "outcome": outcome.column}
            first: dict[str, Value] = {"comparator": method_name(other), "outcome": outcome.title}
            rows.append(Row(first | shown, about, dict.fromkeys(shown, form)))
    if not rows:
        return None
    columns = (
        Column("comparator", f"{method_name(own)} against"),
        Column("outcome", "outcome"),
        Column("all", "all", "{:+.5f}", help="macro difference, own − other"),
        Column("range", "range", "{:+.5f}", help="smallest and largest with one left out"),
        *(
            Column(f"without_{name}", f"without {dataset_name(name)}", "{:+.5f}")
            for name in study.datasets
        ),
    )
    title = "Macro differences with one data set left out"
    return Table("leave_one_out", title, columns, rows, [over(study)], detail=True)


def _changes(study: Study, own: str, other: str, outcome: Outcome) -> dict[str, float]:
    """Data set -> mean difference, of those that have values."""
    found = {}
    for dataset, pair in (study.pairs(own, other) or {}).items():
        pairs_Q2 = paired_values(*pair, [outcome.column])[:, 0]
        if len(pairs_Q2):
            found[dataset] = float((pairs_Q2[:, 0] - pairs_Q2[:, 1]).mean())
    return found
