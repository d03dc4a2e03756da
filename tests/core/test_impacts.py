"""Learned sparse weights as whole numbers, by hand."""

import pytest

from desa_ray.core.impacts import (
    LARGEST,
    checked_weights,
    copies_of_query,
    largest,
    quantised,
    summed,
)
from desa_ray.errors import DesaError


def test_weights_are_rounded_halves_to_even():
    given = {"a": 0.005, "b": 0.015, "c": 0.25, "d": 0, "e": 1.004, "f": 3}
    assert quantised(given, 100) == {"b": 2, "c": 25, "e": 100, "f": 300}
    assert quantised({"a": 0.5, "b": 1.5, "c": 2.5, "d": 3}, 1) == {"b": 2, "c": 2, "d": 3}
    assert quantised({"a": LARGEST}, 1) == {"a": LARGEST}


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf"), -float("inf"), LARGEST + 1])
def test_impossible_weights_are_refused_by_name(weight):
    with pytest.raises(DesaError, match="'odd'"):
        quantised({"even": 1, "odd": weight}, 1.0)


@pytest.mark.parametrize("weight", ["1", None, True, [1], 1 << 80])
def test_values_that_are_no_weights_are_refused(weight):
    with pytest.raises(DesaError, match="'odd'"):
        checked_weights({"odd": weight})


def test_terms_that_are_none_are_refused():
    for term in ("", "\ud800", "x" * 40_000):
        with pytest.raises(DesaError, match="no term"):
            checked_weights({term: 1})


def test_copies_multiply_the_weights_of_the_query():
    query, references = {"a": 3, "b": 1}, [{"a": 2, "c": 4}, {"b": 5, "c": 1}]
    assert summed(1, query, references) == {"a": 5, "b": 6, "c": 5}
    assert summed(5, query, references) == {"a": 17, "b": 10, "c": 5}
    assert summed(0, query, references) == {"a": 2, "b": 5, "c": 5}
    assert largest(1, query, references) == {"a": 3, "b": 5, "c": 4}
    assert largest(5, query, references) == {"a": 15, "b": 5, "c": 4}
    assert largest(0, query, references) == {"a": 2, "b": 5, "c": 4}


def test_each_method_has_its_copies_of_the_query():
    given = "four", ["x" * 40, "y" * 41]  # floor(81 / (4 * 4)) = 5
    copies = {name: copies_of_query(name, *given) for name in ("query", "expanded", "references")}
    assert copies == {"query": 1, "expanded": 1, "references": 0}
    assert copies_of_query("query2doc", *given) == 5
    assert copies_of_query("mugi", *given) == 5
    assert copies_of_query("mugi", *given, least=7) == 7
    assert copies_of_query("mugi", "long" * 90, ["short"]) == 0
