"""Every table against numbers derived by hand from a few records, or by another route from many."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from desa_ray.core.statistics.inference import holm
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.report.comparisons import (
    external_table,
    operator_controls_tables,
    primary_tests_table,
    qudar_effects_table,
    qudar_weights_table,
)
from desa_ray.report.cutoffs import cutoff_tables
from desa_ray.report.mechanism import mechanism_table
from desa_ray.report.mechanism_gains import correlations_tables, operator_draws, quartiles_tables
from desa_ray.report.names import NDCG
from desa_ray.report.results import main_table
from desa_ray.report.robustness import ablations_table, robustness_table
from desa_ray.report.study import Study
from tests.report.made_up import cell, everything, study_records

FAST = Sampling(resamples=400, seed=1)


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(everything())


def few(method: str, values: dict[str, list], draws: int = 1) -> pl.DataFrame:
    """A cell of two queries with these values, one per (draw, query)."""
    records = cell("scifact", method, queries=["a", "b"], draws=draws)
    return records.with_columns(pl.Series(name, own, strict=False) for name, own in values.items())


def rows(table) -> list[dict]:
    return [dict(row.values) for row in table.rows]


def test_shallower_in_both_compares_draw_averaged_depths():
    original = few("original", {"depth_dense": [10, 10], "depth_sparse": [10, 10]})
    # Query a: means 9 and 9, though one draw is deeper. Query b: equal in the dense channel.
    desa = few("desa", {"depth_dense": [12, 10, 6, 10], "depth_sparse": [9, 1, 9, 1]}, draws=2)
    table = main_table(Study(pl.concat([original, desa], how="diagonal_relaxed")))
    found = {row.about["method"]: row.values.get("both_shallower") for row in table.rows}
    assert found == {"original": None, "desa": 50.0}


def test_queries_without_a_positive_judgment_count_in_depths():
    """Queries without a positive judgment count in depths only."""
    original = few("original", {"ndcg_at_10": [0.5, None], "depth_dense": [10, 30]})
    desa = few("desa", {"ndcg_at_10": [0.6, None], "depth_dense": [8, 20]})
    study = Study(pl.concat([original, desa], how="diagonal_relaxed"))
    found = {row.about["outcome"]: row.values for row in primary_tests_table(study, FAST).rows}
    assert found["ndcg_at_10"]["effect"] == pytest.approx(0.1)
    assert found["ndcg_at_10"]["wins"] == 1
    assert found["depth_dense"]["effect"] == pytest.approx((2 + 10) / 2)
    assert found["depth_dense"]["wins"] == 2


def test_primary_families_are_adjusted_a_comparator_at_a_time(study):
    table = primary_tests_table(study, FAST)
    for comparator in ("original", "shared"):
        own = [row.values for row in table.rows if row.about["comparator"] == comparator]
        assert len(own) == 4
        assert [v["p_holm"] for v in own] == pytest.approx(holm([v["p"] for v in own]))
        assert all(v["ci"][0] <= v["effect"] <= v["ci"][1] for v in own)
        assert all(v["wins"] + v["ties"] + v["losses"] in (68, 70) for v in own)


def test_operator_effects_are_proposed_minus_control_in_families(study):
    """Operator effects are proposed minus control in families of two."""
    _, effects = operator_controls_tables(study, FAST)
    own = [row for row in effects.rows if row.about["control"] == "Dense residual"]
    means = {
        m: np.mean(study.dataset_means(m, NDCG.column)) for m in ("dense_only", "contextual_dense")
    }
    assert own[0].values["effect"] == pytest.approx(means["dense_only"] - means["contextual_dense"])
    assert [r.values["p_holm"] for r in own] == pytest.approx(holm([r.values["p"] for r in own]))


def test_qudars_depth_comparisons_are_a_family(
    study,
):
    """Qudars depth comparisons are a family of their own and its reduction one minus a ratio
    of macros.
    """
    table = qudar_effects_table(study, FAST)
    depths = [row for row in table.rows if row.about["outcome"] == "depth_total"]
    assert [r.values["p_holm"] for r in depths] == pytest.approx(
        holm([r.values["p"] for r in depths])
    )
    macros = [np.mean(study.dataset_means(m, "depth_total")) for m in ("desa", "qudar_complete")]
    low, high = depths[0].values["reduction_ci"]
    assert depths[0].values["reduction"] == pytest.approx(100 * (1 - macros[0] / macros[1]))
    assert low < depths[0].values["reduction"] < high
    external = {row.about["method"]: row.values for row in external_table(study).rows}
    assert external["qudar_complete"]["subject_reduction"] == pytest.approx(
        depths[0].values["reduction"]
    )
    assert set(external) == {
        "original",
        "desa",
        "qudar_complete",
        "qudar_weighted",
        "hyde",
        "mugi",
        "query2doc",
    }


def test_weight_audit_counts_unchanged_pairs_and_reads(study):
    """Weight audit counts unchanged pairs and reads the recorded weights."""
    (row,) = qudar_weights_table(study, FAST).rows
    assert row.values["weights"] == pytest.approx((0.24, 0.26))
    pairs = [
        (study.cell(d, "qudar_weighted"), study.cell(d, "qudar_complete")) for d in study.datasets
    ]
    same = [
        abs(a - b) <= 1e-12
        for own, other in pairs
        for a, b in zip(own.records["ndcg_at_10"], other.records["ndcg_at_10"], strict=True)
        if a is not None
    ]
    assert row.values["ndcg_at_10_unchanged"] == pytest.approx(100 * np.mean(same))


def test_cutoff_labels_by_hand():
    lengths = {"cutoffs": [[10, 50]] * 4}
    # At L = 10: query a is a loss that is really a gain (reversal); query b a tie that is really a
    # gain (change).
    desa = few(
        "desa",
        {
            **lengths,
            "ndcg_at_10": [0.6, 0.6, 0.6, 0.6],
            "cut_ndcg_at_10": [[0.4, 0.6], [0.5, 0.6], [0.6, 0.6], [0.6, 0.6]],
            "cut_recall_at_20": [[0.5, 0.5]] * 4,
            "recall_at_20": [0.5] * 4,
            "cut_same_top": [[False, True], [False, True], [True, True], [False, True]],
        },
        draws=2,
    )
    base = {"cutoffs": [[10, 50]] * 2, "ndcg_at_10": [0.5, 0.5], "recall_at_20": [0.5, 0.5]}
    cuts = {
        "cut_ndcg_at_10": [[0.5, 0.5]] * 2,
        "cut_recall_at_20": [[0.5, 0.5]] * 2,
        "cut_same_top": [[True, True]] * 2,
    }
    study = Study(pl.concat([few("original", base | cuts), desa], how="diagonal_relaxed"))
    table, cells = cutoff_tables(study)
    first, second = rows(table)
    assert (first["same_top"], first["ndcg_at_10_change"], first["ndcg_at_10_reversal"]) == (
        25,
        50,
        25,
    )
    assert (first["recall_at_20_change"], first["recall_at_20_reversal"]) == (0, 0)
    assert (second["same_top"], second["ndcg_at_10_change"]) == (100, 0)
    shares = {
        (r.about["length"], r.about["outcome"], r.about["fixed"]): r.values for r in cells.rows
    }
    assert shares[10, "ndcg_at_10", "loss"]["gain"] == 25
    assert shares[10, "ndcg_at_10", "tie"]["gain"] == 25
    assert shares[10, "recall_at_20", "tie"]["tie"] == 100


def test_fallbacks_count_in_tests_but_not_in_mechanism(study):
    table = mechanism_table(study)
    by_dataset = {row.about.get("dataset", "macro"): row.values for row in table.rows}
    for dataset in study.datasets:
        records = study.cell(dataset, "desa").records
        kept = records.filter(~pl.col("fallback"))
        assert kept.height < records.height
        assert by_dataset[dataset]["pairs"] == kept.height
        turnover = kept.group_by("query_id").agg(pl.col("turnover").mean())["turnover"].mean()
        assert by_dataset[dataset]["turnover"] == pytest.approx(100 * turnover)
        assert by_dataset[dataset]["no_relevant"] == kept["rr_change"].null_count()
        assert by_dataset[dataset]["max_angle"] == kept["dense_angle_deg"].max()
    means = [by_dataset[dataset]["rr_change"] for dataset in study.datasets]
    assert by_dataset["macro"]["rr_change"] == pytest.approx(np.mean(means))
    assert by_dataset["macro"]["pairs"] == sum(
        by_dataset[dataset]["pairs"] for dataset in study.datasets
    )


def test_correlations_equal_scipy_over_query_means(study):
    macros, by_dataset = correlations_tables(study)
    found = {row.about["correlation"]: row.values for row in macros.rows}
    assert len(found) == 5
    draws = [operator_draws(study, d, "dense_angle_deg") for d in study.datasets]
    columns = ["dense_angle_deg", "ndcg_gain"]
    own = []
    for frame in draws:
        means = frame.group_by("query_id").agg(pl.col(columns).mean()).drop_nulls()
        own.append(stats.spearmanr(*(means[c] for c in columns)).statistic)
    assert found["angle_vs_ndcg_gain"]["spearman"] == pytest.approx(np.mean(own))
    pooled = pl.concat([frame.select(columns) for frame in draws]).drop_nulls()
    expected = stats.spearmanr(*(pooled[c] for c in columns)).statistic
    assert found["angle_vs_ndcg_gain"]["pooled"] == pytest.approx(expected)
    assert len(by_dataset.rows) == 5 * len(study.datasets)


def test_quarters_count_every_query_once_in_each_data_set(study):
    macros, by_dataset = quartiles_tables(study)
    angles = [row.values for row in macros.rows if row.about["diagnostic"] == "dense_angle_deg"]
    assert [row["quarter"] for row in angles] == [1, 2, 3, 4]
    assert sorted(row["mean"] for row in angles) == [row["mean"] for row in angles]
    for dataset in study.datasets:
        desa = study.cell(dataset, "desa").records.filter(~pl.col("fallback"))
        judged = desa.drop_nulls("ndcg_at_10")["query_id"].n_unique()
        own = [r.values for r in by_dataset.rows if r.about["dataset"] == dataset]
        for title in {row["diagnostic"] for row in own}:
            assert sum(row["queries"] for row in own if row["diagnostic"] == title) == judged


def test_tables_whose_columns_were_not_recorded_are_left_out():
    without = (
        "turnover",
        "rr_change",
        "support_retained",
        "cutoffs",
        "cut_ndcg_at_10",
        "cut_recall_at_20",
        "cut_same_top",
    )
    study = Study(study_records(("scifact",), ("original", "desa"), without=without))
    assert cutoff_tables(study) == []
    assert mechanism_table(study) is None
    assert correlations_tables(study) == []
    assert quartiles_tables(study) == []


def test_ablations_stand_against_desa_and_reference_counts(study):
    """Ablations stand against desa and reference counts against the next smaller."""
    found = {row.about["ablation"]: row.values for row in ablations_table(study).rows}
    means = {m: np.mean(study.dataset_means(m, NDCG.column)) for m in ("desa", "binary_mask")}
    assert found["binary_mask_vs_desa"]["ndcg_at_10"] == pytest.approx(
        100 * (1 - means["desa"] / means["binary_mask"])
    )
    assert {"refs_1_to_3", "refs_3_to_5"} <= set(found)


def test_every_axis_varies_alone_and_a_sample_is_compared(study):
    """Every axis varies alone and a sample is compared on its own queries."""
    table = robustness_table(study)
    values: dict[str, list[str]] = {}
    for row in table.rows:
        own = values.setdefault(row.about["axis"], [])
        own += [str(row.about["value"])] if str(row.about["value"]) not in own else []
    assert set(values) == {"kappa", "encoder", "generator", "corpus_docs"}
    assert values["kappa"] == ["2", "20", "60", "100"]
    sample = next(
        r.values
        for r in table.rows
        if r.about["value"] == "smollm2" and r.about.get("dataset") == "fiqa"
    )
    assert sample["queries"] == 10
    # One draw of one query fell back: of 30 query-draws, and of 10 queries.
    assert sample["fallback"] == pytest.approx(100 / 30)
    assert sample["fallback_queries"] == pytest.approx(100 / 10)
    original = study.cell("fiqa", "original").means.filter(
        pl.col("query_id").is_in([f"q{n}" for n in range(10)])
    )
    assert sample["reference"] == pytest.approx(original["ndcg_at_10"].mean())
    sizes = [r.about["dataset"] for r in table.rows if r.about["axis"] == "corpus_docs"]
    assert sizes == ["scifact"] * 3


def test_a_family_that_lacks_a_comparison_says_so(study):
    """One total-depth test alone is adjusted by nothing."""
    assert not any("comparisons" in note for note in qudar_effects_table(study, FAST).notes)
    methods = ("original", "desa", "qudar_complete")
    table = qudar_effects_table(Study(study_records(methods=methods)), FAST)
    (depth,) = [row.values for row in table.rows if row.about["outcome"] == "depth_total"]
    assert depth["p"] == depth["p_holm"]
    (said,) = [note for note in table.notes if "comparisons" in note]
    assert "1 of 2" in said
    assert "QuDAR-weighted" in said


def test_the_external_table_says_why_it_is_empty():
    """HyDE lacks a data set, and fusion by scores has no depths: a note names each."""
    parts = [
        cell(name, method)
        for name in ("scifact", "fiqa")
        for method in ("original", "desa", "qudar_score", "hyde")
        if (name, method) != ("fiqa", "hyde")
    ]
    records = pl.concat(parts, how="diagonal")
    scored = pl.col("method") == "qudar_score"
    depth = pl.when(~scored).then("depth_total").alias("depth_total")
    table = external_table(Study(records.with_columns(depth)))
    assert [note for note in table.notes if "HyDE" in note or "QuDAR" in note] == [
        "HyDE has no numbers: no records on FiQA, and macros are over all",
        "no total depth of QuDAR, scores: they fuse scores, which certifies no depth",
    ]
    values = {row.about["method"]: row.values for row in table.rows}
    assert values["hyde"]["ndcg_at_10"] is None
    assert values["qudar_score"]["depth_total"] is None
    assert values["qudar_score"]["ndcg_at_10"] is not None
