"""RM3 and Rocchio by hand; tests/engines/test_feedback_anserini.py holds them to Anserini's own."""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

from desa_ray.core.feedback import FeedbackDocument, rm3, rocchio, usable

SHARES: dict[str, float] = {"cat": 0.05, "dog": 0.05, "fish": 0.05}
NUMBERS = {"fb_docs": Fraction(2), "fb_terms": Fraction(2)}


def document(score: float, **terms: int) -> FeedbackDocument:
    return FeedbackDocument(terms, np.float32(score))


def assert_near(found: Mapping[str, np.float32], expected: Mapping[str, float]) -> None:
    assert found == pytest.approx(expected, abs=1e-6)
    assert {type(weight) for weight in found.values()} <= {np.float32}


def test_rm3_by_hand():
    """The first document gives cat 3/4 and dog 1/4 times 2, the second fish 1 times 1: cat 1.5 and
    fish 1 are kept, 3/5 and 2/5; the query's halves are a half each of cow and cat.
    """
    documents = [document(2.0, cat=3, dog=1), document(1.0, fish=2)]
    found = rm3(["cow", "cat"], documents, SHARES, **NUMBERS, weight=Fraction(1, 2))
    assert_near(found, {"cow": 0.25, "cat": 0.25 + 0.3, "fish": 0.2})


def test_rm3_keeps_of_equal_terms_the_first():
    documents = [document(1.0, fish=1, dog=1, cat=1)]
    found = rm3([], documents, SHARES, **NUMBERS, weight=Fraction(1, 4))
    assert_near(found, {"cat": 0.375, "dog": 0.375})


def test_rocchio_by_hand():
    """Documents (3, 4) / 5 and (1): the mean is cat .8, dog .4, of length √.8; the query's vector
    is cat alone.
    """
    documents = [document(9.0, cat=3, dog=4), document(1.0, cat=1)]
    numbers = {"alpha": Fraction(1), "beta": Fraction(3, 4)}
    found = rocchio(["cat", "cat"], documents, SHARES, **NUMBERS, **numbers)
    length = 0.8**0.5
    assert_near(found, {"cat": 1 + 0.75 * 0.8 / length, "dog": 0.75 * 0.4 / length})


@pytest.mark.parametrize("model", [rm3, rocchio])
def test_without_documents_the_query_is_left_alone(model):
    numbers = {"weight": Fraction(1, 2), "alpha": Fraction(1, 2), "beta": Fraction(1)}
    found = model(["cat"], [], {}, **NUMBERS, **numbers)
    assert_near(found, {"cat": 0.5})
    assert model([], [], {}, **NUMBERS, **numbers) == {}


@pytest.mark.parametrize("model", [rm3, rocchio])
def test_a_document_without_usable_terms_gives_nothing(model):
    numbers = {"weight": Fraction(1, 2), "alpha": Fraction(1, 2), "beta": Fraction(1)}
    shares = {"x": 0.01, "everywhere": 0.9}
    found = model(["cat"], [document(1.0, x=5, everywhere=7)], shares, **NUMBERS, **numbers)
    assert_near(found, {"cat": 0.5})


@pytest.mark.parametrize(
    ("term", "share", "plain", "expected"),
    [
        ("cat", 0.1, True, True),
        ("cat", 0.1000001, True, False),
        ("c", 0.01, True, False),
        ("c" * 20, 0.01, True, True),
        ("c" * 21, 0.01, False, False),
        ("café", 0.01, True, False),
        ("café", 0.01, False, True),
        ("\U0001f408", 0.01, False, True),  # two units of UTF-16
    ],
)
def test_which_terms_feedback_may_use(term, share, plain, expected):
    assert usable(term, share, plain=plain) == expected
