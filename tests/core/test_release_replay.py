"""The release's replay: which golden cases it decides otherwise and why; otherwise it is ours."""

import json
from fractions import Fraction

import numpy as np
import pytest

from desa_ray.core.fusion import depth, release, rrf
from desa_ray.core.fusion.registry import fusion_of
from desa_ray.errors import DesaError
from tests.reference import GOLDEN

ONE, SIXTY = Fraction(1), Fraction(60)
# tie: sums that are equal, or closer than float64 tells apart, are ordered by rounding errors.
# peek: reading stops when the union was seen, though a list could go on. K: above the union.
DIFFERENT = {
    "08_rand2": "peek",
    "12_rand4": "K",
    "16_ulp2_k60": "tie",
    "18_ulp2_k60": "tie",
    "19_ulp2_k60": "tie",
    "21_ulp2_k60": "tie",
    "23_ulp2_k60": "tie",
    "24_ulp2_k2": "tie",
    "26_ulp2_k2": "tie",
    "27_ulp2_k2": "tie",
    "29_ulp2_k2": "tie",
    "31_ulp2_k2": "tie",
    "32_perm4": "tie",
    "34_perm4": "tie",
    "35_perm4": "tie",
    "37_perm4": "tie",
    "38_k_gt_union": "K",
    "41_both_empty": "K",
    "51_utf8_swap": "peek",
    "53_utf8_swap": "peek",
    "59_corner_loose": "peek",
    "62_corner_float": "tie",
    "64_corner_float": "tie",
    "66_corner_loose": "peek",
}


def arrays(channels) -> list[np.ndarray]:
    return [np.array(channel, np.int32) for channel in channels]


def label(case: dict) -> str | None:
    """How the emulation differs from the exact rationals of a golden case; None if nowhere."""
    ids = sorted(set().union(*case["channels"]), key=str.encode)
    channels = arrays([[ids.index(name) for name in own] for own in case["channels"]])
    weights, kappa = [Fraction(own) for own in case["weights"]], Fraction(case["kappa"])
    expected = case["expected"]

    def same(peek: bool) -> bool:
        found = release.replay(channels, weights, kappa, case["K"], peek)
        top = [ids[number] for number in found.topk]
        return (top, list(found.depths)) == (expected["topk"], expected["depths"])

    if case["K"] > len(ids):
        with pytest.raises(DesaError, match=f"K is {case['K']}, but the lists hold {len(ids)}"):
            release.replay(channels, weights, kappa, case["K"])
        return "K"
    order = [ids[number] for number in release.fuse_order(channels, weights, kappa)]
    if order != expected["order"] or not same(peek=False):
        return "tie"
    return None if same(peek=True) else "peek"


def test_exactly_these_golden_cases_differ():
    cases = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in GOLDEN}
    found = {name: label(case) for name, case in cases.items()}
    assert {name: own for name, own in found.items() if own} == DIFFERENT


def test_the_peek_saves_reads_once_everything_was_seen():
    # Both lists hold documents 0 and 1 and nothing else. After one read of each, 0 is known
    # wholly; after 1 of the first list the union was seen, and 0 = 2/61 beats 1's 1/62 + 1/62.
    channels = arrays([[0, 1], [0, 1]])
    # K = 2: after (2, 1), 1 has 1/62, what is unread could give as much in the second list.
    ours, theirs = (own.replay(channels, [ONE, ONE], SIXTY, 2) for own in (depth, release))
    assert (ours.depths, theirs.depths) == ((2, 2), (2, 1))
    assert theirs.exhausted == (True, False)
    assert release.replay(channels, [ONE, ONE], SIXTY, 2, peek=False).depths == (2, 2)


def test_float_sums_decide_ties_by_rounding():
    # Ranks (1, 489) and (3, 367): equal sums of rationals, two floats (release, check 16).
    first, second = list(range(10, 499)), list(range(600, 1100))
    first[0], first[2] = 1, 0
    second[488], second[366] = 1, 0
    channels = arrays([first, second])
    exact = rrf.fuse_order(channels, [ONE, ONE], SIXTY).tolist()
    floats = release.fuse_order(channels, [ONE, ONE], SIXTY).tolist()
    assert exact.index(0) < exact.index(1)
    high = 1 / 61 + 1 / 549 > 1 / 63 + 1 / 427
    assert (floats.index(1) < floats.index(0)) == high
    assert 1 / 61 + 1 / 549 != 1 / 63 + 1 / 427


@pytest.mark.parametrize("seed", range(12))
def test_without_ties_and_peek_it_is_ours(seed):
    """Weights of odd denominators leave no ties; lists of many documents no time to see all."""
    rng = np.random.default_rng(seed)
    count, k = int(rng.integers(2, 5)), int(rng.integers(1, 21))
    weights = [Fraction(int(w), 10007) for w in rng.integers(3000, 9000, count)]
    common = rng.normal(size=900)
    channels = arrays(
        [np.argsort(common + rng.normal(size=900) * 0.5)[: rng.integers(0, 1500)] for _ in weights]
    )
    ours, theirs = (own.replay(channels, weights, SIXTY, k) for own in (depth, release))
    assert theirs.topk.tolist() == ours.topk.tolist()
    assert theirs.depths == ours.depths
    assert theirs.exhausted == ours.exhausted
    order = release.fuse_order(channels, weights, SIXTY)
    assert order[:k].tolist() == theirs.topk.tolist()


def test_the_registry_knows_who_does_what():
    assert fusion_of("rrf", "release").order is release.fuse_order
    assert fusion_of("rrf").order is rrf.fuse_order
    assert fusion_of("exp4fuse", "release") is fusion_of("exp4fuse")
    nothing = release.replay(arrays([[3], []]), [ONE, ONE], SIXTY, 0)
    assert (nothing.depths, nothing.exhausted) == ((0, 0), (False, True))
    tops = fusion_of("rrf", "release").tops(arrays([[3, 4], [4]]), [ONE, ONE], SIXTY, 1, [1, 2])
    assert [top.tolist() for top in tops] == [[3], [4]]
