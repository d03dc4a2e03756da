"""How deep must each list be read? Windows for your own TREC runs: `desa depth a.trec b.trec`."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import polars as pl

from desa_ray.core.evaluation import check_grades, parse_measures
from desa_ray.core.fusion_constants import checked_kappa, checked_weights
from desa_ray.data.trec import read_qrels, read_run
from desa_ray.data.trec_writing import write_bytes
from desa_ray.errors import DesaError
from desa_ray.report.depth_advice import (
    Advice,
    Case,
    advise,
    numbered_queries,
    queries_frame,
    windows_figure,
    windows_table,
)
from desa_ray.report.page import page
from desa_ray.report.render import rich_table
from desa_ray.report.spreadsheet import write_csv
from desa_ray.report.table import Column, Row, Table
from desa_ray.terminal import screen
from desa_ray.writing import check_place, writing

from .cli.arguments import ArgumentParser, whole_number
from .cli.console import note
from .cli.given_runs import MEASURES, add_measures, run_names, several


def main(argv: list[str]) -> int:
    """Prints one table per kappa, weights and K; writes them where `--out` says; returns 0."""
    arguments = _parser().parse_args(argv)
    check_place(arguments.out)
    cases = _cases(arguments.k, arguments.kappa, arguments.weights, len(arguments.runs))
    shards = [_count(text, "--shards") for text in arguments.shards]
    parse_measures(arguments.measures)
    if arguments.qrels is None and arguments.measures != list(MEASURES):
        what, hint = "needs judgments", "give them: --qrels FILE"
        raise DesaError(what, where="--measures", hint=hint)
    names = run_names(arguments.runs)
    runs = dict(zip(names, (read_run(path, note) for path in arguments.runs), strict=True))
    qrels = None
    if arguments.qrels is not None:
        qrels = read_qrels(arguments.qrels)
        check_grades(arguments.measures, qrels, str(arguments.qrels))
        _check_judged(qrels, runs)
    queries = numbered_queries(runs)
    if not any(ranked.size for _, lists in queries.values() for ranked in lists):
        raise DesaError("no run holds a document", where="runs", hint="give runs with rankings")
    found = []
    for case in cases:
        advice = advise(queries, case, ends=arguments.complete)
        found.append((advice, windows_table(advice, qrels, arguments.measures, shards)))
        screen(160).print(rich_table(found[-1][1]))
    if arguments.out is not None:
        _write(arguments.out, names, found)
    return 0


def _cases(
    ks: Sequence[str], kappas: Sequence[str], weights: Sequence[Sequence[str]] | None, runs: int
) -> list[Case]:
    """Every combination; raises DesaError for what is out of range."""
    exact: list[tuple[Fraction, ...]] = []
    for given in weights or [["1"] * runs]:
        exact.append(tuple(checked_weights(given, runs, of="run", where="--weights")))
    numbers = [_count(text) for text in ks]
    kept = [checked_kappa(text, "--kappa") for text in kappas]
    return [Case(kappa, own, k) for kappa, own, k in product(kept, exact, numbers)]


def _count(text: str, option: str = "--k") -> int:
    return whole_number(text, option, "10,20", 10_000)


def _check_judged(qrels: pl.DataFrame, runs: dict[str, dict[str, list[str]]]) -> None:
    judged = set(qrels.filter(pl.col("grade") > 0)["query_id"])
    if judged.isdisjoint(set().union(*runs.values())):
        what, hint = "judges none of the runs' queries", "use the qrels of these runs"
        raise DesaError(what, where="--qrels", hint=hint)


def _write(folder: Path, names: Sequence[str], found: Sequence[tuple[Advice, Table]]) -> None:
    frames = []
    for advice, table in found:
        case = pl.lit(str(advice.case)).alias("case")
        frames.append(table.frame().select(case, pl.all()))
    figures = [windows_figure(advice) for advice, _ in found]
    columns = (Column("run", "run"), Column("place", "place", "{:d}"))
    own = Table(
        "runs", "Runs", columns, [Row({"run": n, "place": p}) for p, n in enumerate(names, 1)]
    )
    facts = {"runs": ", ".join(names), "queries": str(len(found[0][0].queries))}
    tables = [(table, None) for _, table in found]
    text = page("How deep must each list be read?", facts, [], tables, figures, own)
    with writing(folder):
        write_csv(pl.concat(frames, how="diagonal_relaxed"), folder / "windows.csv")
        queries = [queries_frame(advice) for advice, _ in found]
        write_csv(pl.concat(queries, how="diagonal"), folder / "queries.csv")
        write_bytes(folder / "depth.html", text.encode())
        for number, figure in enumerate(figures):
            drawn = figure.svg.render(standalone=True)
            write_bytes(folder / f"windows_{number}.svg", drawn.encode())
    note(f"wrote windows, queries, figures and depth.html to {folder}")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="desa depth", description=__doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="TREC runs, plain or .gz, one per list"
    )
    parser.add_argument(
        "--k",
        type=several,
        default=["10", "20"],
        metavar="K,K",
        help="how many documents people see (10,20)",
    )
    parser.add_argument(
        "--kappa",
        type=several,
        default=["60"],
        metavar="C,C",
        help="constants of reciprocal rank fusion, above -1 (60)",
    )
    parser.add_argument(
        "--weights",
        type=several,
        action="append",
        metavar="W,W",
        help="one per run; repeat it for further sets of weights (1 each)",
    )
    parser.add_argument(
        "--complete",
        action="store_true",
        help="the runs are complete lists: nothing follows their last documents",
    )
    parser.add_argument(
        "--shards",
        type=several,
        default=[],
        metavar="N,N",
        help="numbers of shards: how deep each must be asked",
    )
    parser.add_argument("--qrels", type=Path, metavar="Q", help="judgments: what a cut costs")
    add_measures(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for tables, figures and the page"
    )
    return parser
