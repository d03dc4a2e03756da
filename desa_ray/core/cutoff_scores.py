"""Effectiveness of the top documents of a fusion of prefixes (method.md section 7)."""

from collections.abc import Mapping, Sequence

from pytrec_eval import RelevanceEvaluator

from desa_ray.core.plain_measures import ndcg

# Measure, as trec_eval spells it -> column of the records. Read from trec_eval itself, which
# `desa_ray.core.evaluation` reaches through ir_measures: that makes an object of every value, and
# there are some cutoffs per query.
CUT_MEASURES = {"ndcg_cut_10": "cut_ndcg_at_10", "recall_20": "cut_recall_at_20"}
CUT_EXPONENTIAL = "cut_ndcg_exp_at_10"  # nDCG@10 with gain 2^grade - 1


def cut_scores(
    queries: Sequence[str],
    tops: Sequence[Sequence[Sequence[str]]],
    grades: Mapping[str, Mapping[str, int]],
) -> list[dict[str, list[float] | None]]:
    """The columns of the measures for each query: one value per cutoff, None for a query without
    grades.

    Args:
        queries: query ids, each once.
        tops: for every query the documents on top, best first, a cutoff each. Most cutoffs share
            theirs; such a top is scored once.
        grades: as from `desa_ray.core.evaluation.positive_grades`.
    """
    judged: list[dict[tuple[str, ...], str]] = []  # of each query: the name of each distinct top
    for query, own in zip(queries, tops, strict=True):
        names = {tuple(top): f"{place} {query}" for place, top in enumerate(own)}
        judged.append(names if query in grades else {})
    run: dict[str, dict[str, int]] = {}
    for names in judged:
        for top, name in names.items():
            if top:
                run[name] = {document: -rank for rank, document in enumerate(top, 1)}
    of_names = {
        name: grades[query]
        for query, own in zip(queries, judged, strict=True)
        for name in own.values()
    }
    values = RelevanceEvaluator(of_names, {"ndcg_cut.10", "recall.20"}).evaluate(run) if run else {}
    nothing = dict.fromkeys(CUT_MEASURES, 0.0)  # what an empty top scores
    columns: list[dict[str, list[float] | None]] = []
    for names, of_query in zip(judged, tops, strict=True):
        if of_query and not names:
            columns.append(dict.fromkeys(CUT_MEASURES.values()))
            continue
        scores = [values.get(names[tuple(top)], nothing) for top in of_query]
        of_measures: dict[str, list[float] | None] = {}
        for measure, column in CUT_MEASURES.items():
            of_measures[column] = [score[measure] for score in scores]
        columns.append(of_measures)
    return columns


def exponential_cut_scores(
    queries: Sequence[str],
    tops: Sequence[Sequence[Sequence[str]]],
    grades: Mapping[str, Mapping[str, int]],
) -> list[list[float] | None]:
    """nDCG@10 with gain 2^grade - 1 of each query's tops, one value per cutoff; arguments as those
    of `cut_scores`.
    """
    found: list[list[float] | None] = []
    for query, of_query in zip(queries, tops, strict=True):
        own = grades.get(query)
        if own is None:
            found.append(None)
            continue
        scored: dict[tuple[str, ...], float] = {}
        for top in dict.fromkeys(tuple(top) for top in of_query):
            scored[top] = ndcg(top, own, cutoff=10, dcg="exp-log2")
        found.append([scored[tuple(top)] for top in of_query])
    return found
