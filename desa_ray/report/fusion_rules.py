"""Fusion rules compared: every method under every rule, whether the subject's gain over a baseline
holds under another rule, and whether it differs from the gain under the main rule (method.md
section 10.3).
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from desa_ray.core.statistics.aggregate import macro
from desa_ray.core.statistics.families import LEVEL, holm_can_reject
from desa_ray.core.statistics.inference import Paired, holm, paired_outcomes
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.effects import HOLM, THESE_DATASETS, too_few
from desa_ray.report.names import EFFECTIVENESS, PRIMARY, method_name
from desa_ray.report.results import main_methods, outcome_column, over
from desa_ray.report.study import Setting, Study
from desa_ray.report.table import Column, Row, Table, Value

RULE = "fusion.rule"
GROUP = "fusion."
Rules = dict[str, Setting]


def rule_settings(study: Study) -> Rules:
    """What a rule is called -> the main setting with it, the main rule first; settings of a rule
    that differ make rules of their own. Empty where cells have one rule.
    """
    axes = ["kappa", *(axis for axis in study.setting.further if axis.startswith(GROUP))]
    rest = [axis for axis in study.setting.axes if axis not in axes]
    found: Rules = {}
    for cell in sorted(study.cells, key=lambda cell: cell.place):
        if any(cell.value(axis) not in (None, study.setting.value(axis)) for axis in rest):
            continue
        setting, words = study.setting, []
        for axis in axes:
            value = cell.value(axis)
            if axis == "kappa" and value is None:
                continue
            setting = setting.having(axis, value)
            if axis == "kappa" and value != study.setting.kappa:
                words.append(f"κ {value}")
            elif axis not in ("kappa", RULE) and value is not None:
                words.append(f"{axis.removeprefix(GROUP)} {value}")
        name = str(cell.value(RULE))
        found.setdefault(f"{name} ({', '.join(words)})" if words else name, setting)
    named = {str(setting.value(RULE)) for setting in found.values()}
    if RULE not in axes or len(named) < 2:
        return {}
    main = study.setting.value(RULE), study.setting.kappa
    return dict(sorted(found.items(), key=lambda own: (own[1].value(RULE), own[1].kappa) != main))


def fusion_rules_tables(study: Study, sampling: Sampling) -> list[Table]:
    """Means of all methods under every rule, and the subject against each baseline."""
    rules = rule_settings(study)
    if not rules:
        return []
    tables = [_means_table(study, rules)]
    for other in study.roles.baselines:
        if other != study.roles.own and (found := _gains_table(study, rules, other, sampling)):
            tables.append(found)
    return tables


def _means_table(study: Study, rules: Rules) -> Table:
    rows: list[Row] = []
    for name, setting in rules.items():
        for method in main_methods(study):
            values: dict[str, Value] = {"rule": name, "method": method_name(method)}
            for outcome in PRIMARY:
                means = study.dataset_means(method, outcome.column, setting)
                values[outcome.column] = macro(means) if means else None
            if values["ndcg_at_10"] is not None:
                rows.append(Row(values, {"rule": name, "method": method}))
    columns = (Column("rule", "rule"), Column("method", "method"), *map(outcome_column, PRIMARY))
    notes = [over(study), "no depths: the rule has no certificate (method.md section 6.13)"]
    return Table("fusion_rules", "Fusion rules", columns, rows, notes, about=study.about)


def _gains_table(study: Study, rules: Rules, other: str, sampling: Sampling) -> Table | None:
    """The subject against one baseline under every rule, and each gain against the main rule's."""
    gains = {name: _differences(study, other, setting) for name, setting in rules.items()}
    whole = {name: own for name, own in gains.items() if own is not None}
    first, *others = rules
    if first not in whole or len(whole) < 2:
        return None
    others = [name for name in others if name in whole]
    used = [whole[name] for name in (first, *others)]
    aligned = [_aligned(frames) for frames in zip(*used, strict=True)]
    gained = _tests(aligned, sampling)
    changed = _tests([own[:, 1:] - own[:, :1] for own in aligned], sampling)
    p_gained, p_changed = _adjusted(gained, sampling), _adjusted(changed, sampling)
    rows: list[Row] = []
    for place, name in enumerate((first, *others)):
        for nth, outcome in enumerate(EFFECTIVENESS):
            at = place * len(EFFECTIVENESS) + nth
            own = gained[at]
            values: dict[str, Value] = {"rule": name, "outcome": outcome.title}
            values |= {"effect": own.effect, "ci": (own.low, own.high), "p": own.p}
            values |= {"p_holm": p_gained[at], "wins": own.wins, "losses": own.losses}
            if place:
                change = changed[at - len(EFFECTIVENESS)]
                values |= {"change": change.effect, "change_ci": (change.low, change.high)}
                values |= {"change_p": p_changed[at - len(EFFECTIVENESS)]}
            rows.append(Row(values, {"rule": name, "comparator": other, "outcome": outcome.column}))
    subject, base = method_name(study.roles.own), method_name(other)
    columns = (
        Column("rule", "rule"),
        Column("outcome", "outcome"),
        Column("effect", "gain", "{:+.5f}", help=f"macro difference, {subject} − {base}"),
        Column("ci", "95 % CI", "{:+.5f}", help="percentile interval of bootstrap samples"),
        Column("p", "p", "{:.4f}", help="two-sided, stratified paired sign flips"),
        HOLM,
        Column("wins", "wins", "{:d}"),
        Column("losses", "losses", "{:d}"),
        Column("change", f"gain − gain under {first}", "{:+.5f}", help="macro"),
        Column("change_ci", "its 95 % CI", "{:+.5f}"),
        Column("change_p", "its p (Holm)", "{:.4f}", help="adjusted over all other rules"),
    )
    title = f"{subject} against {base} under every fusion rule"
    notes = [over(study), _verdict(rows, subject, base), THESE_DATASETS]
    notes += too_few(len(gained), sampling.resamples)
    return Table(f"fusion_rules_{other}", title, columns, rows, notes, about=study.about)


def _differences(study: Study, other: str, setting: Setting) -> list[pl.DataFrame] | None:
    """Query differences of the subject and a baseline under a rule, a data set each."""
    pairs = study.pairs(study.roles.own, other, setting)
    if pairs is None:
        return None
    names = [outcome.column for outcome in EFFECTIVENESS]
    found: list[pl.DataFrame] = []
    for own, base in pairs.values():
        both = own.means.select("query_id", *names).join(
            base.means.select("query_id", *names), on="query_id", suffix="_other"
        )
        change = [(pl.col(name) - pl.col(f"{name}_other")).alias(name) for name in names]
        found.append(both.select("query_id", *change).drop_nulls())
    return found


def _aligned(frames: Sequence[pl.DataFrame]) -> np.ndarray:
    """Differences under all rules of the queries that all have, float64 [Q, rules, outcomes]."""
    together = frames[0]
    for place, frame in enumerate(frames[1:], 1):
        together = together.join(frame, on="query_id", suffix=f" {place}")
    values = together.sort("query_id").drop("query_id").to_numpy()
    return values.reshape(len(values), len(frames), len(EFFECTIVENESS))


def _tests(strata: Sequence[np.ndarray], sampling: Sampling) -> list[Paired]:
    """By rule, then outcome."""
    return paired_outcomes([own.reshape(len(own), -1) for own in strata], sampling)


def _adjusted(found: Sequence[Paired], sampling: Sampling) -> Sequence[float | None]:
    if not holm_can_reject(len(found), sampling.resamples):
        return [None] * len(found)
    return holm([own.p for own in found])


def _verdict(rows: Sequence[Row], subject: str, base: str) -> str:
    """Under how many rules the gain in nDCG is more than chance, in a sentence."""
    judged = [row.values for row in rows if row.about["outcome"] == EFFECTIVENESS[0].column]
    better, worse = 0, 0
    for values in judged:
        p, effect = values["p_holm"], values["effect"]
        assert isinstance(effect, float)
        if isinstance(p, float) and p <= LEVEL:
            better, worse = better + (effect > 0), worse + (effect < 0)
    what = f"{subject} is better than {base} in nDCG@10 under {better} of {len(judged)} rules"
    return f"{what} and worse under {worse} (p (Holm) at most {LEVEL})"
