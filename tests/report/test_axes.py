"""Any setting that was swept is an axis: its values stand apart in every row."""

import json
from pathlib import Path

import polars as pl
import pytest

from desa_ray.core.evaluation import EXPONENTIAL_COLUMN
from desa_ray.core.statistics.sampling import Sampling
from desa_ray.errors import DesaError
from desa_ray.report.build import build_report
from desa_ray.report.curves import axis_figures
from desa_ray.report.grid import grid_table
from desa_ray.report.results import main_table
from desa_ray.report.robustness import robustness_table
from desa_ray.report.study import Study
from tests.experiment.test_prepare import config
from tests.pipeline.test_lazy import computed
from tests.report.made_up import cell

FEW = Sampling(resamples=100, seed=1)
# What a command line can sweep -> two of its values, and a method that they reach.
AXES = {
    "sparse.k1": ("0.9", "1.2", "bm25"),
    "sparse.b": ("0.4", "0.75", "bm25"),
    "evaluation.run_depth": ("1000", "20", "bm25"),
    "draws": ("1", "2", "sparse_only"),
    "encoder.query_prefix": ("of", "to", "original"),
    "encoder.pooling": ("mean", "cls", "original"),
    "encoder.max_tokens": ("256", "8", "original"),
    "method.channels.1.options.count": ("1", "2", "relaxed_count"),
}


def swept(name: str, value: str, method: str, **more) -> pl.DataFrame:
    """A made-up cell whose records name one setting, as those of a run do."""
    seed = 0 if method == "original" else int(float(value) * 10)
    records = cell("scifact", method, seed=seed, **more)
    hashed = f"{method} {value}" if method != "original" else method
    settings = json.dumps({name: value, "encoder.pooling": "mean"})
    return records.with_columns(settings=pl.lit(settings), config_hash=pl.lit(hashed))


def test_values_stand_apart_in_every_row():
    """The first value is the main one; a cell that the setting does not reach stands for all."""
    frames = [
        swept("sparse.k1", value, method)
        for method in ("original", "mine")
        for value in ("0.9", "1.2", "2.0")
    ]
    records = pl.concat(frames, how="diagonal_relaxed")
    study = Study(records)
    assert study.setting.further == {"sparse.k1": "0.9"}
    assert len(study.cells) == 4
    table = main_table(study)
    assert "sparse.k1 0.9" in table.about
    rows = robustness_table(study).rows
    assert [(r.values["axis"], r.values["value"]) for r in rows] == [
        ("sparse.k1", "0.9"),
        ("sparse.k1", "1.2"),
        ("sparse.k1", "2.0"),
    ]
    for row, value in zip(rows, ("0.9", "1.2", "2.0"), strict=True):
        (own,) = [c for c in study.cells if c.value("sparse.k1") == value]
        assert row.values["subject"] == pytest.approx(own.mean("ndcg_at_10"))
    other = Study(records, primary={"settings": {"sparse.k1": "1.2"}})
    assert "sparse.k1 1.2" in main_table(other).about
    with pytest.raises(DesaError, match=r"cells do not differ in sparse.k.*did you mean sparse.k1"):
        Study(records, primary={"settings": {"sparse.k": "1.2"}})
    report = build_report(study, FEW)
    cells = [row.values for row in report.cells.rows]
    assert [row.get("sparse.k1") for row in cells] == ["0.9", "1.2", "2.0", None]
    (curve,) = [figure for figure in report.figures if figure.name == "curve_sparse.k1"]
    drawn = curve.svg.render(standalone=True)
    for row in rows:  # against the reference, which the setting does not reach
        gain = row.values["subject"] - row.values["reference"]
        at = row.values["value"].removesuffix(".0")
        assert f"mine at {at}: {gain:.4f} [".replace("-", "−") in drawn


def test_k_and_decoding_have_rows_and_curves():
    """A swept K needs no primary.k; decoding is told apart under one label of the generator."""
    frames = [cell("scifact", "original", k=k) for k in (10, 20)]
    for k, warmth in ((10, "0.2"), (20, "0.2"), (10, "1.0")):
        frames.append(swept("decoding.temperature", warmth, "mine", k=k))
    study = Study(pl.concat(frames, how="diagonal_relaxed"))
    assert (study.setting.k, study.setting.further) == (10, {"decoding.temperature": "0.2"})
    found = {(r.values["axis"], r.values["value"]) for r in robustness_table(study).rows}
    assert found == {
        *(("K", value) for value in ("10", "20")),
        *(("decoding.temperature", value) for value in ("0.2", "1.0")),
    }
    names = [figure.name for figure in axis_figures(study, FEW)]
    assert names == ["curve_k", "curve_decoding.temperature"]


def test_the_grid_holds_every_cell_and_measure_with_intervals():
    frames = [
        swept("fusion.replay", value, "mine", kappa=kappa).with_columns(
            pl.col("ndcg_at_10").alias(EXPONENTIAL_COLUMN), recall_at_100=pl.col("recall_at_20")
        )
        for value in ("1", "2")
        for kappa in ("20", "60")
    ]
    study = Study(pl.concat(frames, how="diagonal_relaxed"))
    table = grid_table(study, FEW)
    told = [(r.values["kappa"], r.values["fusion.replay"]) for r in table.rows]
    assert sorted(told) == [("20", "1"), ("20", "2"), ("60", "1"), ("60", "2")]
    frame = table.frame()
    for name in ("ndcg_at_10", "recall_at_100", EXPONENTIAL_COLUMN, "depth_total"):
        for row, own in zip(frame.iter_rows(named=True), study.cells, strict=True):
            mean = own.records.group_by("query_id").agg(pl.col(name).mean())[name].mean()
            assert row[name] == pytest.approx(mean)
            assert row[f"{name}_ci_low"] <= row[name] <= row[f"{name}_ci_high"]
    assert frame["queries"].to_list() == [30] * 4


def test_records_without_settings_and_with_them_are_one_cell():
    """As before: equal labels and numbers are one cell, others are refused."""
    new = swept("sparse.k1", "0.9", "mine")
    study = Study(pl.concat([new, new.drop("settings")], how="diagonal_relaxed"))
    assert len(study.cells) == 1
    other = cell("scifact", "mine", seed=99)
    with pytest.raises(DesaError, match="hold different numbers"):
        Study(pl.concat([new, other], how="diagonal_relaxed"))


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
def test_a_sweep_over_an_axis_has_a_row_a_value(axis, collection: Path, tmp_path: Path):
    """Real cells, made in this process."""
    *values, method = AXES[axis]
    frames = []
    for value in values:
        overrides = [f"method={method}", "encoder=minilm_l3", "draws=1", f"{axis}={value}"]
        frames.append(computed(config(collection, *overrides), tmp_path)[1])
    study = Study(pl.concat(frames))
    rows = [row.values.get(axis) for row in grid_table(study, FEW).rows]
    assert sorted(map(str, rows)) == sorted(values)


def test_a_setting_that_records_leave_out_has_its_value_of_then():
    """An `en` cell, of records that do not name the analyzer, is not one of another analyzer."""
    frames = []
    for analyzer in (None, "de"):
        for method in ("original", "mine"):
            records = swept("sparse.b", "0.4", method)
            settings = {"sparse.b": "0.4", "method.channels.0.kind": "sparse"}
            settings |= {"sparse.analyzer": analyzer} if analyzer else {}
            hashed = f"{method} {analyzer}"
            changed = pl.col("ndcg_at_10") * (0.5 if analyzer else 1)
            frames.append(
                records.with_columns(
                    changed, settings=pl.lit(json.dumps(settings)), config_hash=pl.lit(hashed)
                )
            )
    study = Study(pl.concat(frames, how="diagonal_relaxed"))
    assert study.setting.further == {"sparse.analyzer": "en"}
    german = study.setting.having("sparse.analyzer", "de")
    for method in ("original", "mine"):
        own, other = study.cell("scifact", method), study.cell("scifact", method, german)
        assert own is not None
        assert other is not None
        assert own.config_hash == f"{method} None"
        assert other.config_hash == f"{method} de"


def test_rules_without_kappa_are_rules_of_any_kappa():
    """Older records hold the kappa that was configured; the cells are one all the same."""
    frames = []
    for kappa, rule in (("10", None), ("60", None), ("10", "combsum"), ("60", "combsum")):
        for method in ("original", "mine"):
            records = swept("sparse.b", "0.4", method)
            settings = {"sparse.b": "0.4"} | ({"fusion.rule": rule} if rule else {})
            hashed = f"{method} {rule or kappa}"
            frames.append(
                records.with_columns(
                    kappa=pl.lit(kappa),
                    settings=pl.lit(json.dumps(settings)),
                    config_hash=pl.lit(hashed),
                )
            )
    study = Study(pl.concat(frames, how="diagonal_relaxed"))
    assert len(study.cells) == 6
    assert [cell.kappa for cell in study.cells].count(None) == 2
    assert study.setting.further == {"fusion.rule": "rrf"}
    assert [own.config_hash for own in study.cells_of("mine")] == ["mine 10"]
    assert len(study.varied("kappa")) == 2
