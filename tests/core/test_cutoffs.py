"""Fixed cutoffs: fusing prefixes, against fusing them plainly, and what a cutoff does to a case
worked by hand.
"""

from fractions import Fraction
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desa_ray.core.cutoff_scores import cut_scores, exponential_cut_scores
from desa_ray.core.fusion.cutoffs import CUTOFFS, cut, prefix_tops
from desa_ray.core.fusion.registry import FUSIONS

ONE = Fraction(1)
ORDER = FUSIONS["rrf"].order


def arrays(channels):
    return [np.array(channel, np.int32) for channel in channels]


def test_the_cutoffs_are_the_papers():
    assert CUTOFFS == (10, 20, 50, 100, 200, 500, 1000)


def test_a_cutoff_takes_away_the_share_of_a_deep_rank_and_turns():
    # kappa 0. Complete: 9 has 1 + 1/3, 1 has 1/2 + 1/2, 4 has 1. At L = 2, 9 loses its 1/3 and ties
    # with 1 and 4.
    """A cutoff takes away the share of a deep rank and turns the order."""
    tops = prefix_tops(
        ORDER, arrays([[9, 1], [4, 1, 9]]), [ONE, ONE], Fraction(0), 3, [1, 2, 3, 1000]
    )
    assert [top.tolist() for top in tops] == [[4, 9], [1, 4, 9], [9, 1, 4], [9, 1, 4]]


def allowed(name: str, kappa: Fraction) -> Fraction:
    """The constant that a rule takes: Qdrant's k is 1 at least."""
    return max(kappa, ONE) if name == "qdrant_rrf" else kappa


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_prefixes_fuse_as_if_they_were_the_whole_and_a_long(data):
    """Prefixes fuse as if they were the whole and a long cutoff is the complete fusion."""
    size = data.draw(st.integers(0, 30))
    documents = data.draw(st.permutations(range(0, 3 * size, 3)))
    channels = arrays(
        [data.draw(st.permutations(documents))[: data.draw(st.integers(0, size))] for _ in range(3)]
    )
    weights = [Fraction(1, 4), ONE, ONE]
    for name, fusion in FUSIONS.items():
        kappa = allowed(name, Fraction(0))
        tops = prefix_tops(fusion.order, channels, weights, kappa, 5, [1, 4, 30])
        for top, length in zip(tops, [1, 4, 30], strict=True):
            wanted = fusion.order(cut(channels, length), weights, kappa, 5)
            assert top.tolist() == wanted.tolist(), name
        assert tops[-1].tolist() == fusion.order(channels, weights, kappa, 5).tolist()


@pytest.mark.long
@settings(deadline=None, max_examples=200)
@given(st.data())
def test_every_fusion_gives_the_tops_that_fusing_the_prefixes(data):
    """Every fusion gives the tops that fusing the prefixes one by one gives."""
    documents = data.draw(st.permutations(range(0, 60, 3)))
    channels = arrays(
        [data.draw(st.permutations(documents))[: data.draw(st.integers(0, 20))] for _ in range(3)]
    )
    # Equal weights and a kappa of 0 make many exact ties; huge numbers are left to wide integers.
    weights = data.draw(
        st.sampled_from(
            [[ONE] * 3, [Fraction(1, 4), ONE, ONE], [Fraction(1, 10**12 + 39), ONE, ONE]]
        )
    )
    drawn, k = (
        data.draw(st.sampled_from([Fraction(0), Fraction(60), Fraction(1, 3)])),
        data.draw(st.integers(0, 30)),
    )
    cutoffs = data.draw(st.lists(st.integers(1, 25), max_size=5))
    for name, fusion in FUSIONS.items():
        kappa = allowed(name, drawn)
        tops = fusion.tops(channels, weights, kappa, k, cutoffs)
        wanted = [
            fusion.order(cut(channels, length), weights, kappa, k).tolist() for length in cutoffs
        ]
        assert [top.tolist() for top in tops] == wanted, name
        m = data.draw(st.none() | st.integers(0, 30))
        head, tops = fusion.both(channels, weights, kappa, m, k, cutoffs)
        assert head.tolist() == fusion.order(channels, weights, kappa, m).tolist(), name
        assert [top.tolist() for top in tops] == wanted, name


def test_no_cutoffs_no_tops():
    assert prefix_tops(ORDER, arrays([[1]]), [ONE], Fraction(1), 3, []) == []


@pytest.mark.parametrize("length", [None, 2, 99])
def test_cut_keeps_heads(length):
    assert [own.tolist() for own in cut(arrays([[3, 1, 2], []]), length)] == [
        [3, 1, 2][:length],
        [],
    ]


def test_exponential_gain_of_tops_is_a_hand_computation():
    """Grades 3 and 1 weigh 7 and 1; what is not judged weighs nothing, nor does rank 11."""
    ideal = 7 + 1 / log2(3)
    tops = [["b", "a"], ["a", "b"], ["x"], [], [*"0123456789", "a"]]
    found = exponential_cut_scores(["q", "unjudged"], [tops, [["a"]] * 5], {"q": {"a": 3, "b": 1}})
    assert found[0] == pytest.approx([(1 + 7 / log2(3)) / ideal, 1, 0, 0, 0], abs=1e-15)
    assert found[1] is None
    binary = {"q": {"a": 1, "b": 1, "c": 0}}
    (linear,) = cut_scores(["q"], [tops], binary)
    (power,) = exponential_cut_scores(["q"], [tops], binary)
    assert power == pytest.approx(linear["cut_ndcg_at_10"], abs=1e-15)
