"""Effectiveness of what a fusion of prefixes puts on top (SPEC section 7)."""

from collections.abc import Mapping, Sequence

from desa_ray.core.metrics import scored

CUT_MEASURES = {"nDCG@10": "cut_ndcg_at_10", "R@20": "cut_recall_at_20"}  # measure -> column of the records


def cut_scores(
    queries: Sequence[str], tops: Sequence[Sequence[Sequence[str]]], grades: Mapping[str, Mapping[str, int]]
) -> list[dict[str, list[float] | None]]:
    """The columns of the measures, a query each: one value a cutoff, None for a query without grades.

    Args:
        queries: query ids, each once.
        tops: for every query the documents on top, best first, a cutoff each. Most cutoffs share theirs; such a top is
            scored once.
        grades: as from `desa_ray.core.metrics.positive_grades`.
    """
    names = [
        {tuple(top): f"{place} {query}" for place, top in enumerate(own)}
        for query, own in zip(queries, tops, strict=True)
    ]
    judged = [own if query in grades else {} for query, own in zip(queries, names, strict=True)]
    rankings = {name: top for own in judged for top, name in own.items()}
    of_names = {name: grades[query] for query, own in zip(queries, judged, strict=True) for name in own.values()}
    values = scored(of_names, rankings, CUT_MEASURES)
    return [
        {
            column: [values[own[tuple(top)], measure] for top in of_query] if own or not of_query else None
            for measure, column in CUT_MEASURES.items()
        }
        for own, of_query in zip(judged, tops, strict=True)
    ]
