"""Fuse TREC runs exactly and report how deep each must be read: `desa fuse a.trec b.trec`."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import polars as pl

from desa_ray.core.fusion.depth import replay
from desa_ray.core.fusion.rrf import fuse_order
from desa_ray.core.fusion_constants import checked_kappa, checked_weights
from desa_ray.core.identifiers import numbered
from desa_ray.data.trec import read_run
from desa_ray.data.trec_writing import write_run
from desa_ray.output import print_text
from desa_ray.report.spreadsheet import write_csv
from desa_ray.terminal import PlainTable, screen
from desa_ray.writing import check_place, writing

from .cli.arguments import ArgumentParser, check_least
from .cli.console import note
from .cli.fuse_rules import KAPPA, add_rule_options, fuse_by_rule, print_rule_summary, rule_given
from .cli.given_runs import run_names, several

Run = Mapping[str, Sequence[str]]


def main(argv: list[str]) -> int:
    """Writes DIR/fused.trec and DIR/depths.{parquet,csv}, prints a summary, returns 0."""
    arguments = _parser().parse_args(argv)
    check_least("--k", arguments.k, 0)
    check_least("--depth", arguments.depth, 1)
    check_place(arguments.out)
    rule = rule_given(arguments)
    names = run_names(arguments.runs)
    if rule is not None:
        rankings, depths = fuse_by_rule(rule, names, arguments)
        _write(arguments.out, rankings.select("query_id", "docs"), depths, rankings)
        print_rule_summary(rule, names, depths, arguments.k)
        print_text(f"wrote fused.trec, scores.parquet and depths.* to {arguments.out}")
        return 0
    runs = [read_run(path, note) for path in arguments.runs]
    given = arguments.weights or ["1"] * len(runs)
    weights = checked_weights(given, len(runs), of="run", where="--weights")
    kappa = checked_kappa(arguments.kappa or KAPPA, "--kappa")
    rankings, depths = fuse_runs(
        dict(zip(names, runs, strict=True)), weights, kappa, arguments.k, arguments.depth
    )
    _write(arguments.out, rankings, depths)
    _print_summary(names, weights, depths, kappa, arguments.k)
    print_text(f"wrote fused.trec, depths.parquet and depths.csv to {arguments.out}")
    return 0


def _write(
    folder: Path,
    rankings: pl.DataFrame | Mapping[str, Sequence[str]],
    depths: pl.DataFrame,
    scores: pl.DataFrame | None = None,
) -> None:
    with writing(folder):
        write_run(folder / "fused.trec", rankings, tag="desa-fuse")
        depths.write_parquet(folder / "depths.parquet")
        write_csv(depths, folder / "depths.csv")
        if scores is not None:
            scores.write_parquet(folder / "scores.parquet")


def fuse_runs(
    runs: Mapping[str, Run], weights: Sequence[Fraction], kappa: Fraction, k: int, depth: int
) -> tuple[dict[str, list[str]], pl.DataFrame]:
    """The first `depth` documents of every query's exact fused order, and one row of depths per
    query.

    A query that a run lacks has an empty channel there. Columns: `query_id`, `fused` (documents in
    any run), `steps`, and for each run `depth_RUN` (items to read for the certain ordered top k),
    `length_RUN`, `exhausted_RUN`.
    """
    rankings: dict[str, list[str]] = {}
    rows = []
    for query in sorted(set().union(*runs.values())):
        ids, channels = numbered(
            [run.get(query, []) for run in runs.values()], [f"{n}, query {query}" for n in runs]
        )
        result = replay(channels, weights, kappa, k)
        rankings[query] = [ids[number] for number in fuse_order(channels, weights, kappa, depth)]
        row: dict[str, object] = {"query_id": query, "fused": len(ids), "steps": result.steps}
        for name, channel, read, at_end in zip(
            runs, channels, result.depths, result.exhausted, strict=True
        ):
            row |= {
                f"depth_{name}": read,
                f"length_{name}": channel.size,
                f"exhausted_{name}": at_end,
            }
        rows.append(row)
    return rankings, pl.DataFrame(rows)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="desa fuse", description=__doc__)
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="TREC runs, plain or .gz, or run.parquet of cells, in reading order",
    )
    parser.add_argument(
        "--kappa", help=f"the constant of reciprocal rank fusion, above -1 ({KAPPA})"
    )
    parser.add_argument(
        "--k", default=20, type=int, help="how many documents must be certified (20)"
    )
    parser.add_argument(
        "--weights",
        type=several,
        metavar="W,W",
        help="one per run, above 0, separated by commas, such as 1/4,3/4 (1 each)",
    )
    parser.add_argument(
        "--depth", default=1000, type=int, help="documents per query in the fused run (1000)"
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="folder for fused.trec and depths.*"
    )
    add_rule_options(parser)
    return parser


def _print_summary(
    names: Sequence[str],
    weights: Sequence[Fraction],
    depths: pl.DataFrame,
    kappa: Fraction,
    k: int,
) -> None:
    table = PlainTable(title=f"{depths.height} queries, kappa {kappa}, ordered top {k} certain")
    for heading in (
        "run",
        "weight",
        "mean depth",
        "mean length",
        "read to the end",
        "queries it lacks",
    ):
        table.add_column(heading, justify="left" if heading == "run" else "right", overflow="fold")
    for name, weight in zip(names, weights, strict=True):
        read, length, at_end = (
            depths[f"depth_{name}"],
            depths[f"length_{name}"],
            depths[f"exhausted_{name}"],
        )
        means = f"{read.mean():.1f}", f"{length.mean():.1f}"
        table.add_row(name, str(weight), *means, f"{at_end.mean():.1%}", str((length == 0).sum()))
    screen().print(table)
