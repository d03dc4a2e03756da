"""Effectiveness by ir_measures: a measure is its name, nDCG@10 and R@20 as any other (SPEC section 8).

trec_eval holds scores in float32 and breaks ties by descending id, so it is given -rank, which never ties.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import ir_measures
import polars as pl
from ir_measures.measures import Measure

from desa_ray.errors import DesaError, listed

EXAMPLES = ("nDCG@10", "R@20", "R@1000", "AP", "RR@10", "P@5", "P(rel=2)@5", "Success@5", "Judged@20")
RECORD_NAMES = {"R": "recall"}
SCHEMA = pl.Schema({"query_id": pl.String, "measure": pl.String, "value": pl.Float64})


def parse_measures(names: Iterable[str]) -> dict[str, Measure]:
    """Name -> measure, each computable here.

    Raises:
        DesaError: a name that ir_measures does not know, or cannot compute with what is installed; two names with one
            metric name, such as R@20 and Recall@20.
    """
    parsed = {name: _parsed(name) for name in names}
    recorded: dict[str, str] = {}
    for name in parsed:
        other = recorded.setdefault(metric_name(name), name)
        if other != name:
            raise DesaError(f"measures {other!r} and {name!r} are both recorded as {metric_name(name)}")
    return parsed


@lru_cache(maxsize=1024)
def _parsed(name: str) -> Measure:
    problem = ""
    try:
        measure = ir_measures.parse_measure(name)
        if measure.params.get("cutoff", 1) < 1:
            problem = "its cutoff is below 1"
        elif max((n for n in measure.params.values() if isinstance(n, int)), default=0) >= 2**31:
            problem = "a number in it is huge"
        elif not ir_measures.DefaultPipeline.supports(measure):
            problem = "nothing installed computes it"
    except (NameError, ValueError, AssertionError, TypeError) as error:  # what ir_measures raises for a wrong name
        problem = re.sub(r"invalid param (\w+)=<object object.*", r"it needs a value for \1", str(error))
    if problem:
        raise DesaError(f"measure {name!r}: {problem}", mend=f"use a name of ir_measures such as {listed(EXAMPLES)}")
    return measure


def depth_needed(names: Iterable[str]) -> int | None:
    """How many documents of a ranking decide all these measures; None = all of them."""
    return _depth_needed(tuple(names))


@lru_cache(maxsize=64)
def _depth_needed(names: tuple[str, ...]) -> int | None:
    params = [measure.params for measure in parse_measures(names).values()]
    if any("cutoff" not in own or own.get("judged_only") for own in params):
        return None
    return max((own["cutoff"] for own in params), default=0)


def metric_name(name: str) -> str:
    """A measure's column and MLflow name: nDCG@10 -> ndcg_at_10, R@20 -> recall_at_20, P(rel=2)@5 -> p_rel_2_at_5."""
    family = re.match(r"[A-Za-z]*", name)
    assert family is not None
    spelled = RECORD_NAMES.get(family[0], family[0]) + name[family.end() :]
    return re.sub(r"[^a-z0-9]+", "_", spelled.replace("@", "_at_").lower()).strip("_")


def evaluate(qrels: pl.DataFrame, rankings: Mapping[str, Sequence[str]], measures: Iterable[str]) -> pl.DataFrame:
    """One value a query and measure.

    Args:
        qrels: columns `query_id`, `doc_id`, `grade`; grades <= 0 count as 0.
        rankings: query id -> document ids, best first, without repeats. Queries without a positive judgment are left
            out; a judged query whose ranking is empty scores the measure's default, 0. Judged queries that are no key
            here are not evaluated.
        measures: names as in `parse_measures`.

    Returns:
        Columns `query_id`, `measure` (as named in `measures`), `value`, sorted by the first, then as `measures`.
    """
    values = scored(positive_grades(qrels, list(rankings)), rankings, measures)
    return pl.DataFrame([(*place, value) for place, value in values.items()], SCHEMA, orient="row")


def positive_grades(qrels: pl.DataFrame, queries: Sequence[str]) -> dict[str, dict[str, int]]:
    """Grades by document of every one of the queries that has a positive judgment; grades below 0 as 0."""
    judged = qrels.filter(pl.col("query_id").is_in(list(queries))).with_columns(pl.col("grade").clip(lower_bound=0))
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in judged.select("query_id", "doc_id", "grade").iter_rows():
        grades.setdefault(query, {})[document] = grade
    return {query: own for query, own in grades.items() if any(own.values())}


def scored(
    grades: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Sequence[str]], measures: Iterable[str]
) -> dict[tuple[str, str], float]:
    """(query, measure) -> value of each query with grades, sorted by query, then as `measures`; see `evaluate`.

    Args:
        grades: as from `positive_grades`; one query may stand there under several names.
    """
    parsed = parse_measures(measures)
    if not grades or not parsed:
        return {}
    run = {
        query: {document: -float(rank) for rank, document in enumerate(rankings[query])}
        for query in grades
        if len(rankings[query])
    }
    wanted = list(dict.fromkeys(parsed.values()))
    spelled = {id(measure): str(measure) for measure in wanted}  # a measure hashes by its spelling, made anew each time
    values: dict[tuple[str, str], float] = {}
    for metric in ir_measures.iter_calc(wanted, grades, run):
        text = spelled.get(id(metric.measure)) or str(metric.measure)
        values[metric.query_id, text] = float(metric.value)
    names = {name: str(measure) for name, measure in parsed.items()}
    return {(query, name): values[query, text] for query in sorted(grades) for name, text in names.items()}
