"""The authors' published rows through the report's own tables: their macros, percentages and tests
come out.
"""

import json

import polars as pl
import pytest
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from desa_ray.config_check import checked
from desa_ray.core.statistics.aggregate import macro
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.jobs.report import ReportConfig
from desa_ray.report.build import build_report
from desa_ray.report.comparisons import external_table, primary_tests_table, qudar_effects_table
from desa_ray.report.outcome_labels import outcome_labels_table
from desa_ray.report.paper_tables import PAPER_TABLES, held_out_table
from desa_ray.report.published import SAME, Published
from desa_ray.report.results import channel_evidence_table, gain, main_table
from desa_ray.report.robustness import ablations_table, robustness_table
from desa_ray.report.study import Study
from desa_ray.report.table import Table
from tests.release_compare import FILE, build
from tests.release_data import RELEASE, results
from tests.report.release_study import difference_records, published_records

FEW = Sampling(resamples=5)


@pytest.fixture(scope="module")
def study() -> Study:
    primary = {"encoder": "bge_small", "generator": "qwen2_5_7b", "kappa": "60", "n_refs": 5}
    return Study(published_records(), primary=primary)


@pytest.fixture(scope="module")
def expected() -> dict:
    return json.loads((RELEASE / "expected.json").read_text(encoding="utf-8"))


def row(table: Table | None, **about) -> dict:
    assert table is not None
    (found,) = [r for r in table.rows if about.items() <= r.about.items()]
    return dict(found.values)


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def test_headline_percentages_are_the_published_ones(study, expected):
    names = {"original": "original", "shared": "bridge_shared"}
    theirs = {"desa": "proposed", "dense_only": "dense_only", "sparse_only": "sparse_only"}
    for own, other in (*((m, "original") for m in theirs), ("desa", "shared")):
        for column in ("ndcg_at_10", "recall_at_20"):
            name = f"{theirs[own]}_vs_{names[other]}_{column}_gain_pct"
            assert gain(study, own, other, column) == close(expected["headline"][name])
    main = main_table(study)
    for method, name in {**names, **theirs}.items():
        values = expected["main_macro"][name]
        found = row(main, method=method)
        assert found["ndcg_at_10"] == close(values["ndcg_at_10"])
        assert found["depth_dense"] == close(values["dense_depth"])
        assert found["depth_sparse"] == close(values["sparse_depth"])
    found = row(main, method="desa")
    assert found["depth_dense_reduction"] == close(36.896531947824556)
    assert found["depth_sparse_reduction"] == close(36.563519721706975)
    shares = pl.read_csv(RELEASE / "access-changes-vs-original.csv").filter(method="proposed")
    assert macro(shares["dual_depth_improvement_rate"].to_list()) == close(0.6330865831005045)


def test_supports_and_gains_per_data_set_are_the_published(study, expected):
    table = channel_evidence_table(study)
    for dataset, ratio in expected["support_ratio_shared"].items():
        found = row(table, dataset=dataset)
        assert found["shared_support"] == close(ratio)
        assert found["subject_gain"] == close(
            expected["per_dataset_gain_pct"][dataset]["desa_vs_original"]
        )


def test_ablations_have_the_published_base(study, expected):
    """The mask's printed -1.54 and -0.74 are in percent of the mask, not of DESA (-1.51, -0.73)."""
    table = ablations_table(study)
    mask = row(table, ablation="binary_mask_vs_desa")
    assert (round(mask["ndcg_at_10"], 3), round(mask["recall_at_20"], 3)) == (-1.535, -0.738)
    for column in ("ndcg_at_10", "recall_at_20"):
        over_desa = expected["headline"][f"sparse_boolean_mask_vs_proposed_{column}_gain_pct"]
        assert mask[column] == close(100 * (1 - 1 / (1 + over_desa / 100)))
    for fewer, more in ((1, 3), (3, 5)):
        found = row(table, ablation=f"refs_{fewer}_to_{more}")
        change = expected["n_refs_change"][f"{fewer}_to_{more}"]
        assert found["ndcg_at_10"] == close(change["ndcg_at_10"])
        assert found["recall_at_20"] == close(change["recall_at_20"])
        assert found["depth_dense"] == close(change["dense_reduction_pct_mean_over_datasets"])
        assert found["depth_sparse"] == close(change["sparse_reduction_pct_mean_over_datasets"])


def test_robustness_and_scale_are_the_published(study, expected):
    table = robustness_table(study)
    lines = []
    for axis, value, name in (
        ("encoder", "contriever", "contriever"),
        ("generator", "mistral_7b", "mistral"),
    ):
        for dataset, own in expected["robustness"][name].items():
            lines.append((row(table, axis=axis, value=value, dataset=dataset), own))
    for name, own in expected["scale"].items():
        documents = int(name.rpartition("-")[2])
        found = row(table, axis="corpus_docs", value=documents, dataset="trec-covid")
        lines.append((found, own))
    assert len(lines) == 12
    for found, own in lines:
        assert found["subject"] - found["reference"] == close(own["delta_ndcg"])
        assert found["depth_dense"] == pytest.approx(own["dense_reduction_pct"], abs=1e-9)
        assert found["depth_sparse"] == pytest.approx(own["sparse_reduction_pct"], abs=1e-9)


def test_qudar_depths_are_the_published(study):
    table = qudar_effects_table(study, FEW)
    for comparator, reduction in (
        ("qudar_complete", 0.7440705275811326),
        ("qudar_weighted", 0.7496921957757323),
    ):
        found = row(table, comparator=comparator, outcome="depth_total")
        assert found["reduction"] == close(100 * reduction)
    depths = external_table(study)
    assert row(depths, method="desa")["depth_total"] == close(1402.0777624475145)
    assert row(depths, method="qudar_complete")["depth_total"] == close(5478.375543058993)


def test_unchanged_outcomes_are_the_published_counts():
    """Of 11,328 query-draws, 10,438 nDCG values and 11,219 Recall values (CHECKS 11)."""
    shares = build()["qudar_weights"]["Top-1000 scores"]
    for column, count in (("ndcg_at_10", 10_438), ("recall_at_20", 11_219)):
        assert shares[f"{column}_unchanged"] * 11_328 / 100 == pytest.approx(count, abs=1e-6)


def test_the_papers_preset_resamples_as_its_authors():
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        composed = OmegaConf.to_container(compose("report", ["preset=paper"]), resolve=True)
    options = checked(ReportConfig, composed)
    assert options.used_sampling == Sampling(10_000, 20260813, "release")
    assert options.used_gain == "exponential"


def test_held_out_sets_are_the_four_that_were_not_developed_on(study):
    rows = {
        method: {r["dataset"]: r["ndcg_at_10"] for r in results(method)}
        for method in ("original", "desa")
    }
    held_out = ("arguana", "fiqa", "scidocs", "webis-touche2020")
    table = held_out_table(study, FEW)
    for method, values in rows.items():
        own = row(table, group="held out", method=method)
        assert own["ndcg_at_10"] == close(sum(values[name] for name in held_out) / 4)
        rest = [value for name, value in values.items() if name not in held_out]
        own = row(table, group="development", method=method)
        assert own["ndcg_at_10"] == close(sum(rest) / 3)


@pytest.mark.long
def test_primary_tests_on_their_rows_are_theirs_to_the_digit():
    published = pl.read_csv(RELEASE / "primary-paired-tests.csv")
    table = primary_tests_table(Study(difference_records()), Sampling(10_000, 20260813, "release"))
    for outcome in ("ndcg_at_10", "recall_at_20"):
        own = row(table, comparator="original", outcome=outcome)
        (theirs,) = published.filter(comparison="proposed_vs_original", metric=outcome).to_dicts()
        assert own["effect"] == pytest.approx(theirs["favorable_difference"], abs=1e-12)
        bounds = (theirs["ci95_lower"], theirs["ci95_upper"])
        assert own["ci"] == pytest.approx(bounds, abs=1e-12)
        assert (own["p"], own["p_holm"]) == pytest.approx(
            (theirs["p_raw"], theirs["p_holm"]), abs=1e-12
        )


def test_outcomes_together_are_the_published_labels():
    """Better in all four against Original, mixed against Shared: the authors' labels and rule."""
    theirs = build()["outcome_labels"]
    assert theirs == {"original": {"better": 4, "worse": 0}, "shared": {"better": 1, "worse": 0}}
    few = Sampling(50)
    found = row(outcome_labels_table(Study(difference_records()), few), comparator="original")
    assert (found["together"], found["better"], found["worse"]) == ("better in all four", 4, 0)
    turned = difference_records().with_columns(
        -pl.col("ndcg_at_10", "recall_at_20", "depth_dense", "depth_sparse")
    )
    found = row(outcome_labels_table(Study(turned), few), comparator="original")
    assert (found["together"], found["better"], found["worse"]) == ("worse in all four", 0, 4)
    turned = difference_records().with_columns(-pl.col("depth_dense"))
    found = row(outcome_labels_table(Study(turned), few), comparator="original")
    assert (found["together"], found["depth_dense"], found["better"]) == ("mixed", "worse", 3)


def test_the_file_to_compare_with_follows_from_their_rows():
    """`python -m tests.release_compare` writes it."""
    assert yaml.safe_load(FILE.read_text(encoding="utf-8")) == build()


@pytest.mark.long
def test_their_rows_beside_their_numbers_differ_by_nothing(study):
    """Every table that has published numbers, and every one of its rows."""
    published = Published(build())
    report = build_report(study, FEW, published, PAPER_TABLES)
    beside = {own.name: other for own, other in report.tables if other is not None}
    assert {"main", "per_dataset", "channel_evidence", "external", "ablations"} <= set(beside)
    assert {"operator_controls", "qudar_effects", "qudar_weights", "robustness"} <= set(beside)
    assert {"macro_intervals", "gains_over_shared", "access_changes", "held_out"} <= set(beside)
    assert "outcome_labels" in beside
    resampled = ("CI", "p", "wins", "outcomes")
    for name, table in beside.items():
        assert len(table.shown()) == len(table.rows)
        for line in table.rows:
            column = str(line.values["column"])
            if "shallower" in column or any(word in column for word in resampled):
                continue  # one query per data set has none of these
            difference = line.values["difference"]
            assert difference is None or abs(float(difference)) < 1e-9, (name, line.values)
    axes = {str(line.about["axis"]) for line in beside["robustness"].rows}
    assert axes == {"kappa", "encoder", "generator", "corpus_docs"}
    assert any(line.about.get("macro") for line in beside["robustness"].rows)
    assert {line.values["encoder"] for line in beside["main"].rows} == {SAME}
