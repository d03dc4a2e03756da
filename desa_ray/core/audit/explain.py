"""Which rule explains a fused answer: formula, constant, weights and rounding.

Variants are tried from the plainest to the oddest. With scores, a variant explains an answer if one
set of weights above 0 gives all its scores within rounding; without, if equal or declared weights
give an order that never rises. In both cases no document may be missing that would stand above the
last one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from desa_ray.core.audit.evidence import Evidence
from desa_ray.core.rules.normalise import NORMALISERS, OPENSEARCH, Normaliser, ScoreBounds
from desa_ray.core.rules.registry import MEANS, ScoredList
from desa_ray.errors import DesaError

KAPPAS = (60, 59, 61, 1, 2, 0, *(n for n in range(3, 201) if n not in (59, 60, 61)))
FLOAT = 2e-6  # of the largest score: float32 sums
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Variant:
    """A way to fuse: `shares` [N, C] of every document by leg (NaN where absent), and
    `factor` [N], what the weighted sum is multiplied by.
    """

    formula: str
    shares: Matrix
    factor: Matrix
    odd: str = ""
    fixed: bool = False  # weights are inside already, all 1


@dataclass(frozen=True)
class Explanation:
    """A rule that explains an answer.

    Attributes:
        formula: in words and symbols.
        weights: by leg, up to what the scores tell.
        rounding: how scores differ from exact ones.
        odd: what is wrong with the rule, or "".
    """

    formula: str
    weights: tuple[float, ...]
    rounding: str
    odd: str

    def __str__(self) -> str:
        weights = ", ".join(f"{w:.6g}" for w in self.weights)
        told = f"{self.formula}; weights {weights}; {self.rounding}"
        return f"{told}; {self.odd}" if self.odd else told


def explain(
    evidence: Evidence, weights: Sequence[float] | None = None, *, cut: bool = True
) -> Explanation | None:
    """The first variant that explains the answer; None where none does.

    Args:
        weights: declared ones; found from the scores where left out.
        cut: whether the answer holds the first documents only; else its documents are all there
            are, and others of the legs may have been filtered.
    """
    documents = sorted({d for leg in evidence.legs for d in leg.documents})
    if not set(evidence.answer) <= set(documents):
        return None
    # Faulty ways are claimed on strong evidence only: scores, and more of them than weights.
    telling = len(evidence.scores) >= len(evidence.legs) + 4
    for variant in variants(evidence, documents):
        if variant.odd and not telling:
            return None
        found = _fitted(evidence, documents, variant, weights, cut)
        if found is not None:
            return found
    return None


def variants(evidence: Evidence, documents: Sequence[int]) -> Iterator[Variant]:
    """All ways to fuse, plain ones first."""
    legs = evidence.legs
    yield from _of_ranks(_ranks(legs, documents), "")
    if evidence.scored:
        yield from _of_scores(evidence, documents)
    there = set(evidence.answer)
    kept: list[ScoredList] = []
    for leg in legs:
        kept.append(ScoredList([d for d in leg.documents if d in there]))
    if any(len(a.documents) < len(b.documents) for a, b in zip(kept, legs, strict=True)):
        odd = "ranks were renumbered among the documents of the answer, after a filter"
        yield from _of_ranks(_ranks(kept, documents), odd, (60, 59, 61, 1, 2, 0))
    ranks_NC = _ranks(legs, documents)
    lengths = np.array([len(leg.documents) for leg in legs], float)
    filled = np.where(np.isnan(ranks_NC), lengths + 1, ranks_NC)
    odd = "documents absent from a list got the rank after its last, instead of no contribution"
    yield from _of_ranks(filled, odd, (60, 59, 61, 1, 2, 0))
    for place, name in enumerate(evidence.names):
        turned = list(legs)
        turned[place] = ScoredList(list(reversed(legs[place].documents)))
        odd = f"{name} was read from its end: are its scores distances?"
        yield from _of_ranks(_ranks(turned, documents), odd, (60, 59, 61, 1, 2, 0))


def _ranks(legs: Sequence[ScoredList], documents: Sequence[int]) -> Matrix:
    place = {document: n for n, document in enumerate(documents)}
    ranks_NC = np.full((len(documents), len(legs)), np.nan)
    for c, leg in enumerate(legs):
        rows = [place[d] for d in leg.documents]
        ranks_NC[rows, c] = np.arange(1, len(rows) + 1)
    return ranks_NC


def _of_ranks(ranks_NC: Matrix, odd: str, kappas: Sequence[int] = KAPPAS) -> Iterator[Variant]:
    ones = np.ones(len(ranks_NC))
    for kappa in kappas:
        formula = (
            f"reciprocal rank fusion, kappa {kappa} with ranks from 1 (k = {kappa + 1} if ranks"
            " count from 0)"
        )
        yield Variant(formula, 1 / (kappa + ranks_NC), ones, odd)
    if odd:
        return
    held = (~np.isnan(ranks_NC)).sum(axis=1).astype(float)
    yield Variant("inverse square ranks (isr)", ranks_NC**-2, held)
    yield Variant("inverse square ranks (log_isr)", ranks_NC**-2, np.log(np.maximum(held, 1)))


def _of_scores(evidence: Evidence, documents: Sequence[int]) -> Iterator[Variant]:
    place = {document: n for n, document in enumerate(documents)}
    ones = np.ones(len(documents))
    tables: list[tuple[str, str, Normaliser]] = [
        *((n, "", t) for n, t in NORMALISERS.items() if not t.needs)
    ]
    tables += [(n, "OpenSearch's ", t) for n, t in OPENSEARCH.items() if not t.needs]
    for name, whose, normaliser in tables:
        shares_NC = np.full((len(documents), len(evidence.legs)), np.nan)
        try:
            for c, leg in enumerate(evidence.legs):
                values = normaliser.apply(leg.scores, ScoreBounds())
                shares_NC[[place[d] for d in leg.documents], c] = [float(x) for x in values]
        except DesaError:
            continue
        told = "raw scores" if name == "none" else f"{whose}{name} scores"
        held = (~np.isnan(shares_NC)).sum(axis=1).astype(float)
        yield Variant(f"sum of {told}", shares_NC, ones)
        yield Variant(f"sum of {told} times the number of lists (combmnz)", shares_NC, held)
        if whose:
            yield from _of_means(told, shares_NC)


def _of_means(told: str, shares_NC: Matrix) -> Iterator[Variant]:
    weights = [Fraction(1)] * shares_NC.shape[1]
    there = np.where(shares_NC > 0, shares_NC, np.nan)
    held = (~np.isnan(there)).sum(axis=1)
    some = np.maximum(held, 1)
    logs = np.where(np.isnan(there), 0.0, np.log(np.where(np.isnan(there), 1.0, there)))
    below = np.where(np.isnan(there), 0.0, 1 / np.where(np.isnan(there), 1.0, there)).sum(axis=1)
    means = {
        "geometric": np.where(held > 0, np.exp(logs.sum(axis=1) / some), 0.0),
        "harmonic": np.where(held > 0, held / np.where(below > 0, below, 1.0), 0.0),
    }
    assert set(means) < set(MEANS)
    ones = np.ones(len(shares_NC))
    for name, values in means.items():
        columns = np.full((len(values), len(weights)), np.nan)
        columns[:, 0] = values
        yield Variant(f"{name} mean of {told}", columns, ones, fixed=True)


def _fitted(
    evidence: Evidence,
    documents: Sequence[int],
    variant: Variant,
    weights: Sequence[float] | None,
    cut: bool,
) -> Explanation | None:
    shares_NC = np.nan_to_num(variant.shares) * variant.factor[:, None]
    rows = np.searchsorted(documents, evidence.answer)
    legs = shares_NC.shape[1]
    scores_A = np.array(evidence.scores)
    digits = _digits(scores_A)
    for given in _weights(shares_NC[rows], scores_A, weights, variant.fixed):
        predicted_N = shares_NC @ given
        own_A = predicted_N[rows]
        rounding = _rounding(own_A, scores_A, digits) if scores_A.size else _order_only(own_A)
        if rounding is None:
            continue
        slack = FLOAT * max(np.abs(predicted_N).max(), 1e-30)
        left = np.delete(predicted_N, rows)
        if cut and left.size and left.max() > own_A.min() + max(slack, _step(rounding, digits)):
            continue
        shown = given if not variant.fixed else np.ones(legs)
        return Explanation(variant.formula, tuple(shown.tolist()), rounding, variant.odd)
    return None


def _weights(
    shares_AC: Matrix, scores_A: Matrix, declared: Sequence[float] | None, fixed: bool
) -> Iterator[Matrix]:
    legs = shares_AC.shape[1]
    if fixed:
        yield np.ones(legs)
        return
    if declared is not None:
        yield np.array(declared, float)
        return
    yield np.ones(legs)
    yield np.ones(legs) / legs
    if scores_A.size > legs:
        found: Matrix = np.linalg.lstsq(shares_AC, scores_A, rcond=None)[0].astype(np.float64)
        if (found > 1e-9).all():
            yield found


def _rounding(exact_A: Matrix, scores_A: Matrix, digits: int | None) -> str | None:
    """How scores were rounded; None where they are not these."""
    error = float(np.abs(exact_A - scores_A).max())
    if error <= FLOAT * max(float(np.abs(scores_A).max()), 1e-30):
        return "scores equal to float32 precision or better"
    if digits is None:
        return None
    step = 10.0**-digits
    if error <= 0.5001 * step and exact_A.max() - exact_A.min() >= 10 * step:
        return f"scores rounded to {digits} digits after the decimal point"
    return None


def _digits(scores_A: Matrix) -> int | None:
    """How many digits after the point, 2 to 8, scores were printed with; None where more."""
    for digits in range(2, 9):
        if scores_A.size and np.abs(np.round(scores_A, digits) - scores_A).max() < 1e-9:
            return digits
    return None


def _step(rounding: str, digits: int | None) -> float:
    return 10.0**-digits if digits is not None and "rounded" in rounding else 0.0


def _order_only(exact_A: Matrix) -> str | None:
    slack = FLOAT * max(np.abs(exact_A).max(), 1e-30)
    if exact_A.size and (np.diff(exact_A) > slack).any():
        return None
    return "the answer has no scores: only the order agrees"
