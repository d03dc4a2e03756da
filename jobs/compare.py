"""Compare TREC runs with the paper's statistics: `desa compare a.trec b.trec --qrels Q`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from desa_ray.core.evaluation import check_grades, evaluate, parse_measures
from desa_ray.core.statistics.inference import paired_outcomes
from desa_ray.core.statistics.resampling import RESAMPLES
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.data.trec import read_qrels, read_run
from desa_ray.errors import DesaError
from desa_ray.lines import shown
from desa_ray.report.effects import EFFECT_COLUMNS, effect_rows, too_few
from desa_ray.report.names import Outcome
from desa_ray.report.render import rich_table
from desa_ray.report.spreadsheet import write_csv
from desa_ray.report.table import Column, Row, Table, Value
from desa_ray.terminal import screen
from desa_ray.writing import check_place, writing

from .cli.arguments import ArgumentParser
from .cli.console import note
from .cli.given_runs import add_measures, check_resamples, run_names


def main(argv: list[str]) -> int:
    """Prints the runs' means and the first run's paired tests against each other one; returns 0."""
    arguments = _parser().parse_args(argv)
    check_place(arguments.out)
    check_resamples(arguments)
    parse_measures(arguments.measures)
    runs = dict(
        zip(
            run_names(arguments.runs),
            (read_run(path, note) for path in arguments.runs),
            strict=True,
        )
    )
    qrels = read_qrels(arguments.qrels)
    check_grades(arguments.measures, qrels, str(arguments.qrels))
    values = run_values(runs, qrels, arguments.measures)
    tables = compare_tables(values, arguments.measures, arguments.resamples, arguments.seed)
    for table in tables:
        screen(160).print(rich_table(table))
    if arguments.out is not None:
        _write(arguments.out, tables, values)
    return 0


def run_values(
    runs: Mapping[str, Mapping[str, Sequence[str]]], qrels: pl.DataFrame, measures: Sequence[str]
) -> dict[str, pl.DataFrame]:
    """Run -> `query_id` and one column per measure, for every query with a positive judgment, in
    order of the ids.

    A judged query that a run lacks scores the measure's default, 0, in it.
    """
    judged = qrels.filter(pl.col("grade") > 0)["query_id"].unique().sort().to_list()
    if not judged:
        raise DesaError("no query has a positive judgment", where="--qrels")
    documents = set(qrels["doc_id"])
    found = {}
    for name, run in runs.items():
        if not any(query in run for query in judged):
            raise DesaError(
                "has none of the judged queries",
                where=f"run {name}",
                hint="use the qrels of this run",
            )
        retrieved = set().union(*run.values())
        if documents.isdisjoint(retrieved):
            examples = f"{shown(min(retrieved))} there, {shown(min(documents))} in the judgments"
            what = f"not one of its {len(retrieved)} documents is judged for any query: {examples}"
            raise DesaError(what, where=f"run {name}", hint="use the qrels of the run's collection")
        if lacking := sum(query not in run for query in judged):
            note(f"{name} lacks {lacking} of {len(judged)} judged queries: they score 0")
        if further := sum(query not in set(judged) for query in run):
            note(f"{name} has {further} queries without a positive judgment: left out")
        values = evaluate(qrels, {query: run.get(query, []) for query in judged}, measures)
        found[name] = values.pivot("measure", index="query_id", values="value").sort("query_id")
    return found


def compare_tables(
    values: Mapping[str, pl.DataFrame],
    measures: Sequence[str],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Table]:
    """The runs' means, and the first run against every other one: one Holm family of all measures
    per pair.
    """
    first, *others = values
    queries = values[first].height
    rows = []
    for run, own in values.items():
        means = {m: _mean(own[m]) for m in measures}
        rows.append(Row({"run": run, **means}, {"run": run}))
    columns = (Column("run", "run"), *(Column(m, m, "{:.4f}", "high") for m in measures))
    tables = [Table("runs", f"Means over {queries} judged queries", columns, rows)]
    effects = []
    for other in others:
        changes = np.stack(
            [(values[first][m] - values[other][m]).to_numpy() for m in measures], axis=1
        )
        found = paired_outcomes([changes], Sampling(resamples, seed))
        name: dict[str, Value] = {"other": other}
        outcomes = [Outcome(m, m, "{:.5f}", higher=True) for m in measures]
        effects += effect_rows(
            [(name, {"other": other}, o, p) for o, p in zip(outcomes, found, strict=True)],
            resamples,
        )
    if effects:
        few = too_few(len(measures), resamples)
        columns = (
            Column("other", f"{first} against"),
            Column("outcome", "measure"),
            *EFFECT_COLUMNS,
        )
        notes = [f"{Sampling(resamples, seed)}; Holm over the measures of each pair", *few]
        tables.append(Table("effects", f"{first}: paired tests", columns, effects, notes))
    return tables


def _mean(values: pl.Series) -> float:
    return float(values.to_numpy().mean())


def _write(folder: Path, tables: Sequence[Table], values: Mapping[str, pl.DataFrame]) -> None:
    with writing(folder):
        for table in tables:
            write_csv(table.frame(), folder / f"{table.name}.csv")
            table.frame().write_parquet(folder / f"{table.name}.parquet")
        queries = pl.concat([own.with_columns(run=pl.lit(name)) for name, own in values.items()])
        write_csv(queries, folder / "queries.csv")
    note(f"wrote runs, effects and queries to {folder}")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="desa compare", description=__doc__)
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="TREC runs, plain or .gz; the first is tested",
    )
    parser.add_argument(
        "--qrels",
        required=True,
        type=Path,
        metavar="Q",
        help="judgments, TREC or BEIR (.tsv with its header), plain or .gz",
    )
    add_measures(parser)
    parser.add_argument(
        "--resamples",
        type=int,
        default=RESAMPLES,
        help=f"bootstrap samples and flips ({RESAMPLES})",
    )
    parser.add_argument("--seed", type=int, default=0, help="for all resamples (0)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for runs.*, effects.* and queries.csv"
    )
    return parser
