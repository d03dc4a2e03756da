"""The operators' equations, checked by hand-derivable values and by float64 computed
another way.
"""

from fractions import Fraction

import numpy as np
import pytest

from desa_ray.core.dense import residual
from desa_ray.core.feedback import FEEDBACK
from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS, SparseHits
from desa_ray.core.query_text import DENSE_TEXTS, SPARSE_TEXTS, mugi_repeats
from desa_ray.core.ranking import sparse_order
from desa_ray.core.reweighting import SPARSE_TERMS
from desa_ray.errors import DesaError

RNG = np.random.default_rng(7)


def unit(*shape: int) -> np.ndarray:
    vectors = RNG.normal(size=shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def hits(scores: dict[int, float]) -> SparseHits:
    return SparseHits(
        np.array(sorted(scores), np.int32),
        np.array([scores[d] for d in sorted(scores)], np.float32),
    )


def test_residual_follows_the_paper_in_float64():
    query, texts = unit(20, 48), unit(20, 5, 48)
    expanded, angle = residual(query, texts)
    assert expanded.dtype == np.float32
    assert angle.dtype == np.float64
    v, mean = query.astype(np.float64), texts.astype(np.float64).mean(axis=1)
    z = mean - np.sum(v * mean, axis=1, keepdims=True) * v
    # Z is perpendicular to the query, as far as float32 is a unit
    assert np.abs(np.sum(z * v, axis=1)).max() < 1e-6
    e = (v + z) / np.linalg.norm(v + z, axis=1, keepdims=True)
    np.testing.assert_allclose(expanded, e, atol=1e-7)
    np.testing.assert_allclose(angle, np.degrees(np.arctan(np.linalg.norm(z, axis=1))), atol=1e-5)
    np.testing.assert_allclose(angle, np.degrees(np.arccos(np.sum(e * v, axis=1))), atol=1e-4)


def test_residual_turns_a_query_by_at_most_45_degrees():
    query = np.eye(1, 8, dtype=np.float32)
    across = np.eye(1, 8, 3, dtype=np.float32)[None]
    expanded, angle = residual(query, across)
    np.testing.assert_allclose(angle, 45)
    np.testing.assert_allclose(expanded[0, [0, 3]], np.sqrt(0.5), rtol=1e-7)
    assert residual(unit(200, 16), unit(200, 3, 16))[1].max() <= 45
    assert residual(query, -query[None])[1][0] == 0  # the opposite direction adds nothing either


def test_references_equal_to_the_query_leave_it_as_it_is():
    query = unit(30, 384)
    expanded, angle = residual(query, np.repeat(query[:, None], 5, axis=1))
    np.testing.assert_allclose(expanded, query, atol=1e-6)
    assert angle.max() < 1e-4


def test_a_row_does_not_depend_on_its_batch_or_memory_layout():
    query, texts = unit(9, 64), unit(9, 5, 64)
    whole = {"query": query, "query_reference": texts, "reference": texts, "rewrite": texts}
    strided = {name: np.asfortranarray(vectors) for name, vectors in whole.items()}
    strided["query"].setflags(write=False)
    for name, operator in DENSE_OPERATORS.items():
        used = slice(0, 1) if operator.one_text else slice(0, 3)
        cut = {source: v if source == "query" else v[:, used] for source, v in whole.items()}
        numbers = DENSE_NUMBERS.get(name, {})
        expected = operator.function(cut, **numbers)[0]
        for row in range(9):
            one = operator.function(
                {source: vectors[row : row + 1] for source, vectors in cut.items()}, **numbers
            )[0]
            assert one.tobytes() == expected[row : row + 1].tobytes(), name
        other = operator.function(
            {s: v if s == "query" else v[:, used] for s, v in strided.items()}, **numbers
        )[0]
        assert other.tobytes() == expected.tobytes(), name


def test_dense_operators_return_arrays_of_their_own():
    given = {"query": unit(2, 8)} | {
        name: unit(2, 1, 8) for name in ("query_reference", "reference", "rewrite")
    }
    for name, operator in DENSE_OPERATORS.items():
        expanded, _ = operator.function(given, **DENSE_NUMBERS.get(name, {}))
        assert not any(np.shares_memory(expanded, vectors) for vectors in given.values())


def test_mean_operators_are_the_normalised_mean_and_query2doc():
    """Mean operators are the normalised mean and query2doc is its vector."""
    query, texts = unit(4, 32), unit(4, 8, 32)
    mean = texts.astype(np.float64).mean(axis=1)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    for name, source in (
        ("contextual", "query_reference"),
        ("mugi", "query_reference"),
        ("hyde", "reference"),
    ):
        assert DENSE_OPERATORS[name].texts == (source,)
        np.testing.assert_allclose(
            DENSE_OPERATORS[name].function({source: texts})[0], mean, atol=1e-7
        )
    single = DENSE_OPERATORS["query2doc"].function({"query_reference": texts[:, :1]})[0]
    assert single.tobytes() == texts[:, 0].tobytes()
    assert DENSE_OPERATORS["original"].function({"query": query})[0].tobytes() == query.tobytes()


def test_vectors_without_a_direction_are_refused():
    pair = np.stack([np.eye(1, 4, dtype=np.float32), -np.eye(1, 4, dtype=np.float32)], axis=1)
    with pytest.raises(DesaError, match="query row 0"):
        DENSE_OPERATORS["contextual"].function({"query_reference": pair})
    with pytest.raises(DesaError, match="references >= 1"):
        DENSE_OPERATORS["contextual"].function({"query_reference": pair[:, :0]})
    with pytest.raises(DesaError, match="2 texts per query, expected 1"):
        DENSE_OPERATORS["query2doc"].function({"query_reference": pair})


NONE_ADMITTED = {
    "relax_count": {"count": 0},
    "relax_share": {"share": 1},
    "masked_sum": {"share": Fraction(1, 2)},
    "geometric": {"share": Fraction(1, 2)},
    "rank_sum": {"kappa": Fraction(60)},
}
DENSE_NUMBERS = {
    "anchor": {"alpha": Fraction(3, 20)},
    "anchor_calibrated": {"alpha": 0.25},
    "residual_weight": {"gamma": Fraction(1, 2)},
}
ORIGINAL = {1: 2.5, 4: 0.0, 7: 1.25, 9: 3.1}
EXPANDED = {0: 9.0, 1: 3.0, 4: 0.5, 5: 8.0, 7: 6.0, 9: 3.3, 11: 0.1}


def test_product_keeps_exactly_the_original_support():
    """Product keeps exactly the original support and multiplies exactly."""
    anchored = SPARSE_OPERATORS["product"].function(
        {"query": hits(ORIGINAL), "expanded": hits(EXPANDED)}
    )
    assert anchored.docs.tolist() == sorted(ORIGINAL)
    assert anchored.scores.dtype == np.float64
    exact = [
        float(np.float32(ORIGINAL[d])) * float(np.float32(EXPANDED[d])) for d in sorted(ORIGINAL)
    ]
    assert anchored.scores.tolist() == exact
    # 10.2, 7.5, 7.5 (tie), 0 stays last
    assert sparse_order(anchored.docs, anchored.scores).tolist() == [
        9,
        1,
        7,
        4,
    ]


def test_an_expansion_that_only_rescales_scores_keeps():
    """An expansion that only rescales scores keeps the original order."""
    original = hits({d: float(s) for d, s in enumerate(RNG.random(200).astype(np.float32))})
    doubled = SparseHits(original.docs, original.scores * np.float32(4))
    for name in ("product", "mask"):
        anchored = SPARSE_OPERATORS[name].function({"query": original, "expanded": doubled})
        assert (
            sparse_order(anchored.docs, anchored.scores).tolist()
            == sparse_order(original.docs, original.scores).tolist()
        )


def test_each_sparse_operator_has_the_support_the_paper_gives_it():
    given = {
        "query": hits(ORIGINAL),
        "expanded": hits(EXPANDED),
        "references": hits({1: 1.0, 5: 2.0, 9: 4.0}),
    }
    given |= {"query2doc": hits({2: 1.0}), "mugi": hits({3: 1.0}), "word2passage": hits({6: 1.0})}
    given |= {"rm3": hits(EXPANDED), "rocchio": hits(EXPANDED)}
    support = {
        n: op.function(given, **NONE_ADMITTED.get(n, {})).docs.tolist()
        for n, op in SPARSE_OPERATORS.items()
    }
    assert support == {
        "original": [1, 4, 7, 9],
        "product": [1, 4, 7, 9],
        "mask": [1, 4, 7, 9],
        "rewrite": sorted(EXPANDED),
        "references_only": [1, 5, 9],
        "references_product": [1, 9],
        "query2doc": [2],
        "mugi": [3],
        "relax_count": [1, 4, 7, 9],
        "relax_share": [1, 4, 7, 9],
        "word2passage": [6],
        "masked_sum": [1, 4, 7, 9],
        "geometric": [1, 4, 7, 9],
        "rank_sum": [1, 4, 7, 9],
        "rm3": sorted(EXPANDED),
        "rm3_product": [1, 4, 7, 9],
        "rocchio": sorted(EXPANDED),
        "rocchio_product": [1, 4, 7, 9],
    }
    assert SPARSE_OPERATORS["mask"].function(given).scores.tolist() == [
        3.0,
        0.5,
        6.0,
        np.float32(3.3),
    ]
    assert SPARSE_OPERATORS["references_product"].function(given).scores.tolist() == [
        2.5,
        float(np.float32(3.1)) * 4,
    ]


def test_empty_support_stays_empty():
    none = hits({})
    for name, operator in SPARSE_OPERATORS.items():
        given = dict.fromkeys(operator.texts, none) | {"expanded": hits(EXPANDED)}
        found = operator.function(given, **NONE_ADMITTED.get(name, {}))
        assert found.docs.size == (len(EXPANDED) if name == "rewrite" else 0)


def test_a_query_hit_that_the_expansion_lacks_is_our_mistake():
    with pytest.raises(AssertionError, match=r"documents \[4\]"):
        SPARSE_OPERATORS["product"].function(
            {"query": hits(ORIGINAL), "expanded": hits({1: 1, 7: 1, 9: 1})}
        )


def test_every_operator_asks_for_texts_that_exist():
    assert {source for operator in DENSE_OPERATORS.values() for source in operator.texts} == set(
        DENSE_TEXTS
    )
    asked = {source for operator in SPARSE_OPERATORS.values() for source in operator.texts}
    assert asked == set(SPARSE_TEXTS) | set(SPARSE_TERMS) | set(FEEDBACK)


def test_text_templates():
    query, references = "blue whale", ["r one", "r two"]
    assert DENSE_TEXTS["query"](query, references) == [query]
    assert DENSE_TEXTS["query_reference"](query, references) == [
        "blue whale [SEP] r one",
        "blue whale [SEP] r two",
    ]
    assert DENSE_TEXTS["reference"](query, references) == references
    assert SPARSE_TEXTS["query"](query, references) == query
    assert SPARSE_TEXTS["expanded"](query, references) == "blue whale r one r two"
    assert SPARSE_TEXTS["references"](query, references) == "r one r two"
    assert SPARSE_TEXTS["query2doc"](query, ["p"]) == " ".join([query] * 5 + ["p"])
    assert SPARSE_TEXTS["mugi"]("ab", ["x" * 9, "y" * 8]) == "ab ab " + "x" * 9 + " " + "y" * 8


@pytest.mark.parametrize(
    ("query", "references", "copies"),
    [
        ("ab", ["x" * 16], 2),
        ("ab", ["x" * 15], 1),
        ("ab", ["x" * 7], 0),
        ("", ["x" * 100], 0),
        ("ab", [], 0),
        ("😀😀", ["é" * 10, "😀" * 6], 2),  # code points, not bytes or UTF-16 units
    ],
)
def test_mugi_repeats_floor_of_reference_length_over_beta_times(query, references, copies):
    """Mugi repeats floor of reference length over beta times query length."""
    assert mugi_repeats(query, references) == copies
    assert SPARSE_TEXTS["mugi"](query, references) == " ".join([query] * copies + references)
