"""Operator controls and AnchorQE: worked by hand, and where they agree with DESA's operators."""

from fractions import Fraction

import numpy as np
import pytest

from desa_ray.core.calibration import calibrated_alpha, plain_mean, top_and_ten
from desa_ray.core.dense import anchored, residual
from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS, SparseHits
from desa_ray.core.ranking import sparse_order
from desa_ray.core.sparse import product
from desa_ray.errors import DesaError

HALF = Fraction(1, 2)
RNG = np.random.default_rng(11)


def hits(scores: dict[int, float]) -> SparseHits:
    docs = sorted(scores)
    return SparseHits(np.array(docs, np.int32), np.array([scores[d] for d in docs], np.float32))


ORIGINAL = hits({1: 4.0, 3: 2.0, 5: 1.0, 8: 0.0})
EXPANDED = hits({1: 5.0, 2: 99.0, 3: 8.0, 5: 16.0, 8: 3.0})


def applied(name: str, **options: Fraction) -> SparseHits:
    operator = SPARSE_OPERATORS[name]
    return operator.function({"query": ORIGINAL, "expanded": EXPANDED}, **options)


@pytest.mark.parametrize(
    ("name", "options", "scores"),
    [
        ("masked_sum", {"share": HALF}, [4.5, 5.0, 8.5, 1.5]),
        ("masked_sum", {"share": Fraction(3, 4)}, [4.25, 3.5, 4.75, 0.75]),
        ("masked_sum", {"share": Fraction(0)}, [5.0, 8.0, 16.0, 3.0]),  # the binary mask
        ("masked_sum", {"share": Fraction(1)}, [4.0, 2.0, 1.0, 0.0]),
        # Half the logarithms of the products 20, 16, 16 and 0.
        ("geometric", {"share": HALF}, [np.log(20) / 2, np.log(4), np.log(4), -np.inf]),
        ("geometric", {"share": Fraction(0)}, np.log([5.0, 8.0, 16.0, 3.0])),
        # Ranks by s_o are 1, 2, 3, 4 and by s_r 3, 2, 1, 4: with kappa 0 sums of 4/3, 1, 4/3 and
        # 1/2, an exact tie of documents 1 and 5 that floats see too; places from the end.
        ("rank_sum", {"kappa": Fraction(0)}, [4, 2, 3, 1]),
    ],
)
def test_sparse_controls_put_scores_together_as_hands_do(name, options, scores):
    found = applied(name, **options)
    assert found.docs.tolist() == [1, 3, 5, 8]  # the query's support, whatever else matches
    np.testing.assert_allclose(found.scores, scores, atol=1e-11)


def test_equal_shares_of_logarithms_order_as_the_product():
    scores = RNG.gamma(2, 3, size=(2, 400)).astype(np.float32)
    docs = np.arange(400, dtype=np.int32)
    own, other = SparseHits(docs, scores[0]), SparseHits(docs, scores[1])
    given = {"query": own, "expanded": other}
    found = SPARSE_OPERATORS["geometric"].function(given, share=HALF)
    both = product(own, other)
    assert sparse_order(docs, found.scores).tolist() == sparse_order(docs, both.scores).tolist()
    assert applied("geometric", share=HALF).scores[1] == applied("geometric", share=HALF).scores[2]


def test_rank_sums_that_floats_tell_apart_tie_by_number():
    # 1/61 + 1/549 = 1/63 + 1/427 exactly (check 16 of the release), not as float64.
    assert Fraction(1, 61) + Fraction(1, 549) == Fraction(1, 63) + Fraction(1, 427)
    assert 1 / 61 + 1 / 549 != 1 / 63 + 1 / 427
    places = np.zeros((2, 600))
    others = [d for d in range(600) if d not in (10, 20)]
    first, second = {1: 20, 3: 10}, {489: 20, 367: 10}  # ranks of documents 20 and 10
    for side, fixed in enumerate((first, second)):
        rest = iter(others)
        for rank in range(1, 601):
            places[side, fixed[rank] if rank in fixed else next(rest)] = 1000 - rank
    docs = np.arange(600, dtype=np.int32)
    given = {
        "query": SparseHits(docs, places[0].astype(np.float32)),
        "expanded": SparseHits(docs, places[1].astype(np.float32)),
    }
    found = SPARSE_OPERATORS["rank_sum"].function(given, kappa=Fraction(60))
    assert found.scores[10] == found.scores[20] + 1
    assert not SPARSE_OPERATORS["rank_sum"].local


def test_rank_sums_of_nothing_are_nothing():
    nothing = hits({})
    given = {"query": nothing, "expanded": EXPANDED}
    assert SPARSE_OPERATORS["rank_sum"].function(given, kappa=Fraction(60)).docs.size == 0


def unit(*shape: int) -> np.ndarray:
    vectors = RNG.normal(size=shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def test_a_weight_of_the_residual_turns_by_hands_angle():
    query, texts = np.array([[1, 0]], np.float32), np.array([[[0.6, 0.8]]], np.float32)
    # z = (0, .8): gamma 1/2 gives (1, .4), gamma 2 gives (1, 1.6), beyond 45 degrees.
    for gamma, across in ((0.5, 0.4), (2.0, 1.6), (0.0, 0.0)):
        expanded, angle = residual(query, texts, gamma)
        np.testing.assert_allclose(
            expanded[0], np.array([1, across]) / np.hypot(1, across), rtol=1e-7
        )
        np.testing.assert_allclose(angle[0], np.degrees(np.arctan(across)), rtol=1e-6)


def test_a_residual_of_weight_one_is_desas_bit_for_bit():
    query, texts = unit(50, 64), unit(50, 5, 64)
    given = {"query": query, "query_reference": texts}
    weighted, own = (
        DENSE_OPERATORS["residual_weight"].function(given, gamma=Fraction(1)),
        DENSE_OPERATORS["residual"].function(given),
    )
    assert weighted[0].tobytes() == own[0].tobytes()
    assert weighted[1]["angle_deg"].tobytes() == own[1]["angle_deg"].tobytes()


def test_anchoring_mixes_the_query_with_the_plain_mean():
    query = np.array([[1, 0, 0]], np.float32)
    texts = np.array([[[0, 1, 0], [0, 0, 1]]], np.float32)
    # r = (0, .5, .5), not of norm 1: with alpha .5 the mixture is (.5, .25, .25).
    found = anchored(query, texts, 0.5)
    np.testing.assert_allclose(found[0], np.array([2, 1, 1]) / np.sqrt(6), rtol=1e-6)
    np.testing.assert_allclose(anchored(query, texts, 0.0), query)
    query, texts = unit(20, 48), unit(20, 5, 48)
    mixed = 0.85 * query.astype(float) + 0.15 * texts.astype(float).mean(axis=1)
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    given = {"query": query, "rewrite": texts}
    expanded, _ = DENSE_OPERATORS["anchor"].function(given, alpha=Fraction(3, 20))
    np.testing.assert_allclose(expanded, mixed, atol=1e-7)


def test_parts_that_cancel_out_are_an_error():
    query = unit(2, 8)
    with pytest.raises(DesaError, match="query row 1"):
        anchored(query, np.stack([query[0], -query[1]])[:, None], 0.5)


def test_alpha_is_calibrated_as_the_release_says():
    # Means over two queries: t_o .6, m_o .3, t_r .2, m_r .1, so (.2/.8) (.1/.4) = 1/16.
    pairs = np.array([[0.5, 0.2, 0.1, 0.0], [0.7, 0.4, 0.3, 0.2]])
    assert calibrated_alpha(pairs) == pytest.approx(1 / 16)
    assert calibrated_alpha(np.zeros((8, 4))) == 0
    assert calibrated_alpha(np.empty((0, 4))) == 0
    assert calibrated_alpha(np.array([[0.5, 0.0, 0.5, 0.0]])) == 0  # one denominator is 0
    scores = np.array([9, *[1] * 9, 7], np.float32)  # the eleventh does not count
    assert top_and_ten(scores) == (9.0, 1.8)
    assert top_and_ten(np.array([-0.5, -0.7], np.float32)) == (0.0, 0.0)
    assert top_and_ten(np.array([0.5, -0.1], np.float32)) == pytest.approx((0.5, 0.2))
    assert top_and_ten(np.empty(0, np.float32)) == (0.0, 0.0)


def test_the_mean_of_references_keeps_its_length():
    texts = np.array([[[1, 0], [0, 1]]], np.float32)
    assert plain_mean(texts).tolist() == [[0.5, 0.5]]
