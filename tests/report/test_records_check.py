"""Records that no run wrote are refused by column, and a file that was changed after its run by its
hash.
"""

import hashlib
import json
from pathlib import Path

import polars as pl
import pytest

from desa_ray.errors import DesaError, Problems
from desa_ray.report.cells import cut_cells
from desa_ray.report.load import load_records
from tests.reference import REFERENCE
from tests.report.made_up import cell


@pytest.fixture
def records() -> pl.DataFrame:
    return cell("scifact", "desa")


def _write(folder: Path, records: pl.DataFrame) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    records.write_parquet(folder / "records.parquet")
    return folder / "records.parquet"


def _refusal(folder: Path, records: pl.DataFrame) -> str:
    with pytest.raises(DesaError) as caught:
        load_records(_write(folder, records))
    return str(caught.value)


@pytest.mark.parametrize("column", ["ndcg_at_10", "recall_at_20"])
@pytest.mark.parametrize(
    ("value", "told"), [(float("nan"), "NaN"), (float("inf"), "inf"), (1.5, "1.5"), (-0.1, "-0.1")]
)
def test_values_that_no_run_writes_are_refused_by_query(column, value, told, records, tmp_path):
    third = pl.int_range(pl.len()) == 3
    changed = pl.when(third).then(pl.lit(value, pl.Float64)).otherwise(pl.col(column)).alias(column)
    text = _refusal(tmp_path, records.with_columns(changed))
    assert told.lower() in text.lower()
    assert "which no run writes" in text
    assert "q3" in text


@pytest.mark.parametrize("column", ["ndcg_at_10", "recall_at_20"])
def test_a_query_without_a_value_in_one_row_only_is_refused(column, records, tmp_path):
    third = pl.int_range(pl.len()) == 3
    changed = pl.when(third).then(None).otherwise(pl.col(column)).alias(column)
    text = _refusal(tmp_path, records.with_columns(changed))
    assert "null in some rows of a query and not in others" in text
    assert "queries q3)" in text


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("ndcg_at_10", pl.lit("0.5"), "column ndcg_at_10 holds String, not numbers"),
        ("ndcg_at_10", pl.lit(1), "column ndcg_at_10 holds Int32, not numbers"),
        ("depth_dense", pl.lit("many"), "column depth_dense holds String, not whole numbers"),
        ("depth_dense", pl.lit(-3), "column depth_dense holds -3"),
        ("draw", pl.lit(0.5), "column draw holds Float64"),
        ("top", pl.lit("d1"), "column top holds String, not lists of text"),
        ("fallback", pl.lit(0), "column fallback holds Int32, not booleans"),
        ("method", pl.lit(None, pl.String), "column method lacks"),
        ("fusion_key", pl.lit(7), "column fusion_key holds Int32, not text"),
        ("corpus_docs", pl.lit(0), "column corpus_docs holds 0"),
        ("dense_angle_deg", pl.lit(-1e308), "column dense_angle_deg holds -1e+308"),
        ("turnover", pl.lit(1e308), "column turnover holds 1e+308"),
        ("rr_change", pl.lit(-1.5), "column rr_change holds -1.5"),
        ("support_retained", pl.lit(1.5), "column support_retained holds 1.5"),
        ("depth_total", pl.lit(2**63 - 1), "column depth_total holds 9223372036854775807"),
    ],
)
def test_columns_of_another_kind_are_refused(column, value, told, records, tmp_path):
    assert told in _refusal(tmp_path, records.with_columns(value.alias(column)))


def test_a_foreign_file_is_refused_with_the_columns_it_lacks(tmp_path):
    foreign = pl.DataFrame({"dataset": [1], "method": [2.5], "price": ["3"]})
    said = _refusal(tmp_path, foreign)
    assert "these are not query records: missing columns: " in said
    assert " kappa, " in said


def test_all_that_is_wrong_with_a_file_is_told_together(records, tmp_path):
    text = _refusal(tmp_path, records.with_columns(draw=pl.lit("x"), top=pl.lit(1)))
    assert "column draw" in text
    assert "column top" in text


@pytest.mark.parametrize("value", [[1], b"x", [{"\x1b[31m": 1}]])
def test_columns_of_two_files_that_cannot_be_joined(value, records, tmp_path):
    """Nobody's columns, of which one is a number and one is not: told by name and file."""
    first = _write(tmp_path / "a", records.with_columns(note=pl.lit(1)))
    original = cell("scifact", "original")
    noted = pl.Series("note", [value] * original.height)
    other = _write(tmp_path / "b", original.with_columns(noted))
    with pytest.raises(DesaError, match="column 'note' holds Int32") as caught:
        load_records(tmp_path)
    assert str(caught.value).startswith(f"{first}: ")
    assert str(other) in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_file_without_rows_has_the_columns_of_records(records, tmp_path):
    _write(tmp_path / "a", records)
    empty = _write(tmp_path / "b", records.head(0).with_columns(pl.lit(1).alias("top")))
    with pytest.raises(DesaError, match="column top holds Int32") as caught:
        load_records(tmp_path)
    assert str(caught.value).startswith(f"{empty}: ")
    empty.unlink()
    _write(tmp_path / "b", records.head(0))
    assert load_records(tmp_path).height == records.height


def _summary(file: Path, sha256: str) -> None:
    content = {"cells": [{"method": "desa", "artifacts": {"records.parquet": sha256}}]}
    file.with_name("summary.json").write_text(json.dumps(content))


def test_records_changed_after_their_run_are_refused(records, tmp_path):
    """Records changed after their run are refused by their hash."""
    file = _write(tmp_path, records)
    _summary(file, hashlib.sha256(file.read_bytes()).hexdigest())
    assert load_records(tmp_path).height == records.height
    records.with_columns(ndcg_at_10=pl.col("ndcg_at_10").clip(0.5)).write_parquet(file)
    with pytest.raises(
        Problems,
        match=r"records\.parquet: has changed since its run: SHA-256 .*run the cell again",
    ):
        load_records(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"cells": [3]}', '{"cells": [{}]}', '{"cells":' + "[" * 100_000],
    ids=range(5),
)
def test_a_damaged_summary_is_told(text, records, tmp_path):
    file = _write(tmp_path, records)
    file.with_name("summary.json").write_text(text)
    with pytest.raises(Problems, match=r"summary\.json: is damaged"):
        load_records(tmp_path)


def test_folders_with_the_signs_of_patterns_are_read_as_named(records, tmp_path):
    other = cell("scifact", "original")
    _write(tmp_path / "run[1]*?", records)
    _write(tmp_path / "run1xx", other)
    assert load_records(tmp_path / "run[1]*?")["method"].unique().to_list() == ["desa"]


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("depth_dense", pl.lit(3, pl.UInt8), "column depth_dense holds UInt8, not whole numbers"),
        ("cutoffs", pl.lit("10"), "column cutoffs holds String, not lists of whole numbers"),
        ("cut_ndcg_at_10", pl.lit("0.5"), "column cut_ndcg_at_10 holds String"),
        ("turnover", pl.lit("0.5"), "column turnover holds String, not numbers"),
        ("turnover", pl.lit([1, 2]), "column turnover holds List"),
        ("kappa", pl.lit("1/0"), "column kappa holds 1/0"),
        ("kappa", pl.lit("-1"), "column kappa holds -1"),
        ("kappa", pl.lit("sixty"), "column kappa holds sixty"),
        ("kappa", pl.lit(" "), "column kappa holds ' '"),
        ("kappa", pl.lit("1" + "0" * 400), "column kappa holds '1000"),
        ("weights", pl.lit(["1/2", "1/0"]), "column weights holds ['1/2', '1/0']"),
        ("weights", pl.lit(["1/2", "1e400"]), "column weights holds ['1/2', '1e400']"),
        ("cut_recall_at_20", pl.lit([0.5]), "column cut_recall_at_20 holds [0.5]"),
        ("cut_recall_at_20", pl.lit([0.5] * 6 + [1.5]), "column cut_recall_at_20 holds"),
        ("ndcg_exp_at_10", pl.lit(1.5), "column ndcg_exp_at_10 holds 1.5"),
    ],
)
def test_further_columns_of_another_kind_are_refused(column, value, told, records, tmp_path):
    assert told in _refusal(tmp_path, records.with_columns(value.alias(column)))


def test_a_row_with_other_cutoffs_is_refused(records, tmp_path):
    """Its values would stand for cutoffs that they are not of."""
    last = pl.int_range(pl.len()) == pl.len() - 1
    other = pl.when(last).then(pl.col("cutoffs").list.reverse()).otherwise("cutoffs")
    told = _refusal(tmp_path, records.with_columns(other.alias("cutoffs")))
    assert "column cutoffs holds" in told
    assert "(1 rows, queries q29)" in told


def test_the_files_of_trials_are_one_line_each():
    """A name like markup, kappa 1/0, and bytes that made polars panic."""
    damaged = REFERENCE / "cases" / "records_parquet_bytes-1.parquet"
    with pytest.raises(DesaError, match="cannot be read as parquet") as caught:
        load_records(damaged)
    assert str(damaged) in str(caught.value)
    with pytest.raises(DesaError, match="column kappa holds 1/0"):
        load_records(REFERENCE / "cases" / "records_parquet_values-2")
    assert load_records(REFERENCE / "cases" / "records_parquet_values-1").height > 0


@pytest.mark.parametrize("settings", ["[]", '{"a": 1}', '{"a":' * 100_000])
def test_settings_that_no_run_writes_are_refused(settings):
    with pytest.raises(DesaError, match="column settings holds "):
        cut_cells(cell("scifact", "desa", draws=1).with_columns(settings=pl.lit(settings)))


@pytest.mark.parametrize("label", ["1/0", "nan", "inf", "-", "1e999/1e999"])
def test_any_label_can_be_sorted(label):
    found = cut_cells(cell("scifact", "desa", encoder=label, draws=1))
    assert [one.encoder for one in found] == [label]


@pytest.mark.parametrize("name", ["kappa", "encoder", "generator", "n_refs", "dense_angle_deg"])
def test_a_column_without_a_type_is_one_without_values(name, records, tmp_path):
    """As parquet files hold a column of which no row has a value."""
    frame = records.with_columns(pl.lit(None).alias(name))
    assert frame.schema[name] == pl.Null
    (found,) = cut_cells(load_records(_write(tmp_path, frame)))
    assert found.describe()["records_sha256"]
    if name != "dense_angle_deg":
        assert found.value(name) is None


def test_no_records_say_what_to_name(records):
    with pytest.raises(DesaError, match=r"records: there are no query records \(name records"):
        cut_cells(records.head(0))
