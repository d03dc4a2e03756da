"""Bounds of effectiveness hold whatever the unjudged documents are: every choice is tried."""

from itertools import product

import pytest

from desa_ray.core.evaluation import scored
from desa_ray.core.judged import ndcg_upper, recall_upper


def test_no_choice_of_grades_beats_the_upper_bounds():
    """All grades of the unjudged three among the first four, against trec_eval."""
    grades = {"a": 2, "b": 1, "c": 0}
    for ranking in (
        ["x", "a", "y", "z", "b"],
        ["b", "x", "c", "y", "a"],
        ["x", "y", "z", "a", "b"],
    ):
        head = ranking[:4]
        unjudged = [document for document in head if document not in grades]
        values: dict[str, list[float]] = {"nDCG@4": [], "R@4": []}
        for given in product((0, 1, 2), repeat=len(unjudged)):
            judged = grades | dict(zip(unjudged, given, strict=True))
            found = scored({"q": judged}, {"q": ranking}, values)
            for name, own in values.items():
                own.append(found["q", name])
        assert max(values["R@4"]) == pytest.approx(recall_upper(ranking, grades, 4))
        assert max(values["nDCG@4"]) <= ndcg_upper(ranking, grades, 4) + 1e-12
        assert values["nDCG@4"][0] <= ndcg_upper(ranking, grades, 4)


def test_where_all_is_judged_the_bound_is_the_value():
    grades = {"a": 2, "b": 1, "c": 0}
    ranking = ["c", "b", "a"]
    values = scored({"q": grades}, {"q": ranking}, ["nDCG@10", "R@20"])
    assert ndcg_upper(ranking, grades, 10) == pytest.approx(values["q", "nDCG@10"])
    assert recall_upper(ranking, grades, 20) == values["q", "R@20"] == 1
