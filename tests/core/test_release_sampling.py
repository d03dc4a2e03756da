"""The authors' intervals and p values from their own rows, to the digit."""

import polars as pl
import pytest

from desa_ray.core.statistics.inference import holm, paired_outcomes
from desa_ray.core.statistics.release import SEED
from desa_ray.core.statistics.sampling import Sampling
from tests.release_data import RELEASE, query_strata

COLUMNS = ("proposed_delta_ndcg", "proposed_delta_recall")


@pytest.fixture(scope="module")
def published() -> list[dict]:
    tests = pl.read_csv(RELEASE / "primary-paired-tests.csv")
    return tests.filter(pl.col("comparison") == "proposed_vs_original").to_dicts()[:2]


@pytest.mark.long
def test_intervals_and_p_are_the_published_ones(published):
    found = paired_outcomes(query_strata(*COLUMNS), Sampling(seed=SEED, scheme="release"))
    assert [row["metric"] for row in published] == ["ndcg_at_10", "recall_at_20"]
    for own, row in zip(found, published, strict=True):
        assert own.effect == pytest.approx(row["favorable_difference"], abs=1e-12)
        assert own.low == pytest.approx(row["ci95_lower"], abs=1e-12)
        assert own.high == pytest.approx(row["ci95_upper"], abs=1e-12)
        assert own.p == pytest.approx(row["p_raw"], abs=1e-15)
        assert holm([own.p] * 4)[0] == pytest.approx(row["p_holm"], abs=1e-15)


def test_our_own_streams_agree_within_their_noise(published):
    """Another generator draws other samples of the same distribution (CHECKS 13)."""
    found = paired_outcomes(query_strata(*COLUMNS), Sampling(seed=SEED))
    for own, row in zip(found, published, strict=True):
        assert own.low == pytest.approx(row["ci95_lower"], abs=4e-4)
        assert own.high == pytest.approx(row["ci95_upper"], abs=4e-4)
        assert own.p == pytest.approx(row["p_raw"], abs=1e-15)


@pytest.mark.parametrize(
    ("raw", "adjusted"),
    [
        (
            [0.00029997000299970003, 0.09119088091190881, 0.31566843315668436, 0.7909209079092091],
            [0.0011998800119988001, 0.27357264273572646, 0.6313368663133687, 0.7909209079092091],
        ),
        ([0.9197080291970803, 0.7667233276672333], [1.0, 1.0]),
        ([9.999000099990002e-05, 9.999000099990002e-05], [0.00019998000199980003] * 2),
    ],
)
def test_holm_gives_the_published_values(raw, adjusted):
    assert holm(raw) == pytest.approx(adjusted, abs=1e-15)


def test_a_column_alone_gives_what_it_gives_among_others():
    """The stream does not depend on values, so columns may be tested together."""
    strata = [values[:40] for values in query_strata(*COLUMNS)]
    sampling = Sampling(200, SEED, "release")
    both = paired_outcomes(strata, sampling)
    alone = paired_outcomes([values[:, 1:] for values in strata], sampling)
    assert both[1] == alone[0]
