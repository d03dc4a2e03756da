"""Tables of further statistics against numbers worked out by hand from a few records."""

import numpy as np
import polars as pl
import pytest

from desa_ray.core.statistics.inference import holm
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.by_dataset import dataset_tests_table, depth_quantiles_tables
from desa_ray.report.cases import cases_table, side_by_side
from desa_ray.report.comparisons import external_table, primary_tests_table
from desa_ray.report.draw_variance import draw_variance_table
from desa_ray.report.equivalence import Margin, equivalence_table, equivalent, leave_one_out_table
from desa_ray.report.families import families_table
from desa_ray.report.grid import grid_table
from desa_ray.report.judgments import judgments_table
from desa_ray.report.results import channel_evidence_table, main_table, per_dataset_table
from desa_ray.report.robustness import ablations_table, robustness_table
from desa_ray.report.roles import Roles
from desa_ray.report.study import Study
from tests.report.made_up import cell, study_records

FAST = Sampling(resamples=400, seed=1)
METHODS = ("original", "shared", "mine")


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(study_records(methods=METHODS))


def told(table, *names: str) -> dict:
    """Rows by some of what they are about."""
    return {tuple(row.about.get(name) for name in names): row.values for row in table.rows}


def test_tests_within_data_sets_are_one_family(study):
    rows = [row.values for row in dataset_tests_table(study, FAST).rows]
    assert len(rows) == 2 * 2 * 4
    assert [v["p_holm"] for v in rows] == pytest.approx(holm([v["p"] for v in rows]))
    means = {m: study.cell("fiqa", m).mean("ndcg_at_10") for m in METHODS}
    found = told(dataset_tests_table(study, FAST), "dataset", "comparator", "outcome")
    effect = found["fiqa", "shared", "ndcg_at_10"]["effect"]
    assert effect == pytest.approx(means["mine"] - means["shared"])


def test_too_few_resamples_adjust_nothing(study):
    """Four hypotheses need 79 resamples; the table says so and prints no p of Holm's."""
    table = primary_tests_table(study, Sampling(resamples=78))
    assert {row.values["p_holm"] for row in table.rows} == {None}
    assert any("78 resamples cannot reject" in note for note in table.notes)
    table = primary_tests_table(study, Sampling(resamples=79))
    assert None not in {row.values["p_holm"] for row in table.rows}


def test_max_t_stands_beside_holm_in_a_family(study):
    roles = Roles(subject="mine", all_pairs=True)
    family = Study(study_records(methods=METHODS), roles=roles)
    rows = [row.values for row in families_table(family, FAST).rows]
    assert len(rows) == 3 * 4
    for row in rows:
        assert row["p"] <= row["p_max_t"] + 0.05
        assert row["p_max_t"] <= 1
    assert min(r["p_max_t"] for r in rows) <= min(r["p_holm"] for r in rows) + 0.02


def known_depths() -> pl.DataFrame:
    """The subject's depths are 1 to 40, those of the reference and of kappa 2 twice these."""
    frames = []
    labels = (
        ("original", "60"),
        ("mine", "60"),
        ("binary", "60"),
        ("original", "2"),
        ("mine", "2"),
    )
    for method, kappa in labels:
        own = cell("fiqa", method, draws=1, kappa=kappa)
        times = 1 if (method, kappa) == ("mine", "60") else 2
        depths = times * pl.int_range(1, 41, dtype=pl.Int64)
        names = ("depth_dense", "depth_sparse", "depth_total")
        frames.append(own.with_columns(depths.alias(name) for name in names))
    return pl.concat(frames, how="diagonal_relaxed")


TAILS = {"p50": 20.5, "p90": 36.1, "p95": 38.05, "p99": 39.61}  # of 1 to 40, linear interpolation


def test_tails_stand_beside_every_mean_depth():
    """In each table that shows a mean depth or its reduction: main, data sets, external, grid,
    evidence, ablations, robustness.
    """
    roles = Roles(subject="mine", reference="original", ablations=("binary",))
    study = Study(known_depths(), roles=roles, primary={"kappa": "60"})
    mine = {"method": "mine"}
    depths = [
        (main_table(study), mine, ("depth_dense", "depth_sparse")),
        (per_dataset_table(study), mine, ("depth_dense", "depth_sparse")),
        (external_table(study_with_a_stranger()), mine, ("depth_total",)),
        (grid_table(study, FAST), {**mine, "kappa": "60"}, ("depth_dense", "depth_total")),
    ]
    for table, about, columns in depths:
        (row,) = [r.values for r in table.rows if about.items() <= r.about.items()]
        found = {f"{c}_{name}": row[f"{c}_{name}"] for c in columns for name in TAILS}
        wanted = {f"{c}_{name}": value for c in columns for name, value in TAILS.items()}
        assert found == pytest.approx(wanted), table.name
        assert {column.key for column in table.columns} >= set(wanted)
        assert not {column.key for column in table.narrow().columns} & set(wanted)
    reductions = [
        (channel_evidence_table(study), {"dataset": "fiqa"}, 50),
        (ablations_table(study), {"ablation": "binary_vs_mine"}, -100),
        (robustness_table(study), {"value": "60", "dataset": "fiqa"}, 50),
        (robustness_table(study), {"value": "2", "dataset": "fiqa"}, 0),
    ]
    for table, about, reduced in reductions:
        (row,) = [r.values for r in table.rows if about.items() <= r.about.items()]
        for column in ("depth_dense", "depth_sparse"):
            for name in TAILS:
                assert row[f"{column}_{name}"] == pytest.approx(reduced), (table.name, name)


def study_with_a_stranger() -> Study:
    records = known_depths().filter(pl.col("kappa") == "60")
    return Study(records, roles=Roles(subject="mine", reference="original"))


def test_bounds_of_unjudged_documents_are_intervals():
    """Two data sets with known shares; the macro is their mean, records without them have none."""
    frames = []
    for dataset, share in (("scifact", 0.5), ("fiqa", 1.0)):
        own = cell(dataset, "mine", draws=1)
        judged = {"judged_at_10": share, "judged_at_20": share / 2}
        upper = {"ndcg_upper_at_10": 1.0, "recall_upper_at_20": share}
        known = {"ndcg_at_10": 0.25, "recall_at_20": share / 2}
        values = judged | upper | known
        frames.append(own.with_columns(pl.lit(v).alias(n) for n, v in values.items()))
    table = judgments_table(Study(pl.concat(frames)))
    rows = {row.values["dataset"]: row.values for row in table.rows}
    assert rows["SciFact"]["judged_at_10"] == 50
    assert rows["SciFact"]["recall_bounds"] == (0.25, 0.5)
    macro = rows["macro"]
    assert (macro["judged_at_10"], macro["judged_at_20"]) == (75, 37.5)
    assert (macro["ndcg_bounds"], macro["recall_bounds"]) == ((0.25, 1), (0.375, 0.75))
    assert judgments_table(Study(cell("scifact", "mine"))) is None


def test_depths_have_medians_and_tails():
    """Of 1 to 100: linear interpolation gives 50.5, 90.1, 95.05 and 99.01."""
    queries = [f"q{n:03}" for n in range(100)]
    made = pl.concat([cell("scifact", "original")] * 4).head(100)
    depths = pl.Series(range(1, 101), dtype=pl.Int64)
    made = made.with_columns(query_id=pl.Series(queries), depth_sparse=depths)
    (table,) = depth_quantiles_tables(Study(made))
    found = told(table, "outcome")["depth_sparse",]
    assert [found[k] for k in ("mean", "p50", "p90", "p95", "p99", "largest")] == pytest.approx(
        [50.5, 50.5, 90.1, 95.05, 99.01, 100]
    )


def test_equivalence_is_the_interval_within_the_margin(study):
    assert equivalent(np.linspace(-1, 1, 101), 0.95) == (pytest.approx((-0.9, 0.9)), True)
    assert not equivalent(np.linspace(-1, 1, 101), 0.89)[1]
    base = cell("scifact", "original", draws=1)
    shifted = base.with_columns(
        method=pl.lit("mine"),
        config_hash=pl.lit("mine"),
        ndcg_at_10=pl.col("ndcg_at_10") * 0 + 0.504,
        recall_at_20=pl.col("recall_at_20") * 0 + 0.5,
        depth_dense=pl.lit(90, pl.Int64),
        depth_sparse=pl.lit(104, pl.Int64),
    )
    flat = base.with_columns(
        ndcg_at_10=pl.col("ndcg_at_10") * 0 + 0.5,
        recall_at_20=pl.col("recall_at_20") * 0 + 0.5,
        depth_dense=pl.lit(100, pl.Int64),
        depth_sparse=pl.lit(100, pl.Int64),
    )
    own = Study(pl.concat([flat, shifted], how="diagonal_relaxed"))
    found = told(equivalence_table(own, FAST, Margin()), "outcome")
    assert found["ndcg_at_10",]["verdict"] == "different, within the margin"
    assert found["recall_at_20",]["verdict"] == "equivalent"
    assert found["depth_dense",]["change"] == pytest.approx(-10)
    assert found["depth_dense",]["verdict"] == "different"
    assert found["depth_sparse",]["ci"] == pytest.approx((4, 4))
    narrow = told(equivalence_table(own, FAST, Margin(0.003, 3)), "outcome")
    assert narrow["ndcg_at_10",]["verdict"] == "different"
    assert narrow["depth_sparse",]["verdict"] == "different"


def test_each_data_set_is_left_out_in_turn():
    records = study_records(("scifact", "fiqa", "nfcorpus"), METHODS)
    study = Study(records)
    found = told(leave_one_out_table(study), "comparator", "outcome")["shared", "ndcg_at_10"]
    changes = {
        d: study.cell(d, "mine").mean("ndcg_at_10") - study.cell(d, "shared").mean("ndcg_at_10")
        for d in study.datasets
    }
    assert found["all"] == pytest.approx(np.mean(list(changes.values())))
    rest = np.mean([changes["scifact"], changes["nfcorpus"]])
    assert found["without_fiqa"] == pytest.approx(rest)
    assert found["range"][0] <= rest <= found["range"][1]
    assert leave_one_out_table(Study(study_records(("scifact",), METHODS))) is None


def test_draws_stand_apart_with_both_intervals(study):
    found = told(draw_variance_table(study, FAST), "method", "outcome")
    assert ("original", "ndcg_at_10") not in found
    own = found["mine", "ndcg_at_10"]
    macros = []
    for draw in range(3):
        means = []
        for dataset in study.datasets:
            records = study.cell(dataset, "mine").records
            means.append(records.filter(draw=draw)["ndcg_at_10"].mean())
        macros.append(np.mean(means))
    assert [own[f"draw_{n}"] for n in range(3)] == pytest.approx(macros)
    assert own["between"] == pytest.approx(np.std(macros, ddof=1))
    assert own["mean"] == pytest.approx(np.mean(macros))
    widths = {name: own[name][1] - own[name][0] for name in ("ci", "ci_draws")}
    assert widths["ci_draws"] > 0.9 * widths["ci"] > 0


def test_cases_are_the_largest_differences(study):
    table = cases_table(study, count=3)
    rows = [row for row in table.rows if row.about["comparator"] == "shared"]
    assert [row.values["place"] for row in rows] == [1, 2, 3] * 4
    every = []
    for dataset in study.datasets:
        own, other = (study.cell(dataset, m).means for m in ("mine", "shared"))
        change = (own["ndcg_at_10"] - other["ndcg_at_10"]).drop_nulls()
        every += change.to_list()
    largest = sorted(map(abs, every), reverse=True)[:3]
    found = [r.values["difference"] for r in rows if r.about["outcome"] == "ndcg_at_10"]
    assert list(map(abs, found)) == pytest.approx(largest)
    depths = [r.values for r in rows if r.about["outcome"] == "depth_dense"]
    assert all(v["difference"] == pytest.approx(v["other"] - v["own"]) for v in depths)


def test_several_methods_stand_side_by_side():
    records = [cell("scifact", m, draws=1).to_dicts()[0] | {"method": m} for m in METHODS]
    relevant = records[2]["top"][0]
    text = side_by_side(records, {relevant: 1})
    assert "| rank | Original | Shared | mine |" in text
    assert f"**{relevant}**" in text
    first = next(line for line in text.splitlines() if line.startswith("| 1 |"))
    assert [part.strip(" *") for part in first.split("|")[2:5]] == [r["top"][0] for r in records]
