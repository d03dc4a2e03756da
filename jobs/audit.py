"""Is a search engine's fused answer right? `desa audit answer.json --legs bm25.json dense.json`."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from desa_ray.core.audit import findings
from desa_ray.core.audit.evidence import Evidence, evidence_of
from desa_ray.core.audit.explain import Explanation, explain
from desa_ray.core.audit.findings import AuditFinding
from desa_ray.core.audit.impossible import Impossible, by_dominance, by_rule
from desa_ray.core.rules.registry import Rule
from desa_ray.data.answers import FORMATS, NEUTRAL, RankedAnswer, read_answer
from desa_ray.data.trec import read_qrels
from desa_ray.errors import DesaError, choices
from desa_ray.output import print_text
from desa_ray.rules import rule_from

from .cli.arguments import ArgumentParser
from .cli.given_runs import several


def main(argv: list[str]) -> int:
    """Prints which rule explains the answer, or what no rule allows, and findings by name.

    Returns 0 where nothing is wrong, else 1.
    """
    arguments = _parser().parse_args(argv)
    rule = _declared(arguments)
    answer = _read(arguments.answer, arguments)
    legs = [_read(path, arguments) for path in arguments.legs]
    _check_ascending(arguments.ascending, [leg.name for leg in legs])
    known = None if arguments.qrels is None else _judged(arguments)
    evidence = evidence_of(
        (answer.ids, answer.scores),
        [(leg.name, leg.ids, _upward(leg)) for leg in legs],
        arguments.query or "",
    )
    explained, impossible = _verdict(evidence, rule, arguments)
    found = [
        *findings.repeats(answer.ids),
        *findings.of_lists(evidence, arguments.query),
        *_compared(answer, arguments),
    ]
    if explained is not None:
        print_text(f"explained by: {explained}")
        found += findings.of_rule(evidence, explained)
    elif rule is None:
        print_text("no known rule explains the answer")
        found += findings.shard_ranks(evidence)
    if impossible is not None:
        found.append(findings.of_impossible(evidence, impossible))
    elif rule is not None:
        print_text(f"every rank is possible under {rule.name}")
    if known is not None:
        found += findings.judged(evidence, known)
    for own in found:
        print_text(f"{'WRONG' if own.wrong else 'note'} ({own.case}): {own.what}")
    if impossible is not None:
        for ledger in impossible.ledgers:
            print_text(f"  {ledger}")
    return int(any(own.wrong for own in found))


def _verdict(
    evidence: Evidence, rule: Rule | None, arguments: argparse.Namespace
) -> tuple[Explanation | None, Impossible | None]:
    """The rule that explains an answer, or the first rank that the declared rule (any rule where
    none is declared) does not allow.
    """
    if rule is not None:
        return None, by_rule(evidence, rule, cut=arguments.legs_go_on)
    explained = explain(evidence, cut=not arguments.filtered)
    return explained, None if explained is not None else by_dominance(evidence)


def _declared(arguments: argparse.Namespace) -> Rule | None:
    given: dict[str, object] = {}
    for name in ("kappa", "weights", "normaliser", "mean", "least", "most"):
        if getattr(arguments, name) is not None:
            given[name] = getattr(arguments, name)
    if arguments.rule is not None:
        return rule_from({"name": arguments.rule, **given}, len(arguments.legs))
    if given or arguments.legs_go_on:
        option = next(iter(given), "legs-go-on")
        what, hint = "is of a declared rule, and none is declared", "name it: --rule rrf"
        raise DesaError(what, where=f"--{option}", hint=hint)
    return None


def _read(path: Path, arguments: argparse.Namespace) -> RankedAnswer:
    own = read_answer(path, arguments.format, query=arguments.query)
    return replace(own, ascending=own.ascending or own.name in arguments.ascending)


def _check_ascending(names: Sequence[str], legs: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in legs]:
        hint = choices(unknown[0], legs)
        raise DesaError(f"no leg is called {unknown[0]!r}", where="--ascending", hint=hint)


def _upward(leg: RankedAnswer) -> Sequence[float]:
    return [-score for score in leg.scores] if leg.ascending else leg.scores


def _compared(answer: RankedAnswer, arguments: argparse.Namespace) -> list[AuditFinding]:
    """Against other answers to the same query."""
    found: list[AuditFinding] = []
    if arguments.longer is not None:
        found += findings.prefix(answer.ids, _read(arguments.longer, arguments).ids)
    if arguments.again is not None:
        found += findings.again(answer.ids, _read(arguments.again, arguments).ids)
    if arguments.pages:
        parts = [_read(path, arguments).ids for path in arguments.pages]
        found += findings.pages(answer.ids, parts)
    return found


def _judged(arguments: argparse.Namespace) -> set[str]:
    qrels = read_qrels(arguments.qrels)
    if arguments.query is None:
        raise DesaError("no query is named", where="--qrels", hint="name it with --query")
    own = qrels.filter(query_id=arguments.query)
    if not own.height:
        what, hint = f"judge no query {arguments.query!r}", "give the judgments of these queries"
        raise DesaError(what, where="--qrels", hint=hint)
    return set(own["doc_id"])


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="desa audit", description=__doc__)
    parser.add_argument("answer", type=Path, metavar="ANSWER", help="the fused answer")
    parser.add_argument(
        "--legs",
        nargs="+",
        type=Path,
        required=True,
        metavar="LEG",
        help="the lists that were fused",
    )
    parser.add_argument(
        "--format", help=f"of all files: {', '.join((*FORMATS, *NEUTRAL))} (default: detected)"
    )
    parser.add_argument("--query", metavar="ID", help="the query, if files hold several")
    parser.add_argument(
        "--ascending", type=several, default=[], metavar="LEG,LEG", help="legs that hold distances"
    )
    parser.add_argument(
        "--rule", help="a rule to check the answer against (default: search for one)"
    )
    parser.add_argument("--kappa", help="of the declared rule (60)")
    parser.add_argument("--weights", type=several, metavar="W,W", help="of the declared rule")
    parser.add_argument("--normaliser", help="of the declared rule")
    parser.add_argument("--mean", help="of rule opensearch")
    parser.add_argument("--least", type=several, metavar="S,S", help="least possible scores")
    parser.add_argument("--most", type=several, metavar="S,S", help="largest possible scores")
    parser.add_argument(
        "--legs-go-on",
        action="store_true",
        help="the engine fused more of each leg than the files hold",
    )
    parser.add_argument(
        "--filtered",
        action="store_true",
        help="documents of the legs may be missing from the answer on purpose",
    )
    parser.add_argument("--longer", type=Path, metavar="F", help="the answer at a larger limit")
    parser.add_argument("--pages", nargs="+", type=Path, metavar="F", help="its pages, in order")
    parser.add_argument("--again", type=Path, metavar="F", help="the answer of a reordered corpus")
    parser.add_argument("--qrels", type=Path, metavar="Q", help="judgments, to show what is judged")
    return parser
