"""One report: every table and figure that the records allow, what was left out and why, and the
files it is written to.

What is written depends on the records, the options and this code only: no date, path or host is in
it, so equal records give equal files, wherever they came from.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.access import access_figure, access_table
from desa_ray.report.by_dataset import dataset_tests_table, depth_quantiles_tables
from desa_ray.report.comparisons import (
    external_table,
    operator_controls_tables,
    primary_tests_table,
    qudar_effects_table,
    qudar_weights_table,
)
from desa_ray.report.curves import axis_figures, corpus_figure
from desa_ray.report.cutoffs import cutoff_tables
from desa_ray.report.depth_figure import depth_figure
from desa_ray.report.draw_variance import draw_variance_table
from desa_ray.report.equivalence import leave_one_out_table
from desa_ray.report.escapes import markdown
from desa_ray.report.families import families_table
from desa_ray.report.figures import FIGURES, Figure, difference_figure
from desa_ray.report.fusion_rules import fusion_rules_tables
from desa_ray.report.grid import grid_table
from desa_ray.report.judgments import judgments_table
from desa_ray.report.latex import latex_document, latex_table
from desa_ray.report.mechanism import mechanism_by_method_table, mechanism_table
from desa_ray.report.mechanism_gains import correlations_tables, quartiles_tables
from desa_ray.report.names import dataset_name, method_name
from desa_ray.report.page import page
from desa_ray.report.painters import Columns
from desa_ray.report.pareto import pareto_figure
from desa_ray.report.printing import Kind, write_figures
from desa_ray.report.published import Published
from desa_ray.report.render import markdown_table
from desa_ray.report.results import channel_evidence_table, main_table, per_dataset_table
from desa_ray.report.robustness import (
    ablations_table,
    robustness_by_method_table,
    robustness_table,
)
from desa_ray.report.spreadsheet import write_csv
from desa_ray.report.study import AXES, Study
from desa_ray.report.table import Column, Row, Table
from desa_ray.report.value_order import value_order_tables

Builder = Callable[[Study, Sampling], Table | Sequence[Table] | None]
FigureBuilder = Callable[[Study, Sampling], Figure | None]
# Each with what it needs, said where it is left out.
TABLES: tuple[tuple[str, Builder, str], ...] = (
    ("main table", lambda study, _: main_table(study), "needs a method with two channels"),
    ("primary tests", primary_tests_table, "needs subject and baseline in every data set"),
    ("families of tests", families_table, "named by report.families or report.all_pairs"),
    (
        "channel evidence",
        lambda study, _: channel_evidence_table(study),
        "needs subject and reference",
    ),
    (
        "external comparison",
        lambda study, _: external_table(study),
        "needs a method other than subject, reference and parts",
    ),
    ("QuDAR tests", qudar_effects_table, "needs the subject and qudar_complete in every data set"),
    (
        "QuDAR weights",
        qudar_weights_table,
        "needs qudar_weighted and qudar_complete in every data set",
    ),
    (
        "operator controls",
        operator_controls_tables,
        "needs contextual_dense or rewrite_sparse in every data set",
    ),
    (
        "ablations",
        lambda study, _: ablations_table(study),
        "needs ablations of the subject, or the subject with several n_refs",
    ),
    (
        "cutoffs",
        lambda study, _: cutoff_tables(study),
        "needs records of subject and reference with cutoff columns",
    ),
    (
        "mechanism",
        lambda study, _: mechanism_table(study),
        "needs records of the subject with mechanism columns",
    ),
    ("mechanism by method", lambda study, _: mechanism_by_method_table(study), ""),
    (
        "quartiles",
        lambda study, _: quartiles_tables(study),
        "needs the subject with mechanism columns, the reference, and report.parts where named",
    ),
    (
        "correlations",
        lambda study, sampling: correlations_tables(study, sampling.seed),
        "needs the subject with mechanism columns, the reference, and report.parts where named",
    ),
    (
        "robustness",
        lambda study, _: robustness_table(study),
        "needs several values of kappa, K, encoder, generator, corpus size or another setting",
    ),
    ("order of encoders and generators", value_order_tables, ""),
    ("fusion rules", fusion_rules_tables, ""),
    ("robustness by method", lambda study, _: robustness_by_method_table(study), ""),
    ("tests of data sets", dataset_tests_table, ""),
    ("depths", lambda study, _: depth_quantiles_tables(study), ""),
    ("depths by access", lambda study, _: access_table(study), ""),
    (
        "judgments",
        lambda study, _: judgments_table(study),
        "needs records with the shares of judged documents: run the cells again",
    ),
    ("draws", draw_variance_table, ""),
    ("left out", lambda study, _: leave_one_out_table(study), ""),
    ("grid", grid_table, ""),
    ("data sets", lambda study, _: per_dataset_table(study), ""),
)
DIFFERENCES = 4  # figures of query differences, of the first baselines


@dataclass(frozen=True)
class Report:
    """Everything a report shows.

    Attributes:
        tables: each with the printed numbers next to it, if asked for and available.
        notes: choices made, and tables left out with what they need.
        about: data and settings of its tables, in words.
    """

    title: str
    facts: Mapping[str, str]
    notes: Sequence[str]
    tables: Sequence[tuple[Table, Table | None]]
    figures: Sequence[Figure]
    cells: Table
    about: str

    def all_tables(self) -> list[Table]:
        return [table for pair in self.tables for table in pair if table is not None]


def build_report(
    study: Study,
    sampling: Sampling,
    published: Published | None = None,
    further: Sequence[tuple[str, Builder, str]] = (),
    figures: Sequence[FigureBuilder] = (),
) -> Report:
    """Compute every table and figure of a study; `further` and `figures` are tables and figures in
    addition to the usual ones.
    """
    tables: list[Table] = []
    left_out = []
    for name, builder, needs in (*TABLES, *further):
        found = builder(study, sampling)
        made = [found] if isinstance(found, Table) else list(found or ())
        tables += made
        if not made and needs:
            left_out.append(f"{name} ({needs})")
    drawn = [
        pareto_figure(study, sampling),
        *(builder(study, sampling) for builder in figures),
        *(difference_figure(study, other) for other in study.roles.baselines[:DIFFERENCES]),
        *(builder(study) for builder in (depth_figure, *FIGURES, access_figure)),
        *axis_figures(study, sampling),
        corpus_figure(study, sampling),
    ]
    roles = study.roles
    facts = {"subject": method_name(roles.own)} if roles.subject else {}
    if roles.reference not in (None, roles.subject):
        facts["reference"] = method_name(roles.base)
    facts |= {"data sets": ", ".join(dataset_name(dataset) for dataset in study.datasets)}
    for axis in AXES:
        value = getattr(study.setting, axis)
        if value is not None:
            facts[axis] = str(value)
    facts["resamples"] = str(sampling.resamples)
    facts["seed"] = str(sampling.seed)
    facts["sampling"] = sampling.scheme
    return Report(
        title=f"{method_name(roles.own)} report" if roles.subject else "Report",
        facts=facts,
        notes=[*study.notes, *([f"left out: {', '.join(left_out)}"] if left_out else [])],
        tables=[(table, published.beside(table, study) if published else None) for table in tables],
        figures=[figure for figure in drawn if figure is not None],
        cells=_cells_table(study),
        about=f"{study.about}; {sampling.resamples:,} resamples, seed {sampling.seed}",
    )


def _cells_table(study: Study) -> Table:
    rows = [Row(cell.describe()) for cell in study.cells]
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    columns = [Column(key, key.replace("_", " ").replace("sha256", "SHA-256")) for key in keys]
    return Table("cells", "Records used for this report", columns, rows)


def write_report(
    report: Report, folder: Path, kinds: Sequence[Kind] = (), columns: Columns = 2
) -> list[Path]:
    """Write `index.html`, `report.md`, `report.tex`, `report.json`, `tables/*.{tex,csv,parquet}`,
    and of every figure `figures/NAME.csv` and the `kinds` asked for (svg, pdf, png).

    Args:
        report: what is written.
        folder: made if missing.
        kinds: files of each figure, for print.
        columns: of the printed page that figures and LaTeX tables may span.
    """
    for name in ("tables", "figures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    tables = report.all_tables()
    pdfs = [figure for figure in report.figures if figure.drawing and "pdf" in kinds]
    texts = {
        "index.html": page(
            report.title, report.facts, report.notes, report.tables, report.figures, report.cells
        ),
        "report.md": _markdown(report, tables, kinds),
        "report.tex": latex_document(
            tables, [(f.name, f"{f.title}. {f.caption}") for f in pdfs], columns
        ),
        **{
            f"tables/{table.name}.tex": latex_table(table, report.about, columns)
            for table in tables
        },
        "report.json": json.dumps(_summary(report), indent=2, ensure_ascii=False) + "\n",
    }
    written = []
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    for table in tables:
        frame = table.frame()
        write_csv(frame, folder / "tables" / f"{table.name}.csv")
        frame.write_parquet(folder / "tables" / f"{table.name}.parquet")
        written += [folder / "tables" / f"{table.name}.{kind}" for kind in ("csv", "parquet")]
    drawings = {figure.name: figure.drawing for figure in report.figures if figure.drawing}
    for name, drawing in drawings.items():
        written.append(folder / "figures" / f"{name}.csv")
        write_csv(drawing.frame(), written[-1])
    return [*written, *write_figures(drawings, folder / "figures", kinds, columns)]


def _markdown(report: Report, tables: Sequence[Table], kinds: Sequence[Kind]) -> str:
    facts = "\n".join(
        f"- {markdown(name)}: {markdown(value)}" for name, value in report.facts.items()
    )
    parts = [f"# {markdown(report.title)}\n", f"{facts}\n"]
    if report.notes:
        parts.append("\n".join(f"- {markdown(note)}" for note in report.notes) + "\n")
    parts += [markdown_table(table) for table in tables]
    shown: Kind | None = "svg" if "svg" in kinds else "png" if "png" in kinds else None
    parts += [_drawn(figure, shown) for figure in report.figures]
    return "\n".join([*parts, markdown_table(report.cells)])


def _drawn(figure: Figure, kind: Kind | None) -> str:
    """The picture where there is one that Markdown shows, and its numbers."""
    title, place = markdown(figure.title), f"figures/{figure.name}"
    picture = f"![{title}]({place}.{kind})\n\n" if kind else ""
    return f"## {title}\n\n{picture}{markdown(figure.caption)} [CSV]({place}.csv)\n"


def _summary(report: Report) -> dict[str, object]:
    return {
        "facts": dict(report.facts),
        "notes": list(report.notes),
        "tables": [table.name for table in report.all_tables()],
        "figures": [figure.name for figure in report.figures],
        "cells": [dict(row.values) for row in report.cells.rows],
    }
