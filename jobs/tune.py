"""Which fusion is best, and more than by chance? `desa tune a.trec b.trec --qrels Q`.

Or over a sweep's stored rankings: `desa tune --sweep FOLDER --method desa`.
"""

import argparse
import json
import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from desa_ray.config import DEFAULT_RULE, StoreConfig
from desa_ray.core.fusion_constants import checked_weights
from desa_ray.core.identifiers import numbered, rational
from desa_ray.core.rules.kinds import ALIASES, KINDS, RuleKind
from desa_ray.core.rules.normalise import ScoreBounds
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.core.tuning import (
    AllVariants,
    by_halves,
    first_half,
    halves_verdict,
    together,
    together_verdict,
)
from desa_ray.core.variants import FusionVariant, Judged, query_values
from desa_ray.data.trec import read_qrels, read_scored_run
from desa_ray.data.trec_writing import write_bytes
from desa_ray.errors import DesaError, choices, listed
from desa_ray.experiment.places import store_root
from desa_ray.report.render import rich_table
from desa_ray.report.spreadsheet import write_csv
from desa_ray.report.stored_lists import stored_queries
from desa_ray.report.table import Column, Row, Table, Value
from desa_ray.store.artifacts import Store
from desa_ray.terminal import screen
from desa_ray.writing import check_place, writing

from .cli.arguments import ArgumentParser, whole_number
from .cli.console import note
from .cli.given_runs import check_resamples, run_names, several

RULES = tuple(
    name for name, kind in sorted(KINDS.items()) if not kind.takes_mean and name not in ALIASES
)
MOST = 100_000  # variants
MOST_DOCUMENTS = 10**9
SHOWN = 12


def main(argv: list[str]) -> int:
    """Prints both answers and the best variants; writes all where `--out` says; returns 0."""
    arguments = _parser().parse_args(argv)
    check_place(arguments.out)
    check_resamples(arguments)
    measure, cutoff = _measure(arguments.measure)
    if bool(arguments.runs) == bool(arguments.sweep):
        what = "give runs with --qrels, or --sweep"
        raise DesaError(what, where="runs", hint="desa tune a.trec b.trec --qrels q.txt")
    rules = arguments.rules
    if unknown := [name for name in rules if name not in RULES]:
        raise DesaError(
            f"no rule {unknown[0]!r}", where="--rules", hint=choices(unknown[0], RULES, 20)
        )
    if arguments.normalisers and not any(_takes_normaliser(KINDS[rule]) for rule in rules):
        what, hint = "none of the rules takes one", "leave it out, or add a rule such as convex"
        raise DesaError(what, where="--normalisers", hint=hint)
    least = [rational(text, "--least") for text in arguments.least or ()]
    if arguments.sweep:
        names, queries, kinds = stored_queries(
            arguments.sweep, arguments.method, arguments.dataset, Store(_root(arguments.store))
        )
        scored = all(own.scores[0] for draws in queries.values() for own in draws)
        if not scored and any(KINDS[rule].by_scores for rule in rules):
            what, hint = "the sweep stored no scores", "run it with fusion=convex too"
            raise DesaError(what, where=str(arguments.sweep), hint=hint)
        least = least or [Fraction(-1 if kind == "dense" else 0) for kind in kinds]
    else:
        names, queries = _given(arguments.runs, arguments.qrels)
    if least and len(least) != len(names):
        what = f"{len(least)} least scores for {len(names)} lists"
        raise DesaError(what, where="--least", hint="give one per list")
    bounds = [ScoreBounds(one) for one in least] or [ScoreBounds()] * len(names)
    variants = _variants(arguments, len(names), bounds)
    rows: list[np.ndarray] = []
    for draws in queries.values():
        found = [query_values(own, variants, bounds, measure, cutoff) for own in draws]
        rows.append(np.mean(found, axis=0))
    values = np.array(rows)
    if len(values) < 4:
        what = f"{len(values)} judged queries are too few to select and test"
        raise DesaError(what, where="queries", hint="give at least four judged queries")
    sampling = Sampling(arguments.resamples, arguments.seed)
    _answer(arguments, list(queries), variants, values, sampling)
    return 0


def _answer(
    arguments: argparse.Namespace,
    queries: Sequence[str],
    variants: Sequence[FusionVariant],
    values: np.ndarray,
    sampling: Sampling,
) -> None:
    names = [str(variant) for variant in variants]
    selects = first_half(queries)
    halves = by_halves(values, selects, sampling)
    found = together(values, sampling)
    measure, out = arguments.measure, arguments.out
    table = _table(names, values, found, measure)
    shown = Table(table.name, table.title, table.columns, table.rows[:SHOWN], table.notes)
    screen(160).print(rich_table(shown))
    verdicts = {
        "halves": halves_verdict(halves, names),
        "together": together_verdict(found, names),
    }
    note(f"one selection, one test: {verdicts['halves']}")
    note(f"all {len(names)} together: {verdicts['together']}")
    if out is None:
        return
    summary = {
        "measure": measure,
        "default": names[0],
        "variants": len(names),
        "names": names,
        "queries": len(queries),
        "resamples": sampling.resamples,
        "seed": sampling.seed,
        "verdicts": verdicts,
        "selected": names[halves.selected],
        "selected_on": [query for query, own in zip(queries, selects, strict=True) if own],
        "winners": [names[place] for place in found.winners],
        "needed_together": found.needed,
        "needed_halves": halves.needed,
    }
    frame = pl.DataFrame({"query_id": queries}).hstack(
        pl.DataFrame(values, schema=[f"variant_{n}" for n in range(len(names))])
    )
    with writing(out):
        write_csv(table.frame(), out / "variants.csv")
        frame.write_parquet(out / "values.parquet")
        write_bytes(out / "tune.json", (json.dumps(summary, indent=2) + "\n").encode())
    note(f"wrote variants.csv, values.parquet and tune.json to {out}")


def _table(names: Sequence[str], values: np.ndarray, found: AllVariants, measure: str) -> Table:
    means = values.mean(0)
    rows: list[Row] = []
    for place in sorted(range(len(names)), key=lambda n: (n != 0, -means[n], n)):
        own: dict[str, Value] = {"variant": names[place], "mean": float(means[place])}
        if place:
            own |= {"effect": float(found.effects[place]), "p": float(found.adjusted[place])}
            own["detectable"] = float(found.detectable[place])
        rows.append(Row(own, {"variant": place}))
    columns = (
        Column("variant", "variant"),
        Column("mean", measure, "{:.4f}"),
        Column("effect", "effect", "{:+.4f}", help="mean difference to the default, the first row"),
        Column("p", "p (max-T)", "{:.4f}", help="adjusted for all variants"),
        Column("detectable", "detectable", "{:.4f}", help="found with probability 0.8"),
    )
    title = f"{len(names)} variants, {len(values)} queries"
    return Table("variants", title, columns, rows)


def _root(given: str | None) -> str:
    return store_root(StoreConfig(root=given))


def _measure(text: str) -> tuple[str, int]:
    if not (found := re.fullmatch(r"(nDCG|R)@([1-9][0-9]{0,3})", text)):
        what = f"{text!r} is not nDCG@K or R@K"
        raise DesaError(what, where="--measure", hint="such as nDCG@10")
    return found[1], int(found[2])


def _takes_normaliser(kind: RuleKind) -> bool:
    return kind.by_scores and not kind.fixed_normaliser


def _variants(
    arguments: argparse.Namespace, lists: int, bounds: Sequence[ScoreBounds]
) -> list[FusionVariant]:
    """Every combination that is a rule, the default first: the first value of everything."""
    given = arguments.weights or [["1"] * lists]
    weights: list[tuple[Fraction, ...]] = []
    for texts in given:
        weights.append(tuple(checked_weights(texts, lists, of="list", where="--weights")))
    kappas = [rational(text, "--kappa") for text in arguments.kappa]
    normalisers = arguments.normalisers
    depths = [_depth(text) for text in arguments.depth]
    found: list[FusionVariant] = []
    for rule in arguments.rules:
        kind = KINDS[rule]
        own_kappas = kappas if kind.wants_kappa else kappas[:1]
        own_normalisers = (normalisers if _takes_normaliser(kind) else None) or [None]
        for kappa, own, normaliser, depth in product(own_kappas, weights, own_normalisers, depths):
            found.append(FusionVariant(rule, kind.fitted(own), kappa, normaliser, depth))
    if len(found) > MOST:
        raise DesaError(f"{len(found)} variants", where="variants", hint=f"at most {MOST}")
    for variant in found:
        variant.made(bounds)  # what no rule takes is refused before anything is computed
    return list(dict.fromkeys(found))


def _depth(text: str) -> int | None:
    return None if text == "all" else whole_number(text, "--depth", "all,1000,100", MOST_DOCUMENTS)


def _given(
    paths: Sequence[Path], qrels_path: Path | None
) -> tuple[list[str], dict[str, list[Judged]]]:
    """Runs and judgments as queries; those without a positive judgment are left out."""
    if qrels_path is None:
        raise DesaError("no judgments", where="--qrels", hint="give a file of judgments")
    runs = [read_scored_run(path, note) for path in paths]
    qrels = read_qrels(qrels_path).filter(pl.col("grade") > 0)
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in qrels.select("query_id", "doc_id", "grade").iter_rows():
        grades.setdefault(query, {})[document] = grade
    if lacking := sorted(set(grades) - set().union(*runs)):
        note(f"{len(lacking)} judged queries are in no run and score 0: {listed(lacking, 5)}")
    found: dict[str, list[Judged]] = {}
    for query in sorted(grades):
        lists = [run.get(query, []) for run in runs]
        ids, numbers = numbered([[*dict(own)] for own in lists])
        number = {document: n for n, document in enumerate(ids)}
        own = {
            number.get(document, -1 - place): grade
            for place, (document, grade) in enumerate(sorted(grades[query].items()))
        }
        scores = [[*map(Fraction, dict(own).values())] for own in lists]
        found[query] = [Judged(numbers, scores, own)]
    if not found:
        raise DesaError("no query has a positive judgment", where=str(qrels_path))
    return run_names(paths), found


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="desa tune", description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="TREC runs, one per list")
    parser.add_argument("--qrels", type=Path, metavar="Q", help="judgments of the runs' queries")
    parser.add_argument("--sweep", type=Path, metavar="DIR", help="a sweep's or a cell's folder")
    parser.add_argument("--method", default="desa", help="the method of the sweep (desa)")
    parser.add_argument("--dataset", help="the data set of the sweep, if it has several")
    parser.add_argument("--store", metavar="DIR", help="the sweep's store (store.root)")
    parser.add_argument(
        "--rules",
        type=several,
        default=[DEFAULT_RULE],
        metavar="R,R",
        help=f"of {', '.join(RULES)} (rrf)",
    )
    parser.add_argument(
        "--kappa", type=several, default=["60"], metavar="C,C", help="constants of rules (60)"
    )
    parser.add_argument(
        "--weights",
        type=several,
        action="append",
        metavar="W,W",
        help="one per list; repeat it for further sets of weights (1 each)",
    )
    parser.add_argument(
        "--normalisers", type=several, metavar="N,N", help="of scores: theoretical, min_max, ..."
    )
    parser.add_argument(
        "--depth",
        type=several,
        default=["all"],
        metavar="L,L",
        help="how many documents of each list are fused: all, 1000, 100 (all)",
    )
    parser.add_argument(
        "--least", type=several, metavar="S,S", help="the least possible score of every list"
    )
    parser.add_argument("--measure", default="nDCG@10", metavar="M", help="nDCG@K or R@K (nDCG@10)")
    parser.add_argument("--resamples", type=int, default=10_000, help="sign flips (10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the sign flips (0)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for tables and values")
    return parser
