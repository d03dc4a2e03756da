"""Paired tests between two methods of a study: effects with intervals, p, and Holm's correction
within their family.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from desa_ray.core.statistics.families import holm_can_reject
from desa_ray.core.statistics.inference import Paired, holm, paired_outcomes
from desa_ray.core.statistics.resampling import interval
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.names import EFFECTIVENESS, Outcome
from desa_ray.report.study import Study, paired_values, signed_differences
from desa_ray.report.table import Column, Row, Value


def paired_effects(
    study: Study,
    own: str,
    other: str,
    outcomes: Sequence[Outcome],
    sampling: Sampling,
) -> dict[Outcome, Paired] | None:
    """A paired test per outcome over all data sets; None where a data set lacks one of the methods
    or a value.

    Queries without a positive judgment count in depths only, so the two kinds of outcome are tested
    apart.
    """
    pairs = study.pairs(own, other)
    if pairs is None:
        return None
    found: dict[Outcome, Paired] = {}
    for kind in (True, False):
        group = [outcome for outcome in outcomes if (outcome in EFFECTIVENESS) is kind]
        if not group:
            continue
        strata = [signed_differences(*pair, group) for pair in pairs.values()]
        if not all(len(differences) for differences in strata):
            return None
        found |= dict(zip(group, paired_outcomes(strata, sampling), strict=True))
    return {outcome: found[outcome] for outcome in outcomes}


HOLM = Column("p_holm", "p (Holm)", "{:.4f}", help="adjusted within its family")
MAX_T = Column(
    "p_max_t", "p (max-T)", "{:.4f}", help="step-down max-T within its family, signs shared by all"
)
THESE_DATASETS = (
    "intervals and p of a macro are about these data sets: queries are sampled, data sets are not"
)
QUERIES = "queries"  # the common heading of their counts
EFFECT_COLUMNS = (
    Column(
        "effect",
        "effect",
        "{:.5f}",
        help="macro difference; positive means the first method is better",
    ),
    Column("ci", "95 % CI", "{:.5f}", help="percentile interval of stratified bootstrap samples"),
    Column("p", "p", "{:.4f}", help="two-sided, stratified paired sign flips"),
    HOLM,
    Column("wins", "wins", "{:d}", help="queries where the first method is better", group=QUERIES),
    Column("ties", "ties", "{:d}", group=QUERIES),
    Column("losses", "losses", "{:d}", group=QUERIES),
    Column(
        "effect_size",
        "d_z",
        "{:+.3f}",
        help="effect in standard deviations of the query differences",
    ),
    Column(
        "detectable",
        "detectable",
        "{:.5f}",
        help="MDE: (z.975 + z.80) standard errors of the query differences, the smallest effect"
        " found with probability 0.8 at level 0.05",
    ),
)


def effect_rows(
    family: Sequence[tuple[dict[str, Value], dict[str, object], Outcome, Paired]],
    resamples: int,
) -> list[Row]:
    """The rows of one Holm family; each member brings its first columns, what it is about, its
    outcome and test.

    No p is adjusted where the resamples are too few for the family to reject anything.
    """
    adjusted: list[float] | list[None] = [None] * len(family)
    if holm_can_reject(len(family), resamples):
        adjusted = holm([paired.p for _, _, _, paired in family])
    return [
        Row(
            {
                **first,
                "outcome": outcome.title,
                "effect": paired.effect,
                "ci": (paired.low, paired.high),
                "p": paired.p,
                "p_holm": p_holm,
                "wins": paired.wins,
                "ties": paired.ties,
                "losses": paired.losses,
                "effect_size": paired.effect_size,
                "detectable": paired.detectable,
            },
            {**about, "outcome": outcome.column},
            dict.fromkeys(("effect", "ci", "detectable"), "{:.5f}" if outcome.higher else "{:.1f}"),
        )
        for (first, about, outcome, paired), p_holm in zip(family, adjusted, strict=True)
    ]


def too_few(hypotheses: int, resamples: int) -> list[str]:
    """What to know where a family is too large for its resamples."""
    if holm_can_reject(hypotheses, resamples):
        return []
    needed = 20 * hypotheses - 1
    what = f"{resamples} resamples cannot reject one of {hypotheses} hypotheses at 0.05"
    return [f"no p (Holm): {what}, {needed} could (resamples={needed})"]


def family_differences(
    study: Study, pairs: Sequence[tuple[str, str]], outcomes: Sequence[Outcome]
) -> list[np.ndarray]:
    """Differences of several pairs query by query, float64 [Q, pairs * outcomes] a data set; NaN
    where a query has no value.
    """
    strata = []
    for dataset in study.datasets:
        queries = pl.DataFrame({"query_id": []}, schema={"query_id": pl.String})
        frames = []
        for place, (own, other) in enumerate(pairs):
            first, second = study.cell(dataset, own), study.cell(dataset, other)
            assert first
            assert second
            names = [outcome.column for outcome in outcomes]
            both = first.means.select("query_id", *names).join(
                second.means.select("query_id", *names), on="query_id", suffix="_other"
            )
            change = [
                (outcome.sign * (pl.col(outcome.column) - pl.col(f"{outcome.column}_other"))).alias(
                    f"{place} {outcome.column}"
                )
                for outcome in outcomes
            ]
            frames.append(both.select("query_id", *change))
        together = frames[0] if frames else queries
        for frame in frames[1:]:
            together = together.join(frame, on="query_id", how="full", coalesce=True)
        values = together.sort("query_id").drop("query_id")
        strata.append(values.fill_null(float("nan")).to_numpy())
    return strata


def macro_reduction(
    study: Study, own: str, other: str, column: str, sampling: Sampling
) -> tuple[float, tuple[float, float]] | None:
    """1 - macro(own)/macro(other) in percent, and its interval: it is recomputed in every bootstrap
    sample (QuDAR).
    """
    pairs = study.pairs(own, other)
    if pairs is None:
        return None
    strata = [paired_values(*pair, [column])[:, 0] for pair in pairs.values()]
    macros = sampling.bootstrap_means(strata).mean(1)
    own_mean, other_mean = np.mean([values.mean(0) for values in strata], axis=0)
    return 100 * (1 - own_mean / other_mean), interval(100 * (1 - macros[:, 0] / macros[:, 1]))
