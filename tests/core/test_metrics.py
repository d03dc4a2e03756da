"""Effectiveness: hand-derived values, and what happens to unjudged, empty and unknown."""

from math import log2

import polars as pl
import pytest

from desa_ray.core.evaluation import depth_needed, evaluate, metric_name, parse_measures
from desa_ray.errors import DesaError

QRELS = pl.DataFrame(
    [
        ("a", "x", 2),
        ("a", "y", 1),
        ("a", "z", -1),
        ("b", "x", 1),
        ("c", "x", 0),
        ("c", "y", -2),
        ("d", "x", 1),
        ("d", "y", 1),
        ("d", "z", 1),
    ],
    {"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32},
    orient="row",
)


def values(rankings, *measures):
    return {(q, m): v for q, m, v in evaluate(QRELS, rankings, measures).iter_rows()}


def test_ndcg_has_linear_gain_and_recall_counts_positive_grades():
    found = values({"a": ["y", "z", "x"], "d": ["x", *"123456789", "y"]}, "nDCG@10", "R@20", "R@5")
    assert found["a", "nDCG@10"] == pytest.approx((1 + 2 / log2(4)) / (2 + 1 / log2(3)), abs=1e-9)
    assert found["a", "R@20"] == 1
    # Rank 11 is too late
    assert found["d", "nDCG@10"] == pytest.approx(1 / (1 + 1 / log2(3) + 1 / log2(4)), abs=1e-9)
    assert found["d", "R@20"] == pytest.approx(2 / 3)
    assert found["d", "R@5"] == pytest.approx(1 / 3)


def test_order_decides_even_where_ids_descend():
    """trec_eval would put tied documents in descending order of their ids; ranks leave
    it no tie.
    """
    assert values({"b": ["w", "x"]}, "RR")["b", "RR"] == 0.5
    assert values({"b": ["z", "x"]}, "RR")["b", "RR"] == 0.5
    long = [f"n{i:06}" for i in range(40_000)]
    assert values({"b": [*long, "x"]}, "RR")["b", "RR"] == pytest.approx(1 / 40_001)


def test_a_judged_query_that_returns_nothing_scores_zero():
    """A judged query that returns nothing scores zero and one without a positive is left out."""
    found = values({"a": [], "b": ["y"], "c": ["x"], "unjudged": ["x"]}, "nDCG@10", "R@20", "AP")
    assert found == {(q, m): 0.0 for q in "ab" for m in ("nDCG@10", "R@20", "AP")}
    assert evaluate(QRELS, {"c": ["x"]}, ["AP"]).height == 0
    assert evaluate(QRELS, {"b": []}, ["AP"])["value"].to_list() == [0.0]


def test_rows_come_sorted_by_query_and_in_the_order():
    """Rows come sorted by query and in the order of the measures."""
    table = evaluate(QRELS, {"d": ["x"], "a": ["x"]}, ["R@20", "nDCG@10"])
    assert table.schema == {"query_id": pl.String, "measure": pl.String, "value": pl.Float64}
    assert table.select("query_id", "measure").rows() == [
        ("a", "R@20"),
        ("a", "nDCG@10"),
        ("d", "R@20"),
        ("d", "nDCG@10"),
    ]


@pytest.mark.parametrize(
    ("name", "record", "depth"),
    [
        ("nDCG@10", "ndcg_at_10", 10),
        ("R@20", "recall_at_20", 20),
        ("R@1000", "recall_at_1000", 1000),
        ("R(rel=2)@20", "recall_rel_2_at_20", 20),
        ("P(rel=2)@5", "p_rel_2_at_5", 5),
        ("RR@10", "rr_at_10", 10),
        ("AP", "ap", None),
        ("Rprec", "rprec", None),
        ("P(judged_only=True)@5", "p_judged_only_true_at_5", None),
    ],
)
def test_measures_have_a_record_name_and_a_depth(name, record, depth):
    assert metric_name(name) == record
    assert depth_needed([name]) == depth
    assert depth_needed([name, "R@100"]) == (None if depth is None else max(depth, 100))


@pytest.mark.parametrize(
    "name", ["foo@3", "nDCG@x", "R@0", "R", "", "alpha_nDCG@10", "R@20 P@10", "__import__('os')"]
)
def test_measures_that_cannot_be_computed_are_refused(name):
    """Measures that cannot be computed are refused in one line."""
    with pytest.raises(DesaError, match="use a name of ir_measures such as nDCG@10") as refused:
        parse_measures(["nDCG@10", name])
    assert repr(name) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "object at" not in str(refused.value)


def test_two_names_of_one_record_are_refused():
    with pytest.raises(DesaError, match="'R@20' and 'Recall@20' are both recorded as recall_at_20"):
        parse_measures(["R@20", "Recall@20"])


@pytest.mark.parametrize("name", ["nDCG@99999999999999999999", "P(rel=99999999999)@5"])
def test_numbers_that_no_scorer_holds_are_refused(name):
    with pytest.raises(DesaError, match="a number in it is too large"):
        parse_measures([name])
