"""Word2Passage-style weights, counted by hand."""

from collections import Counter

import pytest

from desa_ray.core.reweighting import word2passage


def test_a_term_weighs_its_frequency_times_the_references():
    # a: 3 times in 2 references = 6; b: once in 1 = 1; c: once in 1 = 1. Query of 2 terms: round(8
    # / 2) = 4 copies.
    """A term weighs its frequency times the references that hold it."""
    terms = Counter(word2passage(["q", "a"], [["a", "a", "b"], ["a", "c"]]))
    assert terms == {"q": 4, "a": 4 + 6, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("query", "references", "copies"),
    [
        (["q"] * 9, [["a"]], 9),  # round(1 / 9) = 0, but the query occurs at least once
        (["q"], [], 1),
        (["q"], [[]], 1),
        ([], [["a"]], 0),  # nothing to repeat
    ],
)
def test_the_query_is_there_at_least_once(query, references, copies):
    assert Counter(word2passage(query, references))["q"] == copies


def test_agreement_beats_repetition_within_one_reference():
    weights = Counter(word2passage([], [["noise", "noise", "noise"], ["word"], ["word"], ["word"]]))
    assert weights["word"] == 9
    assert weights["noise"] == 3
