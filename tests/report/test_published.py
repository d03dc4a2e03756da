"""The paper's printed rows through the report's own code: its macros, gains, reductions and
adjusted p come out.
"""

import json
from pathlib import Path

import polars as pl
import pytest
import yaml

from desa_ray.core.statistics.inference import holm
from desa_ray.report.names import NDCG, RECALL
from desa_ray.report.published import SAME, Published
from desa_ray.report.results import channel_evidence_table, main_table, per_dataset_table
from desa_ray.report.study import Study
from tests.reference import REFERENCE
from tests.report.made_up import cell, study_records

SHORT = {
    "ndcg@10": "ndcg_at_10",
    "recall@20": "recall_at_20",
    "l_dense": "depth_dense",
    "l_sparse": "depth_sparse",
}


@pytest.fixture(scope="module")
def printed() -> dict:
    return json.loads((REFERENCE / "published.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def data() -> dict:
    conf = Path(__file__).resolve().parents[2] / "conf" / "compare" / "paper.yaml"
    return yaml.safe_load(conf.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def paper_study(printed) -> Study:
    """Records with one query per data set whose values are the printed means: every table is then
    about those.
    """
    frames = []
    names = dict(zip(printed["per_dataset"]["columns"], range(6), strict=True))
    for dataset, methods in printed["per_dataset"].items():
        for method, values in methods.items() if dataset != "columns" else ():
            frame = cell(
                dataset,
                method,
                queries=["all"],
                draws=1,
                encoder="bge_small",
                generator="qwen2_5_7b",
            )
            columns = {short: values[names[long]] for long, short in SHORT.items()}
            columns["sparse_support"] = values[names["sparse_support"]]
            columns["sparse_exhausted"] = values[names["exhausted_pct"]] / 100
            columns["depth_total"] = columns["depth_dense"] + columns["depth_sparse"]
            frames.append(frame.with_columns(pl.lit(float(v)).alias(k) for k, v in columns.items()))
    return Study(pl.concat(frames))


def row(table, **about):
    (found,) = [r for r in table.rows if about.items() <= r.about.items()]
    return found.values


@pytest.mark.parametrize("method", ["original", "shared", "desa"])
def test_printed_macros_follow_from_the_printed_rows(paper_study, printed, method):
    found = row(main_table(paper_study), method=method)
    for name, value in printed["main_macro"][method].items():
        assert found[SHORT[name]] == pytest.approx(
            value, abs=0.1 if name.startswith("l_") else 0.0001
        ), name


def test_printed_gains_and_reductions_follow_from_the_printed(paper_study, printed):
    """Printed gains and reductions follow from the printed rows."""
    found, expected = (
        row(main_table(paper_study), method="desa"),
        printed["headline"]["desa_vs_original"],
    )
    assert found["ndcg_at_10_gain"] == pytest.approx(expected["ndcg@10_gain_pct"], abs=0.03)
    assert found["recall_at_20_gain"] == pytest.approx(expected["recall@20_gain_pct"], abs=0.03)
    assert found["depth_dense_reduction"] == pytest.approx(
        expected["l_dense_reduction_pct"], abs=0.1
    )
    assert found["depth_sparse_reduction"] == pytest.approx(
        expected["l_sparse_reduction_pct"], abs=0.1
    )
    from desa_ray.report.results import gain

    expected = printed["headline"]["desa_vs_shared"]
    for outcome, name in ((NDCG, "ndcg@10_gain_pct"), (RECALL, "recall@20_gain_pct")):
        assert gain(paper_study, "desa", "shared", outcome.column) == pytest.approx(
            expected[name], abs=0.03
        )


def test_printed_channel_evidence_follows_from_the_printed_rows(paper_study, printed):
    table, columns = channel_evidence_table(paper_study), printed["channel_evidence"]["columns"]
    for dataset in printed["queries"]:
        expected = dict(zip(columns, printed["channel_evidence"][dataset], strict=True))
        found = row(table, dataset=dataset)
        assert found["subject_gain"] == pytest.approx(
            expected["desa_vs_original_ndcg_pct"], abs=0.05
        )
        assert found["dense_reduction"] == pytest.approx(expected["l_dense_reduction_pct"], abs=0.1)
        assert found["sparse_reduction"] == pytest.approx(
            expected["l_sparse_reduction_pct"], abs=0.1
        )
        assert found["shared_support"] == pytest.approx(expected["shared_support_ratio"], abs=0.006)
        assert found["subject_support"] == pytest.approx(expected["desa_support_ratio"], abs=0.006)
    assert row(table, pattern=True)["subject_gain"] == "7/7 improve"
    assert row(table, pattern=True)["shared_support"] == "up to 5.72"


def test_printed_adjusted_p_follow_from_the_printed_p(printed):
    for family in ("original", "shared"):
        values = list(printed["primary_tests"][family].values())
        assert holm([value[3] for value in values]) == pytest.approx(
            [value[4] for value in values], abs=0.0001
        )


def test_the_projects_data_file_holds_exactly_the_printed(printed, data):
    """The projects data file holds exactly the printed figures."""

    def figures(value):
        if isinstance(value, dict):
            return [n for key, item in value.items() for n in figures(item)]
        if isinstance(value, list):
            return [n for item in value for n in figures(item)]
        return [abs(float(value))] if isinstance(value, int | float) else []

    known = figures(printed)
    assert all(
        value in known
        for table, rows in data.items()
        if table != "setting"
        for value in figures(rows)
    )
    assert data["queries"] == printed["queries"]
    names = printed["per_dataset"]["columns"]
    for dataset, methods in printed["per_dataset"].items():
        for method, values in methods.items() if dataset != "columns" else ():
            assert list(data["per_dataset"][dataset][method].values()) == values, names
    for method, values in printed["main_macro"].items():
        assert {SHORT[k]: v for k, v in values.items()}.items() <= data["main"][method].items()
    for length, values in printed["cutoff"].items():
        assert length == "columns" or list(data["cutoffs"][length].values()) == values


def test_equal_numbers_stand_beside(paper_study, data):
    """Equal numbers stand beside each other without a difference."""
    published = Published(data)
    beside = published.beside(per_dataset_table(paper_study), paper_study)
    assert len(beside.rows) == 7 * 3 * 6
    assert all(abs(r.values["difference"]) < 1e-9 for r in beside.rows)
    # One query per data set is not the paper's number of queries, and it is said; encoder and
    # generator match.
    assert {r.values["encoder"] for r in beside.rows} == {SAME}
    assert all("1 of" in r.values["dataset"] for r in beside.rows)
    main = published.beside(main_table(paper_study), paper_study)
    assert {r.values["protocol"] for r in main.rows if r.about["method"] == "desa"} == {"draws 1"}
    assert {r.values["protocol"] for r in main.rows if r.about["method"] == "original"} == {SAME}
    # One query per data set has no share
    means = [r for r in main.rows if r.values["column"] != "shallower in both %"]
    assert max(abs(r.values["difference"]) for r in means) < 0.1


def test_another_encoder_or_generator_is_never_shown(data):
    """Another encoder or generator is never shown as the papers."""
    study = Study(study_records(("scifact",), ("original", "shared", "desa")))
    beside = Published(data).beside(per_dataset_table(study), study)
    flags = {(r.about["method"], r.values["encoder"], r.values["generator"]) for r in beside.rows}
    assert flags == {
        ("original", "minilm_l6", "–"),
        ("shared", "minilm_l6", "recorded"),
        ("desa", "minilm_l6", "recorded"),
    }
    # Macros over some of the data sets stand beside the printed rows of those, not beside macros
    # over seven.
    main = Published(data).beside(main_table(study), study)
    ndcg = [
        r.values["printed"]
        for r in main.rows
        if r.about["method"] == "desa" and r.values["column"] == "nDCG@10"
    ]
    assert ndcg == [pytest.approx(0.7427)]


def test_macros_over_other_data_sets_get_no_printed_number(data):
    from desa_ray.core.statistics.sampling import Sampling
    from desa_ray.report.comparisons import primary_tests_table

    study = Study(study_records())
    assert Published(data).beside(primary_tests_table(study, Sampling(50)), study) is None
