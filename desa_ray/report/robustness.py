"""Ablations, and what changes with kappa, K, encoder, generator and corpus size (method.md section
11).
"""

from collections import Counter
from itertools import pairwise

import numpy as np

from desa_ray.core.statistics.aggregate import gain_pct, macro, mean_reduction_pct
from desa_ray.report.cells import RecordedCell, number_of
from desa_ray.report.depth_tails import compared_tails, reduced_tails, tail_columns
from desa_ray.report.fallbacks import FALLBACKS, fallback_values
from desa_ray.report.names import DEPTH_DENSE, DEPTH_SPARSE, dataset_name, method_name
from desa_ray.report.results import PCT, gain, over, reduction
from desa_ray.report.study import Study, paired_values
from desa_ray.report.table import Column, Row, Table, Value

AXES = {
    "kappa": "κ",
    "k": "K",
    "encoder": "encoder",
    "generator": "generator",
    "corpus_docs": "documents",
}
CHANGES = (
    Column("ndcg_at_10", "nDCG@10 %", PCT, help="relative change of the macro"),
    Column("recall_at_20", "Recall@20 %", PCT, help="relative change of the macro"),
    Column("depth_dense", "L_D reduction %", "{:.2f}", help="mean of data sets"),
    Column("depth_sparse", "L_S reduction %", "{:.2f}", help="mean of data sets"),
)
WITH_TAILS = (
    *CHANGES[:3],
    *tail_columns(DEPTH_DENSE, reduction=True),
    CHANGES[3],
    *tail_columns(DEPTH_SPARSE, reduction=True),
)


def ablations_table(study: Study) -> Table | None:
    """Each ablation against the subject, and each number of references against the next smaller.

    An ablation's effectiveness is shown as the paper prints it: what lies between the subject and
    it, in percent of the ablation's own macro.
    """
    rows = []
    subject = study.roles.own
    name = method_name(subject)
    for method in study.roles.ablations:
        if study.complete(subject, method):
            values: dict[str, Value] = {"what": method_name(method), "against": name}
            values |= {c.key: _below(study, method, c.key) for c in CHANGES[:2]}
            for c in CHANGES[2:]:
                values[c.key] = reduction(study, method, subject, c.key)
                values |= compared_tails(study, (method, subject), c.key)
            rows.append(Row(values, {"ablation": f"{method}_vs_{subject}"}))
    settings = [s for s in study.varied("n_refs") if study.dataset_means(subject, "ndcg_at_10", s)]
    for fewer, more in pairwise(settings):
        values = {"what": f"{more.n_refs} references", "against": f"{fewer.n_refs}"}
        for column in CHANGES:
            own, other = (
                study.dataset_means(subject, column.key, setting) for setting in (more, fewer)
            )
            if own and other:
                values[column.key] = (gain_pct if column in CHANGES[:2] else mean_reduction_pct)(
                    own, other
                )
        for column in CHANGES[2:]:
            two = (subject, subject)
            values |= compared_tails(study, two, column.key, settings=(more, fewer))
        rows.append(Row(values, {"ablation": f"refs_{fewer.n_refs}_to_{more.n_refs}"}))
    if not rows:
        return None
    columns = (Column("what", f"{name} with"), Column("against", "against"), *WITH_TAILS)
    notes = [over(study), f"nDCG and Recall of an ablation: its macro − {name}'s, in % of its own"]
    return Table("ablations", "Ablations", columns, rows, notes)


def _below(study: Study, method: str, column: str) -> float | None:
    """An ablation's macro less the subject's, in percent of the ablation's (the paper's base)."""
    over_ablation = gain(study, study.roles.own, method, column)
    return None if over_ablation is None else -over_ablation


def variations(
    study: Study, axis: str, method: str | None = None
) -> dict[object, dict[str, tuple[RecordedCell, RecordedCell]]]:
    """Value of one axis -> data set -> a method's (the subject's) and the reference's cells, all
    else as in the main tables.

    Empty where the axis has one value. A generator's query sample is compared with the reference on
    the same queries.
    """
    found: dict[object, dict[str, tuple[RecordedCell, RecordedCell]]] = {}
    for cell in study.cells:
        if cell.method != (method or study.roles.own) or cell.dataset not in study.collections:
            continue
        documents, qrels, queries = study.collections[cell.dataset]
        setting = study.setting
        differs = [
            name for name in setting.axes if cell.value(name) not in (None, setting.value(name))
        ]
        if cell.corpus_docs != documents:
            differs.append("corpus_docs")
        elif axis != "generator" and (cell.qrels_hash, cell.queries) != (qrels, queries):
            continue
        original = study.counterpart(cell, study.roles.base)
        if original is None or set(differs) - {axis}:
            continue
        value = cell.value(axis)
        if value is None:
            continue
        known = found.setdefault(value, {}).get(cell.dataset)
        if known is None or len(cell.queries) > len(known[0].queries):
            found[value][cell.dataset] = (cell, original)
    if axis == "corpus_docs":  # only data sets that were run at several sizes
        counts = Counter(d for own in found.values() for d in own)
        several = {d for d in study.datasets if counts[d] > 1}
        shared = {}
        for value, own in found.items():
            kept = {d: own[d] for d in own if d in several}
            if kept:
                shared[value] = kept
        found = shared
    return (
        dict(sorted(found.items(), key=lambda item: (number_of(item[0]), str(item[0]))))
        if len(found) > 1
        else {}
    )


def robustness_table(study: Study) -> Table | None:
    """The subject against the reference for every value of every axis that varies, per data set,
    then macro.
    """
    own, base = study.roles.own, study.roles.base
    rows = robustness_rows(study, own) if own != base else []
    if not rows:
        return None
    title = f"Robustness: {method_name(own)} against {method_name(base)}"
    return Table("robustness", title, _columns(study, method_name(own)), rows)


def robustness_by_method_table(study: Study) -> Table | None:
    """The same for every method with two channels, where several vary."""
    found = {m: robustness_rows(study, m) for m in study.two_channels if m != study.roles.base}
    if sum(bool(rows) for rows in found.values()) < 2:
        return None
    lines = []
    for method, rows in found.items():
        for row in rows:
            values = {"method": method_name(method), **row.values}
            lines.append(Row(values, {"method": method, **row.about}))
    title = f"Robustness: every method against {method_name(study.roles.base)}"
    columns = (Column("method", "method"), *_columns(study, "its"))
    return Table("robustness_by_method", title, columns, lines, detail=True)


def robustness_rows(study: Study, method: str) -> list[Row]:
    """A method against the reference, for every value of every axis that varies."""
    rows: list[Row] = []
    titles = AXES | {axis: axis for axis in study.setting.further}
    for axis, title in titles.items():
        for value, pairs in variations(study, axis, method).items():
            means: list[dict[str, np.ndarray]] = []
            for dataset, (own, original) in sorted(pairs.items()):
                mean = _paired(own, original)
                if all(map(len, mean.values())):
                    means.append(mean)
                    about = {"axis": axis, "value": value, "dataset": dataset}
                    rows.append(
                        Row(_changes(title, value, dataset_name(dataset), [mean], [own]), about)
                    )
            if len(means) > 1:
                cells = [own for own, _ in pairs.values()]
                names = sorted(pairs)
                rows.append(
                    Row(
                        _changes(title, value, "macro", means, cells),
                        {"axis": axis, "value": value, "macro": True, "datasets": names},
                    )
                )
    return rows


def _paired(own: RecordedCell, other: RecordedCell) -> dict[str, np.ndarray]:
    """Column -> values of both cells, float64 [Q, 2]; a query is judged or not in all measures."""
    found = {}
    for group in (CHANGES[:2], CHANGES[2:]):
        values = paired_values(own, other, [column.key for column in group])
        found |= {column.key: values[:, place] for place, column in enumerate(group)}
    return found


def _columns(study: Study, name: str) -> tuple[Column, ...]:
    return (
        Column("axis", "varied"),
        Column("value", "value"),
        Column("dataset", "data set"),
        Column("queries", "queries", "{:d}"),
        Column("reference", f"{method_name(study.roles.base)} nDCG@10", "{:.4f}"),
        Column("subject", f"{name} nDCG@10", "{:.4f}"),
        *WITH_TAILS,
        *FALLBACKS,
    )


def _changes(
    title: str, value: object, name: str, means: list[dict], cells: list[RecordedCell]
) -> dict[str, Value]:
    own: dict[str, list[float]] = {}
    other: dict[str, list[float]] = {}
    for key in means[0]:
        own[key] = [float(mean[key][:, 0].mean()) for mean in means]
        other[key] = [float(mean[key][:, 1].mean()) for mean in means]
    shown: dict[str, Value] = {"axis": title, "value": str(value), "dataset": name}
    shown |= {"queries": sum(len(cell.queries) for cell in cells)}
    shown |= {"reference": macro(other["ndcg_at_10"]), "subject": macro(own["ndcg_at_10"])}
    shown |= {c.key: gain_pct(own[c.key], other[c.key]) for c in CHANGES[:2]}
    for c in CHANGES[2:]:
        shown[c.key] = mean_reduction_pct(own[c.key], other[c.key])
        shown |= reduced_tails(c.key, [(mean[c.key][:, 0], mean[c.key][:, 1]) for mean in means])
    return shown | fallback_values(cells)
