"""`desa fuse --rule`: runs with scores, fused by any rule of method.md section 6.12."""

import argparse
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import polars as pl

from desa_ray.config import DEFAULT_RULE
from desa_ray.core.identifiers import numbered
from desa_ray.core.rules.certify import certify, refusal
from desa_ray.core.rules.fuse import fuse, shown_score
from desa_ray.core.rules.kinds import ALIASES, KINDS
from desa_ray.core.rules.registry import MEANS, Rule, ScoredList
from desa_ray.data.trec import read_run, read_scored_run
from desa_ray.errors import DesaError
from desa_ray.rules import rule_from
from desa_ray.terminal import PlainTable, screen

from .arguments import ArgumentParser
from .console import note
from .given_runs import several

KAPPA = "60"  # unless one is given
ScoredRun = Mapping[str, Sequence[tuple[str, float]]]


def add_rule_options(parser: ArgumentParser) -> None:
    """Options of every rule but plain reciprocal ranks."""
    parser.add_argument(
        "--rule", default=DEFAULT_RULE, help=f"one of {', '.join(sorted(KINDS))} (rrf)"
    )
    parser.add_argument("--normaliser", help="of scores: none, theoretical, bounds, min_max, ...")
    parser.add_argument("--mean", help=f"of rule opensearch: {', '.join(MEANS)}")
    parser.add_argument(
        "--least", type=several, metavar="S,S", help="the least possible score of every run"
    )
    parser.add_argument(
        "--most", type=several, metavar="S,S", help="the largest possible score of every run"
    )
    parser.add_argument(
        "--full-pass",
        action="store_true",
        help="treat statistics of whole lists as known in advance, so that there are depths",
    )


def rule_given(arguments: argparse.Namespace) -> Rule | None:
    """The rule; None for plain reciprocal ranks.

    Raises:
        DesaError: what the rule does not take.
    """
    settings = {name: getattr(arguments, name) for name in ("normaliser", "mean", "least", "most")}
    named = {name: value for name, value in settings.items() if value is not None}
    if ALIASES.get(arguments.rule, arguments.rule) == DEFAULT_RULE:
        if named or arguments.full_pass:
            what = f"{arguments.rule} uses ranks only"
            raise DesaError(what, where="--rule", hint="leave out the options for scores")
        return None
    kind = KINDS.get(arguments.rule)
    if kind is not None and not kind.wants_kappa and arguments.kappa is not None:
        what, hint = f"rule {arguments.rule} has no kappa", "leave it out"
        raise DesaError(what, where="--kappa", hint=hint)
    given = {"name": arguments.rule, "kappa": arguments.kappa or KAPPA, **named}
    if arguments.weights is not None:
        given["weights"] = arguments.weights
    return rule_from(given, len(arguments.runs))


def fuse_by_rule(
    rule: Rule, names: Sequence[str], arguments: argparse.Namespace
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Every query's first `--depth` documents (`query_id`, `docs`, `scores`), and one row of depths
    a query.

    Columns of the latter: `query_id`, `fused`, and where the rule has a certificate `sorted_RUN`
    and `random_RUN`: items to read of each run by sorted access alone, and with look-ups.
    """
    if arguments.k < 1:
        raise DesaError(f"--k is {arguments.k}", where="--k", hint="use 1 or more with --rule")
    runs = [_read(path, rule) for path in arguments.runs]
    refused = refusal(rule, arguments.full_pass)
    rankings, rows = [], []
    for query in sorted(set().union(*runs)):
        given = [run.get(query, []) for run in runs]
        ids, lists = _numbered(given, [f"{name}, query {query}" for name in names])
        row: dict[str, object] = {"query_id": query, "fused": len(ids)}
        try:
            top = fuse(rule, lists, arguments.depth)
            if refused is None:
                proof = certify(rule, lists, arguments.k, frozen=arguments.full_pass)
                row |= _depths("sorted", names, proof.sorted_depths)
                row |= _depths("random", names, proof.random_depths)
        except DesaError as error:
            where = f"query {query}, {error.where}"
            raise DesaError(error.what, where=where, hint=error.hint) from None
        scores = [shown_score(rule, score) for _, score in top]
        rankings.append((query, [ids[number] for number, _ in top], scores))
        rows.append(row)
    if refused is not None:
        note(f"no depths: {refused}")
    columns = pl.Schema(
        {"query_id": pl.String, "docs": pl.List(pl.String), "scores": pl.List(pl.Float64)}
    )
    return pl.DataFrame(rankings, columns, orient="row"), pl.DataFrame(rows)


def print_rule_summary(rule: Rule, names: Sequence[str], depths: pl.DataFrame, k: int) -> None:
    """Mean depths by run."""
    table = PlainTable(title=f"{depths.height} queries, {rule.name}, top {k}")
    for heading in ("run", "weight", "mean depth, sorted access", "with look-ups"):
        table.add_column(heading, justify="left" if heading == "run" else "right", overflow="fold")
    for name, weight in zip(names, rule.weights, strict=True):
        means = [
            f"{depths[column].mean():.1f}" if column in depths.columns else "-"
            for column in (f"sorted_{name}", f"random_{name}")
        ]
        table.add_row(name, str(weight), *means)
    screen().print(table)


def _read(path: Path, rule: Rule) -> ScoredRun:
    if rule.by_scores:
        return read_scored_run(path, note)
    found: dict[str, list[tuple[str, float]]] = {}
    for query, own in read_run(path, note).items():
        found[query] = [(document, 0.0) for document in own]
    return found


def _numbered(
    given: Sequence[Sequence[tuple[str, float]]], names: Sequence[str]
) -> tuple[list[str], list[ScoredList]]:
    plain = []
    for own in given:
        plain.append([document for document, _ in own])
    ids, arrays = numbered(plain, names)
    lists = []
    for own, numbers in zip(given, arrays, strict=True):
        lists.append(ScoredList(numbers.tolist(), [Fraction(score) for _, score in own]))
    return ids, lists


def _depths(kind: str, names: Sequence[str], depths: Sequence[int]) -> dict[str, int]:
    return {f"{kind}_{name}": own for name, own in zip(names, depths, strict=True)}
