"""What may be compared with what: equal cells are one, differing ones are refused with what
differs.
"""

import polars as pl
import pytest

from desa_ray.core.statistics.sampling import Sampling
from desa_ray.errors import DesaError
from desa_ray.report.calibrated import calibrated_table
from desa_ray.report.results import main_table
from desa_ray.report.study import Study
from tests.report.made_up import MEANS, cell, study_records


def test_a_cell_given_twice_is_one_cell_whatever_further():
    """A cell given twice is one cell whatever further measures it has."""
    records = study_records(("scifact",), ("original", "desa"))
    again = cell("scifact", "desa", mean=MEANS["desa"]).with_columns(
        config_hash=pl.lit("other"),
        fusion_key=pl.lit("f" * 64),
        recall_at_100=pl.col("recall_at_20"),
    )
    study = Study(pl.concat([records, again], how="diagonal_relaxed"))
    assert [c.method for c in study.cells] == ["desa", "original"]
    assert "recall_at_100" in study.cell("scifact", "desa").records.columns


def test_the_order_of_loading_leaves_no_trace():
    frames = [cell("scifact", method) for method in ("original", "desa", "hyde")]
    descriptions = [
        [c.describe() for c in Study(pl.concat(order, how="diagonal_relaxed")).cells]
        for order in (frames, frames[::-1])
    ]
    assert descriptions[0] == descriptions[1]


def refusal(*frames, **options) -> str:
    with pytest.raises(DesaError) as refused:
        Study(pl.concat(frames, how="diagonal_relaxed"), **options)
    return str(refused.value)


def test_two_runs_of_one_cell_with_different_numbers_are_named():
    one, two = (
        cell("scifact", "desa", seed=s).with_columns(source=pl.lit(f"folder{s}")) for s in (0, 1)
    )
    said = refusal(one, two.with_columns(config_hash=pl.lit("x")))
    assert "scifact/desa" in said
    assert "folder0" in said
    assert "folder1" in said


def test_other_queries_are_named():
    fewer = cell("scifact", "desa", queries=[f"q{n}" for n in range(28)])
    said = refusal(cell("scifact", "original"), cell("scifact", "shared"), fewer)
    assert "scifact/desa" in said
    assert "lacks 2 queries: q28, q29" in said


def test_a_calibrated_method_stands_beside_on_the_queries_left():
    """Its calibration took q0 to q7: compared on the 22 others, refused nowhere."""
    left = [f"q{n}" for n in range(8, 30)]
    alone = cell("scifact", "anchorqe_calibrated").filter(pl.col("query_id").is_in(left))
    whole = cell("scifact", "dense_original")
    study = Study(pl.concat([cell("scifact", "original"), whole, alone], how="diagonal"))
    assert study.cell("scifact", "anchorqe_calibrated") is None
    assert any("has 22 of 30 queries" in note for note in study.notes)
    table = calibrated_table(study, Sampling(5))
    assert table is not None
    found = {row.about["method"]: row.values for row in table.rows}
    expected = whole.filter(pl.col("query_id").is_in(left))["ndcg_at_10"].mean()
    assert found["dense_original"]["ndcg_at_10"] == pytest.approx(expected)
    assert found["anchorqe_calibrated"]["queries"] == 22


@pytest.mark.parametrize("draws", [[1], [0, 1, 2]])
def test_a_query_that_fell_back_calibrates_nothing(draws):
    """Where q0 fell back, q1 to q8 calibrate, else q0 to q7; q9 to q29 are compared."""
    number = pl.col("query_id").str.slice(1).cast(pl.Int64)
    fell = pl.col("draw").is_in(draws)
    kept = pl.when(fell).then((number == 0) | (number > 8)).otherwise(number > 7)
    alone = cell("scifact", "anchorqe_calibrated").with_columns(fallback=fell & (number == 0))
    whole = cell("scifact", "dense_original")
    records = pl.concat([cell("scifact", "original"), whole, alone.filter(kept)], how="diagonal")
    table = calibrated_table(Study(records), Sampling(5))
    assert table is not None
    found = {row.about["method"]: row.values for row in table.rows}
    expected = whole.filter(number > 8)["ndcg_at_10"].mean()
    assert found["dense_original"]["ndcg_at_10"] == pytest.approx(expected)
    assert {row["queries"] for row in found.values()} == {21}


def test_other_judgments_are_told():
    said = refusal(
        cell("scifact", "original"),
        cell("scifact", "shared"),
        cell("scifact", "desa", qrels_hash="new"),
    )
    assert "other judgments" in said


def test_several_k_are_an_axis_as_any_other():
    """The main tables take the sweep's first value and say so, or the one named."""
    frames = [study_records(("scifact",), ("original", "desa"), k=k) for k in (10, 20)]
    for order, primary, taken in (
        (frames, {}, 10),
        (frames[::-1], {}, 20),
        (frames, {"k": 20}, 20),
    ):
        study = Study(pl.concat(order), primary=primary)
        table = main_table(study)
        assert f"K {taken};" in table.about
        assert [row.about["method"] for row in table.rows] == ["original", "desa"]
        depth = study.cell("scifact", "desa").mean("depth_dense")
        assert table.rows[1].values["depth_dense"] == depth
        assert any(f"about k {taken}; there are also: {30 - taken}" in note for note in study.notes)


def test_a_query_without_all_draws_is_told():
    records = cell("scifact", "desa")
    said = refusal(records.filter((pl.col("query_id") != "q3") | (pl.col("draw") != 2)))
    assert "1 of 30 queries lack a draw or have a draw twice: q3" in said


def test_other_tables_are_no_query_records():
    assert "not query records" in refusal(pl.DataFrame({"a": [1]}))
    assert "not query records" in refusal(
        study_records(("scifact",), ("original",)).drop("depth_dense")
    )
    assert "there are no query records" in refusal(cell("scifact", "original").clear())


def test_unknown_choices_list_what_there_is():
    records = cell("scifact", "original")
    assert "there are: original" in refusal(records, methods=["desaa"])
    assert "there are: minilm_l6" in refusal(records, primary={"encoder": "bge_small"})


def test_the_main_setting_is_kappa_60_most_references():
    """The main setting is kappa 60 most references and what most cells have."""
    records = pl.concat(
        [
            study_records(("scifact",), ("original", "shared", "desa")),
            study_records(("scifact",), ("original", "desa"), kappa="2"),
            cell("scifact", "desa", n_refs=1),
            study_records(("scifact",), ("original", "desa"), encoder="a_encoder"),
        ],
        how="diagonal_relaxed",
    )
    study = Study(records)
    assert (study.setting.kappa, study.setting.n_refs, study.setting.encoder) == (
        "60",
        5,
        "minilm_l6",
    )
    assert any("kappa 60; there are also: 2" in note for note in study.notes)
    assert Study(records, primary={"kappa": "2"}).setting.kappa == "2"


def test_stand_in_texts_make_another_method():
    stand_in = cell("scifact", "hyde", generator="recorded:hyde<-references", seed=3)
    study = Study(pl.concat([cell("scifact", "original"), cell("scifact", "hyde"), stand_in]))
    assert study.methods == ["original", "hyde", "hyde on references"]
    assert study.setting.generator == "recorded"


def test_a_macro_is_over_all_data_sets_or_there_is_none():
    records = pl.concat(
        [study_records(methods=("original", "desa")), cell("scifact", "shared")],
        how="diagonal_relaxed",
    )
    table = main_table(Study(records))
    values = {row.about["method"]: row.values["ndcg_at_10"] for row in table.rows}
    assert values["shared"] is None
    assert values["desa"] is not None
    assert any("Shared has no macro: it was not run on FiQA" in note for note in table.notes)
