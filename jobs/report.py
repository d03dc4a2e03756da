"""Tables, figures and a page from query records, or one query's story (Hydra overrides)."""

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.markdown import Markdown

from desa_ray.config_check import checked
from desa_ray.credentials import redacted, refuse_credentials
from desa_ray.errors import DesaError
from desa_ray.experiment.cell_files import write_json
from desa_ray.experiment.places import home, store_root, tracking_uri
from desa_ray.experiment.spec import PARITY, addresses
from desa_ray.report.build import Builder, Report, build_report, write_report
from desa_ray.report.cases import cases_table
from desa_ray.report.equivalence import Margin, equivalence_table
from desa_ray.report.gain import with_gain
from desa_ray.report.generation_cost import generation_cost
from desa_ray.report.generation_quality import generation_quality
from desa_ray.report.leakage import leakage
from desa_ray.report.load import FILE, read_records
from desa_ray.report.method_cost import method_cost
from desa_ray.report.paper import PAPER
from desa_ray.report.paper_tables import NOTES, PAPER_TABLES
from desa_ray.report.pareto import cost_figure
from desa_ray.report.published import Published
from desa_ray.report.render import rich_table
from desa_ray.report.roles import Roles
from desa_ray.report.study import Study
from desa_ray.report.told import told
from desa_ray.report.trec_files import export_trec
from desa_ray.store.artifacts import Store
from desa_ray.terminal import screen
from desa_ray.tracking.last import FILE as LAST
from desa_ray.tracking.last import last_runs, report_route
from desa_ray.types import sha256_json

from .cli.app import hydra_app, output_folder
from .cli.console import note
from .cli.report_config import ReportConfig

# Settings of the whole report, which may be written like those of the group `report`.
WITH_GROUP = re.compile(r"^(\+{0,2}|~)report\.(resamples|seed|sampling|gain)(?==|$)")


def newest_records() -> Path:
    """The folder of the newest sweep or run below the output folder."""
    outputs = Path(os.environ.get("DESA_OUTPUTS") or "outputs")
    found = max(outputs.rglob(FILE), key=lambda file: file.stat().st_mtime_ns, default=None)
    if found is None:
        raise DesaError(
            "no records yet",
            where=str(outputs),
            hint="`desa run` first, or name runs=, sweep= or records=",
        )
    return found.parent.parent if found.relative_to(outputs).parts[0] == "sweeps" else found.parent


def gather(config: ReportConfig) -> Study:
    """The study of the records that the configuration names."""
    sources: Sequence[str | Path] = config.sources
    if not sources:
        sources = [newest_records()]
        note(f"records: {sources[0]}")
    records = read_records(sources, tracking_uri=config.tracking.uri)
    records = with_gain(records, config.used_gain)
    primary = {
        name: getattr(config.primary, name)
        for name in ("encoder", "generator", "kappa", "k", "n_refs", "corpus_docs", "settings")
    }
    return Study(
        records,
        primary=primary,
        methods=config.methods,
        datasets=config.datasets,
        roles=config.report.roles(PAPER if config.preset else Roles()),
        usual=config.preset is not None,
    )


def make_report(config: ReportConfig, folder: Path) -> Report:
    """Write the report below `folder`, show its tables, and log it."""
    study = gather(config)
    study.notes.append(f"nDCG@10 has {config.used_gain} gain")
    published = Published(config.compare) if config.compare else None
    if config.preset:
        study.notes += NOTES
    margin = Margin(config.report.margin.effectiveness, config.report.margin.depth_pct)
    needs = "needs subject and baseline in every data set"
    further: list[tuple[str, Builder, str]] = []
    if config.cases is not None:
        further.append(("cases", partial(cases_table, count=config.cases), needs))
    if config.leakage:
        further.append(leakage(Store(store_root(config.store))))
    further.append(("equivalence", partial(equivalence_table, margin=margin), needs))
    store, figures = Store(store_root(config.store)), []
    if config.preset:
        further += [*PAPER_TABLES, generation_cost(store)]
    if config.preset or config.report.cost:  # they read the store, not the records alone
        further += [generation_quality(store), method_cost(store)]
        figures.append(cost_figure(store))
    report = build_report(study, config.used_sampling, published, further, figures)
    write_report(report, folder, config.report.figures, config.report.columns)
    if config.trec:
        export_trec(study, store, folder / "trec", note)
    for table in (table for table in report.all_tables() if not table.detail):
        screen(190).print(rich_table(table), end="\n\n")
    for line in report.notes:
        note(line)
    if config.tracking.enabled:
        note(_log(config, study, report, folder))
    note(f"report: {folder / 'index.html'}")
    return report


def _log(config: ReportConfig, study: Study, report: Report, folder: Path) -> str:
    """Log the report; returns the line that says where."""
    from desa_ray.tracking.failures import OFF
    from desa_ray.tracking.reports import log_report
    from desa_ray.tracking.runs import Tracker

    uri = tracking_uri(config.tracking)
    home().mkdir(parents=True, exist_ok=True)
    tracker = Tracker(uri, home() / "mlartifacts", otherwise=OFF)
    noted = {**last_runs(home())} if last_runs(home()).get("uri") == uri else {"uri": uri}
    write_json(home() / LAST, noted)
    tags = {
        "sha256.records": sha256_json([row.values["records_sha256"] for row in report.cells.rows])
    }
    fusions = {cell.records.sort("draw")["fusion_key"][0] for cell in study.cells}
    experiment = config.tracking.experiment
    experiment_id, run_id = log_report(tracker, experiment, folder, report.facts, tags, fusions)
    write_json(home() / LAST, {**noted, "report": [experiment_id, run_id]})
    if uri.startswith(("http://", "https://")):
        return f"MLflow: {redacted(uri).rstrip('/')}/{report_route(experiment_id, run_id)}"
    return f"MLflow run {run_id}: `desa ui` serves it and prints the address of this report"


def tell_story(config: ReportConfig, folder: Path) -> str:
    """Write `story.md` about one query and show it."""
    story = config.story
    text = told(
        gather(config),
        Store(store_root(config.store)),
        str(config.query),
        method=story.method,
        dataset=story.dataset,
        draw=story.draw,
        beside=story.beside,
    )
    (folder / "story.md").write_text(text, encoding="utf-8")
    screen(160).print(Markdown(text, hyperlinks=False))
    note(f"story: {folder / 'story.md'}")
    return text


def _task(config: DictConfig) -> None:
    plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    refuse_credentials(addresses(plain))
    for name in ("fusion", "sparse", "generator", "evaluation", PARITY):
        plain.pop(name, None)  # of the group parity, for runs
    options = checked(ReportConfig, plain)
    (make_report if options.query is None else tell_story)(options, output_folder())


def main(arguments: list[str]) -> int:
    """`desa report [runs=...|sweep=...|records=...] [query=ID]`."""
    return hydra_app("report", "report", plainly_named(arguments), _task, kind=ReportConfig)


def plainly_named(arguments: Sequence[str]) -> list[str]:
    """Arguments with `report.seed=` and the like as `seed=`: both name the same setting."""
    return [WITH_GROUP.sub(r"\1\2", argument) for argument in arguments]
