"""Every method in one command on a slice of the demo, and what must hold between them."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from hydra import compose, initialize_config_module
from mlflow.tracking import MlflowClient
from omegaconf import OmegaConf

from desa_ray.config import RunConfig
from desa_ray.config_check import checked
from desa_ray.experiment.build import Builder
from desa_ray.experiment.prepare import prepare_cell
from desa_ray.experiment.spec import RUN_KEYS
from desa_ray.stages.collection import read_rows
from desa_ray.stages.ranking import Rankings
from desa_ray.stages.top_scores import TopScores
from desa_ray.store.artifacts import Store
from tests.desa_fixtures import dataset
from tests.e2e.methods_sweep import DRAWS, MethodsSweep

pytestmark = pytest.mark.long


@pytest.fixture
def sweep(methods_sweep: MethodsSweep) -> MethodsSweep:
    return methods_sweep


def test_one_command_runs_every_method_whose_texts(sweep):
    """One command runs every method whose texts are there and says what stands in."""
    conf = Path(__file__).resolve().parents[2] / "conf"
    shipped = {file.stem for file in (conf / "method").glob("*.yaml")}
    experiments = {}
    for name in ("methods", "operators"):
        params = yaml.safe_load((conf / "experiment" / f"{name}.yaml").read_text())["hydra"]
        experiments[name] = {
            method.strip() for method in params["sweeper"]["params"]["method"].split(",")
        }
    assert set(sweep.cells) == experiments["methods"]
    # No rewrites and no texts of a plain prompt are recorded for the slice; the grid of operators
    # is an experiment of its own.
    unrecorded = {"dvcqr", "desa_plain"}
    assert shipped == experiments["methods"] | experiments["operators"] | unrecorded
    labels = {name: cell["generator"] for name, cell in sweep.cells.items()}
    assert labels["hyde"] == "recorded:hyde<-references"
    assert labels["mugi"] == "recorded:mugi<-references"
    assert labels["query2doc"] == labels["desa"] == "recorded"
    assert labels["original"] is None
    assert set(sweep.records["hyde"]["generator"]) == {"recorded:hyde<-references"}
    assert all(
        cell["draws"] == (DRAWS if labels[name] else 1) for name, cell in sweep.cells.items()
    )


def test_original_channels_are_ranked_once_for_all_methods(sweep):
    """Original channels are ranked once for all methods and draws."""
    found = [
        json.loads(path.read_text())
        for path in (sweep.folder / "home/store/ranking").glob("*/manifest.json")
    ]
    originals = [
        m["key"]["params"]["kind"] for m in found if m["key"]["params"]["operator"] == "original"
    ]
    assert sorted(originals) == ["dense", "sparse"]


def _sparse(records: pl.DataFrame) -> list[int]:
    return records["sparse_support"].to_list()


def test_mask_and_product_keep_the_original_support(sweep):
    """Mask and product keep the original support and references alone do not."""
    original = _sparse(sweep.records["original"]) * DRAWS
    for name in ("desa", "binary_mask", "sparse_only"):
        assert _sparse(sweep.records[name]) == original
        assert (sweep.records[name]["support_retained"] == 1).all()
        assert sweep.cells[name]["metrics"]["support_ratio"] == 1
    assert _sparse(sweep.records["references_only"]) != original
    assert sweep.records["references_only"]["support_retained"].min() < 1
    assert sweep.cells["shared"]["metrics"]["support_ratio"] > 1
    assert (sweep.records["shared"]["support_retained"] == 1).all()
    assert sweep.cells["references_product"]["metrics"]["support_ratio"] < 1


def test_relaxation_admits_at_most_ten_documents(sweep):
    """Relaxation admits at most ten documents and only expansion only ones."""
    grown = (
        sweep.records["relaxed_count"]["sparse_support"] - sweep.records["desa"]["sparse_support"]
    )
    assert grown.min() >= 0
    assert grown.max() == 10
    assert (sweep.records["relaxed_count"]["support_retained"] == 1).all()
    assert (
        sweep.records["relaxed_share"]["sparse_support"] >= sweep.records["desa"]["sparse_support"]
    ).all()


def test_methods_without_relaxation_or_magnitude_rank(sweep):
    """Methods without relaxation or magnitude rank differently."""
    tops = {name: records["top"].to_list() for name, records in sweep.records.items()}
    for name in (
        "binary_mask",
        "references_only",
        "references_product",
        "shared",
        "relaxed_count",
        "dense_only",
    ):
        assert tops[name] != tops["desa"], name
    assert tops["qudar_weighted"] != tops["qudar_complete"]


def _cell(sweep: MethodsSweep, folder: Path, method: str):
    with initialize_config_module("desa_ray.conf", version_base="1.3"):
        composed = compose("config", [*dataset(folder), f"method={method}", f"draws={DRAWS}"])
    plain = OmegaConf.to_container(composed, resolve=True)
    home = sweep.folder / "home"
    store = Store(str(home / "store"))
    return Builder(
        prepare_cell(
            checked(RunConfig, {key: plain[key] for key in RUN_KEYS if key in plain}), store, home
        )
    ).cell()


@pytest.mark.parametrize("method", ["qudar_complete", "qudar_weighted", "qudar_top1000"])
def test_qudars_certified_top_20_is_the_complete_fusion_of_four(sweep, demo_slice, method):
    """Qudars certified top 20 is the complete fusion of four rankings."""
    cell = _cell(sweep, demo_slice, method)
    ids = read_rows(cell.collection.documents)["id"].to_list()
    records = sweep.records[method]
    for draw, stage in enumerate(cell.fused):
        rankings = [
            Rankings(stage.inputs[f"channel:{c['name']}"]) for c in stage.params["channels"]
        ]
        for row, record in enumerate(records.filter(pl.col("draw") == draw).iter_rows(named=True)):
            scores: dict[int, Fraction] = {}
            for ranking, weight in zip(rankings, record["weights"], strict=True):
                for rank, document in enumerate(
                    ranking.docs(row)[: stage.params["prefix"]].tolist(), 1
                ):
                    scores[document] = scores.get(document, Fraction(0)) + Fraction(weight) / (
                        60 + rank
                    )
            best = sorted(scores, key=lambda d: (-scores[d], d))[:20]
            assert record["top"] == [ids[document] for document in best], (draw, record["query_id"])
            assert len(record["depths"]) == 4
            assert sum(record["depths"]) == record["steps"] == record["depth_total"]


def test_confidence_weights_are_each_querys_own(sweep, demo_slice):
    """A softmax of half the margins of each channel's best 1,000 scores, computed here anew."""
    cell = _cell(sweep, demo_slice, "qudar_weighted")
    records = sweep.records["qudar_weighted"]
    weights = [[Fraction(w) for w in own] for own in records["weights"].to_list()]
    assert all(0 < weight < Fraction(36, 100) for own in weights for weight in own)
    assert len({tuple(own) for own in weights}) > len(weights) // 2
    stage, draw = cell.fused[0], records.filter(pl.col("draw") == 0)
    tables = [TopScores(stage.inputs[f"scores:{c['name']}"]) for c in stage.params["channels"]]
    rankings = [Rankings(stage.inputs[f"channel:{c['name']}"]) for c in stage.params["channels"]]
    for row, own in enumerate(draw["weights"].to_list()):
        margins = []
        for table, ranking in zip(tables, rankings, strict=True):
            docs, scores = table.best(row)
            info = ranking.info(row)
            assert docs.tolist() == ranking.docs(row)[:1000].tolist()
            assert (np.diff(scores) <= 0).all()
            assert scores[:2].tolist() == [info["score_1"], info["score_2"]]
            margins.append((scores[0] - scores[1]) / (scores[0] - scores[-1] + 1e-12))
        powers = np.exp(np.array(margins) / 2)
        found = [float(Fraction(weight)) for weight in own]
        assert found == pytest.approx((powers / powers.sum()).tolist(), abs=1e-12)
    assert set(sweep.records["qudar_complete"]["weights"].to_list()[0]) == {"1/4"}


def test_score_fusion_sums_what_the_top_scores_say(sweep, demo_slice):
    """And has no depths: nothing is certified."""
    for method in ("qudar_score", "qudar_score_confidence"):
        cell = _cell(sweep, demo_slice, method)
        ids = read_rows(cell.collection.documents)["id"].to_list()
        records, stage = sweep.records[method].filter(pl.col("draw") == 0), cell.fused[0]
        tables = [TopScores(stage.inputs[f"scores:{c['name']}"]) for c in stage.params["channels"]]
        for row, record in enumerate(records.iter_rows(named=True)):
            sums: dict[int, Fraction] = {}
            for table, weight in zip(tables, record["weights"], strict=True):
                docs, scores = table.best(row)
                low, width = scores.min(), scores.max() - scores.min() + 1e-12
                for document, score in zip(docs.tolist(), scores, strict=True):
                    own = Fraction(weight) * Fraction(float((score - low) / width))
                    sums[document] = sums.get(document, Fraction(0)) + own
            best = sorted(sums, key=lambda document: (-sums[document], document))[:20]
            assert record["top"] == [ids[document] for document in best]
        absent = ["depths", "depth_total", "depth_dense", "depth_sparse", "exhausted", "steps"]
        assert records.select(absent).null_count().row(0) == (records.height,) * len(absent)
        assert records["sparse_support"].null_count() == 0
        assert sweep.cells[method]["metrics"]["depth_total"] is None
    assert set(sweep.records["qudar_score"]["weights"].to_list()[0]) == {"1/4"}


def test_mechanism_compares_with_the_original_sparse_ranking(sweep):
    columns = ["turnover", "rr_change", "support_retained"]
    for name in ("original", "bm25", "dense_original", "qudar_complete", "qudar_score", "exp4fuse"):
        assert sweep.records[name].select(columns).null_count().sum_horizontal().item() == 3 * len(
            sweep.records[name]
        )
    same = sweep.records["dense_only"]
    assert set(same["turnover"]) == {0}
    assert set(same["rr_change"].drop_nulls()) == {0}
    assert sweep.records["desa"]["turnover"].min() >= 0
    assert 0 < sweep.cells["desa"]["metrics"]["turnover"] < 1
    metrics, records = sweep.cells["desa"]["metrics"], sweep.records["desa"]
    assert metrics["dense_angle_deg_max"] == records["dense_angle_deg"].max() <= 45
    assert sweep.cells["dense_original"]["metrics"]["rr_change_absent"] is None
    absent = metrics["rr_change_absent"]
    assert absent == records["rr_change"].null_count()
    assert metrics["rr_change"] == pytest.approx(records["rr_change"].sum() / records.height)
    assert metrics["support_retained_min"] == 1


def test_cutoffs_stand_in_every_record_and_the_longest(sweep):
    """Cutoffs stand in every record and the longest, above the corpus, is the complete fusion."""
    for name, records in sweep.records.items():
        assert set(map(tuple, records["cutoffs"].to_list())) == {(10, 20, 50, 100, 200, 500, 1000)}
        assert records["cut_same_top"].list.get(6).all(), name
        judged = records.filter(pl.col("ndcg_at_10").is_not_null())
        for column in ("ndcg_at_10", "recall_at_20"):
            assert judged[f"cut_{column}"].list.get(6).to_list() == judged[column].to_list(), name
    metrics = sweep.cells["desa"]["metrics"]
    assert metrics["cut_same_top/L1000"] == 1
    assert metrics["cut_ndcg_at_10_changed/L1000"] == metrics["cut_ndcg_at_10_reversed/L1000"] == 0
    assert 0 <= metrics["cut_same_top/L10"] < 1
    assert metrics["cut_ndcg_at_10_reversed/L10"] <= metrics["cut_ndcg_at_10_changed/L10"]
    assert sweep.cells["original"]["metrics"]["cut_ndcg_at_10_changed/L10"] is None


def test_label_changes_are_those_of_the_records(sweep):
    own = sweep.records["desa"]
    original = sweep.records["original"].select("query_id", o="ndcg_at_10", cut_o="cut_ndcg_at_10")
    rows = own.join(original, on="query_id").iter_rows(named=True)

    def sign(difference: float) -> int:
        return 0 if abs(difference) <= 1e-12 else (1 if difference > 0 else -1)

    pairs = [
        (sign(r["cut_ndcg_at_10"][2] - r["cut_o"][2]), sign(r["ndcg_at_10"] - r["o"])) for r in rows
    ]
    metrics = sweep.cells["desa"]["metrics"]
    assert metrics["cut_ndcg_at_10_changed/L50"] == pytest.approx(
        sum(a != b for a, b in pairs) / len(pairs)
    )
    assert metrics["cut_ndcg_at_10_reversed/L50"] == pytest.approx(
        sum(a * b < 0 for a, b in pairs) / len(pairs)
    )


def test_diagnostics_reach_mlflow(sweep):
    client = MlflowClient(f"sqlite:///{sweep.folder / 'home' / 'mlflow.db'}")
    logged = client.get_run(sweep.cells["desa"]["mlflow_run_id"]).data.metrics
    for name in (
        "turnover",
        "rr_change",
        "support_retained",
        "support_ratio",
        "dense_angle_deg_max",
    ):
        assert logged[name] == sweep.cells["desa"]["metrics"][name]
    run_id = sweep.cells["desa"]["mlflow_run_id"]
    history = client.get_metric_history(run_id, "cut_ndcg_at_10_changed/L")
    at_50 = sweep.cells["desa"]["metrics"]["cut_ndcg_at_10_changed/L50"]
    assert [point.value for point in history if point.step == 50] == [at_50]
    params = client.get_run(sweep.cells["hyde"]["mlflow_run_id"]).data.params
    assert params["generator"] == "recorded:hyde<-references"
