"""Effectiveness of what a fusion of prefixes puts on top (method.md section 7)."""

from collections.abc import Mapping, Sequence

from pytrec_eval import RelevanceEvaluator

# Measure, as trec_eval spells it -> column of the records. Read from trec_eval itself, which
# `desa_ray.core.evaluation` reaches through ir_measures: that makes an object of every value, and
# there are some cutoffs a query.
CUT_MEASURES = {"ndcg_cut_10": "cut_ndcg_at_10", "recall_20": "cut_recall_at_20"}


def cut_scores(
    queries: Sequence[str],
    tops: Sequence[Sequence[Sequence[str]]],
    grades: Mapping[str, Mapping[str, int]],
) -> list[dict[str, list[float] | None]]:
    """The columns of the measures, a query each: one value a cutoff, None for a query without
    grades.

    Args:
        queries: query ids, each once.
        tops: for every query the documents on top, best first, a cutoff each. Most cutoffs share
            theirs; such a top is scored once.
        grades: as from `desa_ray.core.evaluation.positive_grades`.
    """
    names = [
        {tuple(top): f"{place} {query}" for place, top in enumerate(own)}
        for query, own in zip(queries, tops, strict=True)
    ]
    judged = [own if query in grades else {} for query, own in zip(queries, names, strict=True)]
    run = {
        name: {document: -rank for rank, document in enumerate(top, 1)}
        for own in judged
        for top, name in own.items()
        if top
    }
    of_names = {
        name: grades[query]
        for query, own in zip(queries, judged, strict=True)
        for name in own.values()
    }
    values = RelevanceEvaluator(of_names, {"ndcg_cut.10", "recall.20"}).evaluate(run) if run else {}
    nothing = dict.fromkeys(CUT_MEASURES, 0.0)  # what an empty top scores
    return [
        {
            column: (
                [values.get(own[tuple(top)], nothing)[measure] for top in of_query]
                if own or not of_query
                else None
            )
            for measure, column in CUT_MEASURES.items()
        }
        for own, of_query in zip(judged, tops, strict=True)
    ]
