"""Effectiveness: measures are named as in ir_measures, such as nDCG@10 and R@20 (method.md
section 8).

Values come from trec_eval if it is right for every id and grade, else from
`desa_ray.core.plain_measures`; every other measure is refused by name. trec_eval holds scores in
float32 and breaks ties by descending id, so it is given -rank, which never ties.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import ir_measures
import polars as pl
from ir_measures.measures import Measure
from pytrec_eval import RelevanceEvaluator

from desa_ray.core.plain_measures import ERR_SCALE, MOST_EXPONENTIAL, PLAIN
from desa_ray.errors import DesaError, listed

EXPONENTIAL_COLUMN = "ndcg_exp_at_10"  # of every record
EXPONENTIAL = "nDCG(dcg='exp-log2')@10"  # gain 2^grade - 1, as the paper's authors have it
EXAMPLES = (
    "nDCG@10",
    "R@20",
    "R@1000",
    "AP",
    "RR@10",
    "P@5",
    "P(rel=2)@5",
    "Success@5",
    "Judged@20",
)
RECORD_NAMES = {"R": "recall"}
SCHEMA = pl.Schema({"query_id": pl.String, "measure": pl.String, "value": pl.Float64})
MAX_NAME = 500

# What trec_eval calls the measures that are its own. nDCG is plain where it has gains of its own.
TREC_EVAL = {
    "P": "P_{cutoff}",
    "R": "recall_{cutoff}",
    "AP": "map_cut_{cutoff}",
    "nDCG": "ndcg_cut_{cutoff}",
    "Success": "success_{cutoff}",
    "Rprec": "Rprec",
    "Bpref": "bpref",
    "SetP": "set_P",
    "SetR": "set_recall",
    "SetF": "set_F",
    "SetAP": "set_map",
}
WHOLE = {"AP": "map", "nDCG": "ndcg"}  # without a cutoff


def parse_measures(names: Iterable[str]) -> dict[str, Measure]:
    """Name -> measure, each computable here for every id and every grade that `grade_limits`
    allows.

    Raises:
        DesaError: a name that ir_measures does not know, or a measure that is not computed here;
            two names with one metric name, such as R@20 and Recall@20.
    """
    parsed = {name: _parsed(name) for name in names}
    recorded: dict[str, str] = {}
    for name in parsed:
        other = recorded.setdefault(metric_name(name), name)
        if other != name:
            raise DesaError(
                f"measures {other!r} and {name!r} are both recorded as {metric_name(name)}",
                where="evaluation.measures",
                hint=f"did you mean {other}? leave one of them out",
            )
    return parsed


@lru_cache(maxsize=1024)
def _parsed(name: str) -> Measure:
    measure: Any = None
    try:
        if len(name) > MAX_NAME:
            raise ValueError(f"it is longer than {MAX_NAME} characters")
        measure = ir_measures.parse_measure(name)
        measure.validate_params()
        problem = _refused(measure)
    except (NameError, ValueError, AssertionError, TypeError, AttributeError, SyntaxError) as error:
        problem = re.sub(
            r"invalid param (\w+)=<object object.*", r"it needs a value for \1", str(error)
        )
    except (RecursionError, MemoryError):
        problem = "it is nested too deeply"
    if problem:
        raise DesaError(
            f"measure {name[:MAX_NAME]!r}: {' '.join(problem.split())}",
            hint=f"use a name of ir_measures such as {listed(EXAMPLES)}",
        )
    return measure


def _params(measure: Measure) -> Mapping[str, Any]:
    """Its parameters: ir_measures comes without types."""
    return cast(Mapping[str, Any], cast(Any, measure).params)


def _refused(measure: Measure) -> str:
    """Why a measure has no value here; empty for one that has."""
    params = _params(measure)
    numbers = {name: value for name, value in params.items() if type(value) in (int, float)}
    gains: Mapping[Any, Any] = params.get("gains", {})
    if measure.NAME not in {*TREC_EVAL, *PLAIN}:
        return f"{measure.NAME} is not computed here"
    if any(isinstance(value, bool) for name, value in params.items() if name in ("cutoff", "rel")):
        return "True and False are not numbers"
    if numbers.get("cutoff", 1) < 1:
        return "its cutoff is below 1"
    if numbers.get("rel", 1) < 1:
        return "its rel is below 1, and grades below 1 count as not relevant"
    if any(value >= 2**31 for value in numbers.values()):
        return "a number in it is too large"
    if measure.NAME == "SetF" and numbers.get("beta", 1) != 1:
        return "trec_eval's beta is not that of the F measure, so only beta=1.0 is computed"
    if not 0 <= numbers.get("recall", 0) <= 1:
        return "its recall is not between 0 and 1"
    if not 0 < numbers.get("p", 0.5) < 1:
        return "its p is not between 0 and 1"
    if "gains" in params and params.get("dcg") == "exp-log2":
        return "it has a gains mapping and exponential gain"
    if not all(type(n) is int and 0 <= n < 2**31 for pair in gains.items() for n in pair):
        return "its gains do not map whole numbers to whole numbers, all from 0"
    return ""


def grade_limits(names: Iterable[str]) -> dict[str, int]:
    """Measure -> the highest grade that it accepts, for measures with a limit."""
    found: dict[str, int] = {}
    for name, measure in parse_measures(names).items():
        if measure.NAME == "ERR":
            found[name] = ERR_SCALE
        elif _params(measure).get("dcg") == "exp-log2":
            found[name] = MOST_EXPONENTIAL
    return found


def check_grades(names: Iterable[str], qrels: pl.DataFrame, where: str = "") -> None:
    """Raises `DesaError` if a judgment (columns `query_id`, `doc_id`, `grade`) has a grade above a
    measure's limit.
    """
    for name, limit in grade_limits(names).items():
        above = qrels.filter(pl.col("grade") > limit)
        if above.height:
            query, document, grade = above.select("query_id", "doc_id", "grade").row(0)
            what = f"measure {name!r} takes grades up to {limit}, and {above.height} are above it"
            raise DesaError(
                f"{what}: query {query[:80]!r}, document {document[:80]!r}, grade {grade}",
                where=where,
                hint="leave the measure out, or map the grades to a smaller scale",
            )


def computed_plainly(names: Iterable[str]) -> bool:
    """Whether a measure is computed here and had other values in earlier versions (those of RR are
    unchanged).
    """
    return any(
        _is_plain(measure) and measure.NAME != "RR" for measure in parse_measures(names).values()
    )


def _is_plain(measure: Measure) -> bool:
    own_gain = _params(measure).get("dcg") == "exp-log2" or "gains" in _params(measure)
    return measure.NAME in PLAIN and (measure.NAME != "nDCG" or own_gain)


def depth_needed(names: Iterable[str]) -> int | None:
    """How many documents of a ranking decide all these measures; None = all of them."""
    return _depth_needed(tuple(names))


@lru_cache(maxsize=64)
def _depth_needed(names: tuple[str, ...]) -> int | None:
    params = [_params(measure) for measure in parse_measures(names).values()]
    if any("cutoff" not in own or own.get("judged_only") for own in params):
        return None
    return max((own["cutoff"] for own in params), default=0)


def metric_name(name: str) -> str:
    """A measure's column and MLflow name: nDCG@10 -> ndcg_at_10, R@20 -> recall_at_20, P(rel=2)@5
    -> p_rel_2_at_5.
    """
    family = re.match(r"[A-Za-z]*", name)
    assert family is not None
    spelled = RECORD_NAMES.get(family[0], family[0]) + name[family.end() :]
    return re.sub(r"[^a-z0-9]+", "_", spelled.replace("@", "_at_").lower()).strip("_")


def evaluate(
    qrels: pl.DataFrame, rankings: Mapping[str, Sequence[str]], measures: Iterable[str]
) -> pl.DataFrame:
    """One value per query and measure.

    Args:
        qrels: columns `query_id`, `doc_id`, `grade`; grades <= 0 count as 0.
        rankings: query id -> document ids, best first, without repeats. Queries without a positive
            judgment are left out; a judged query whose ranking is empty scores 0 (but its NumQ is
            1, and its NumRel the number of relevant documents). Judged queries that are not a key
            here are not evaluated.
        measures: names as in `parse_measures`.

    Returns:
        Columns `query_id`, `measure` (as named in `measures`), `value`, sorted by the first, then
        as `measures`.

    Raises:
        DesaError: as `parse_measures` and `check_grades`.
    """
    measures = list(measures)
    check_grades(measures, qrels)
    values = scored(positive_grades(qrels, list(rankings)), rankings, measures)
    return pl.DataFrame([(*place, value) for place, value in values.items()], SCHEMA, orient="row")


def positive_grades(qrels: pl.DataFrame, queries: Sequence[str]) -> dict[str, dict[str, int]]:
    """Grades by document of every one of the queries that has a positive judgment; grades below 0
    as 0.
    """
    judged = qrels.filter(pl.col("query_id").is_in(list(queries))).with_columns(
        pl.col("grade").clip(lower_bound=0)
    )
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in judged.select("query_id", "doc_id", "grade").iter_rows():
        grades.setdefault(query, {})[document] = grade
    return {query: own for query, own in grades.items() if any(own.values())}


def scored(
    grades: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Sequence[str]],
    measures: Iterable[str],
) -> dict[tuple[str, str], float]:
    """(query, measure) -> value of each query with grades, sorted by query, then as `measures`; see
    `evaluate`.

    Args:
        grades: as from `positive_grades`; one query may occur under several names.
    """
    parsed = parse_measures(measures)
    for name, limit in grade_limits(parsed).items():
        assert all(grade <= limit for own in grades.values() for grade in own.values()), (
            f"unchecked grades: {name}"
        )
    columns = {
        name: _plain_values(measure, grades, rankings) if _is_plain(measure) else {}
        for name, measure in parsed.items()
    }
    by_call: dict[tuple[int, bool], dict[str, str]] = {}  # trec_eval has one relevance level a call
    for name, measure in parsed.items():
        if not _is_plain(measure):
            level: int = 1 if measure.NAME == "nDCG" else _params(measure).get("rel", 1)
            by_call.setdefault((level, _params(measure).get("judged_only", False)), {})[name] = (
                _trec_name(measure)
            )
    run: dict[str, dict[str, float]] = {}
    for query in grades:
        if len(rankings[query]):
            run[query] = {doc: -float(rank) for rank, doc in enumerate(rankings[query])}
    for (rel, judged_only), own in by_call.items():
        evaluator: Any = RelevanceEvaluator(
            grades, set(own.values()), relevance_level=rel, judged_docs_only_flag=judged_only
        )
        found: dict[str, dict[str, float]] = evaluator.evaluate(run) if run else {}
        for name, spelled in own.items():
            columns[name] = {query: float(values[spelled]) for query, values in found.items()}
    return {
        (query, name): columns[name].get(query, 0.0) for query in sorted(grades) for name in parsed
    }


def _plain_values(
    measure: Measure, grades: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    compute = PLAIN[str(measure.NAME)]
    return {
        query: compute(rankings[query], own, **_params(measure)) for query, own in grades.items()
    }


def _trec_name(measure: Measure) -> str:
    if measure.NAME == "SetP" and _params(measure).get("relative"):
        return "set_relative_P"
    cutoff = _params(measure).get("cutoff")
    spelled = WHOLE.get(str(measure.NAME), "") if cutoff is None else ""
    return spelled or TREC_EVAL[str(measure.NAME)].format(cutoff=cutoff)
