"""The main job end to end on a slice of the demo: what it writes, and that nothing in the cluster
changes it.
"""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from mlflow.tracking import MlflowClient

from desa_ray.jobs.fuse import main as fuse
from tests.desa_fixtures import METHODS, QUERIES, dataset, summaries
from tests.pipeline.test_lazy import computed, typed

pytestmark = pytest.mark.long

SCORED = ("qudar_score_confidence", "anchorqe_calibrated")  # with top scores; with a calibration


def _cells(folder: Path) -> list[tuple]:
    """What must not depend on how a sweep was computed: every record, and the content of every
    ranking.
    """
    sweep = sorted(folder.glob("outputs/sweeps/*/*"))[-1]
    cells = []
    for cell in sorted(path.parent for path in sweep.glob("*/records.parquet")):
        records = pl.read_parquet(cell / "records.parquet")
        cells.append(
            (
                records.rows(),
                (cell / "run.parquet").read_bytes(),
                (cell / "records.parquet").read_bytes(),
            )
        )
    return cells


def _contents(store: Path, digests: set[str]) -> dict[str, str]:
    """Content hashes of stored fusions, by key."""
    found = {}
    for digest in digests:
        manifest = json.loads((store / "fusion" / digest[:12] / "manifest.json").read_text())
        found[digest] = manifest["content"]
    return found


def test_serial_and_ray_write_identical_records_whatever(demo_slice, serial_sweep, desa, tmp_path):
    """Serial and ray write identical records whatever the pools shards and batches."""
    serial = _cells(serial_sweep)
    sizes = [
        "cluster.encoders=3",
        "cluster.encoder_cpus=1",
        "cluster.cpus=3",
        "cluster.shard_documents=70",
    ]
    sizes += [
        "cluster.shard_queries=7",
        "cluster.batch_size=3",
        "cluster.memory_gb=0.0001",
        "cluster.scorers=3",
    ]
    desa("run", "-m", f"{METHODS},{','.join(SCORED)}", *dataset(demo_slice), *sizes)
    parallel = _cells(tmp_path)
    assert len(serial) == 5
    assert serial == parallel[:5]
    home = Path(shutil.copytree(serial_sweep / "home", tmp_path / "serially"))
    for method, (rows, *_) in zip(SCORED, parallel[5:], strict=True):
        cell, records, stages = computed(typed(*dataset(demo_slice), f"method={method}"), home)
        assert {"top_scores", "calibration"} & set(stages)
        assert records.rows() == rows
        contents = {stage.key.digest: stage.artifact.manifest()["content"] for stage in cell.fused}
        assert contents == _contents(tmp_path / "home" / "store", set(contents))


@pytest.mark.slow
def test_counted_in_ranges_by_ray_equals_serial(demo_slice, serial_sweep, desa, tmp_path):
    """Two JVMs index four ranges and Ray's actors count; serially it is one index."""
    homes = [Path(shutil.copytree(serial_sweep / "home", tmp_path / name)) for name in "ab"]
    shutil.rmtree(homes[0] / "store" / "postings")
    given = [*dataset(demo_slice), "method=desa", "draws=1", "ranking=counted"]
    sizes = ["cluster.range_documents=60", "cluster.indexers=2", "cluster.shard_queries=7"]
    desa("run", *given, *sizes, home=homes[0])
    cell, records, stages = computed(typed(*given), homes[1])
    assert "rank_counts" in stages
    (own,) = tmp_path.glob("outputs/*/*/records.parquet")
    assert pl.read_parquet(own).drop("config_hash").rows() == records.drop("config_hash").rows()
    contents = {stage.key.digest: stage.artifact.manifest()["content"] for stage in cell.fused}
    assert contents == _contents(homes[0] / "store", set(contents))
    assert len(list((homes[0] / "store" / "postings").glob("*/docs-*.npy"))) == 4


def test_run_writes_what_it_says_and_logs_it_to_mlflow(demo_slice, warm_home, desa, tmp_path):
    desa("run", *dataset(demo_slice), "evaluation.measures=[R@100]", "draws=2", "cluster=serial")
    (cell,) = summaries(tmp_path)
    assert (cell["dataset"], cell["method"], cell["draws"], cell["n_queries"]) == (
        "slice",
        "desa",
        2,
        QUERIES,
    )
    assert cell["stages"]["reused"] + cell["stages"]["computed"] > 0
    folder = next(tmp_path.glob("outputs/*/*/summary.json")).parent
    assert set(cell["artifacts"]) == {
        "records.parquet",
        "manifest.json",
        "run.parquet",
        "run.draw1.parquet",
    }
    records = pl.read_parquet(folder / "records.parquet")
    assert records.height == 2 * QUERIES
    by_query = records.group_by("query_id").agg(pl.col("ndcg_at_10").mean())
    assert by_query["ndcg_at_10"].mean() == pytest.approx(cell["metrics"]["ndcg_at_10"], abs=1e-12)
    assert (records["depth_dense"] + records["depth_sparse"] == records["depth_total"]).all()
    assert records["top"].list.len().eq(20).all()
    assert records["dense_angle_deg"].max() <= 45
    assert records["recall_at_100"].is_not_null().all()

    client = MlflowClient(f"sqlite:///{tmp_path / 'home' / 'mlflow.db'}")
    run = client.get_run(cell["mlflow_run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params["method"] == "desa"
    assert run.data.metrics["ndcg_at_10"] == cell["metrics"]["ndcg_at_10"]
    assert run.data.metrics["kappa"] == 60
    assert "draws/ndcg_at_10" in run.data.metrics
    assert run.data.tags["sha256.records.parquet"] == cell["artifacts"]["records.parquet"]
    assert {file.path for file in client.list_artifacts(cell["mlflow_run_id"])} == set(
        cell["artifacts"]
    )


def test_run_trec_gives_the_same_effectiveness_in_an_independent(
    demo_slice, warm_home, desa, tmp_path
):
    """Run trec gives the same effectiveness in an independent reader."""
    import ir_measures

    desa(
        "run",
        *dataset(demo_slice),
        "method=original",
        "cluster=serial",
        "tracking.enabled=false",
    )
    (cell,) = summaries(tmp_path)
    (kept,) = tmp_path.glob("outputs/*/*/run.parquet")
    assert fuse([str(kept), "--out", str(tmp_path)]) == 0  # one run alone is fused to itself
    run = ir_measures.read_trec_run(str(tmp_path / "fused.trec"))
    qrels = [
        ir_measures.Qrel(query, document, int(grade))
        for query, document, grade in (
            line.split("\t")
            for line in (demo_slice / "qrels" / "test.tsv").read_text().splitlines()[1:]
        )
    ]
    measures = [ir_measures.nDCG @ 10, ir_measures.R @ 20]
    found = ir_measures.calc_aggregate(measures, qrels, run)
    assert found[measures[0]] == pytest.approx(cell["metrics"]["ndcg_at_10"], abs=1e-12)
    assert found[measures[1]] == pytest.approx(cell["metrics"]["recall_at_20"], abs=1e-12)


def test_another_kappa_on_this_machine_is_fused(
    demo_slice, serial_sweep, desa, tmp_path, monkeypatch
):
    """Another kappa on this machine is fused without a cluster as serially."""
    (tmp_path / "shadow" / "ray").mkdir(parents=True)
    (tmp_path / "shadow" / "ray" / "__init__.py").write_text(
        "raise ImportError('Ray is not needed here')\n"
    )
    common = [*dataset(demo_slice), "tracking.enabled=false", "fusion.kappa=2"]
    found = []
    for cluster in (
        ["cluster=serial"],
        ["cluster=local", "cluster.cpus=2", "cluster.shard_queries=8"],
    ):
        home = Path(shutil.copytree(serial_sweep / "home", tmp_path / cluster[0]))
        desa("run", *common, *cluster, home=home)
        (cell,) = summaries(tmp_path)
        assert cell["stages"]["computed"] == 4
        found.append(
            (
                cell["metrics"],
                cell["artifacts"]["records.parquet"],
                cell["artifacts"]["run.draw1.parquet"],
            )
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    assert found[0] == found[1]


def test_a_second_run_and_another_kappa_recompute_nothing(demo_slice, warm_home, desa, tmp_path):
    """A second run and another kappa recompute nothing but fusion."""
    common = [*dataset(demo_slice), "tracking.enabled=false"]
    desa("run", *common, "cluster=serial")
    first = summaries(tmp_path)[0]
    # The cluster address is wrong: a plan of hits must not even try to start Ray.
    desa("run", *common, "cluster=existing", "cluster.address=127.0.0.1:1")
    second = summaries(tmp_path)[0]
    assert second["stages"]["computed"] == 0
    assert second["metrics"] == first["metrics"]
    desa("run", *common, "cluster=serial", "fusion.kappa=2")
    third = summaries(tmp_path)[0]
    assert third["stages"]["computed"] == 3 + 1  # three draws, and Original's fusion as reference
    kinds = [
        path.parent.parent.name for path in (tmp_path / "home" / "store").glob("*/*/manifest.json")
    ]
    assert {kind: kinds.count(kind) for kind in ("vectors", "postings", "ranking", "fusion")} == {
        "vectors": 1,
        "postings": 1,
        "ranking": 2 + 4 * 3,  # original in both channels once, four operators for each draw
        "fusion": (1 + 4 * 3) + (1 + 3),  # five methods at 60, then DESA and its reference at 2
    }


def test_a_flipped_byte_is_named_and_repair_recomputes_it(demo_slice, warm_home, desa, tmp_path):
    common = [*dataset(demo_slice), "tracking.enabled=false", "cluster=serial", "draws=1"]
    desa("run", *common)
    before = summaries(tmp_path)[0]
    (file,) = (tmp_path / "home" / "store" / "vectors").glob("*/part-00000*.faiss")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    for stage in ("ranking", "fusion"):  # so that the vectors are read again
        shutil.rmtree(tmp_path / "home" / "store" / stage)
    broken = desa("run", *common, check=False)
    assert broken.returncode == 2
    assert file.name in broken.stderr
    assert "store.repair=true" in broken.stderr
    desa("run", *common, "store.repair=true")
    after = summaries(tmp_path)[0]
    assert after["metrics"] == before["metrics"]
    assert after["artifacts"]["records.parquet"] == before["artifacts"]["records.parquet"]


def test_plan_shows_hits_and_misses_and_computes_nothing(demo_slice, desa, tmp_path):
    shown = desa("plan", "-m", "method=original,desa", *dataset(demo_slice)).stdout
    assert "2 cells" in shown
    assert "compute" in shown
    assert not (tmp_path / "home" / "store" / "vectors").exists()


def test_summary_of_a_sweep_holds_all_cells(demo_slice, warm_home, desa, tmp_path):
    desa(
        "run",
        "-m",
        "method=bm25,original",
        *dataset(demo_slice),
        "cluster=serial",
        "tracking.enabled=false",
    )
    (sweep,) = tmp_path.glob("outputs/sweeps/*/*/summary.json")
    cells = json.loads(sweep.read_text())["cells"]
    assert [cell["method"] for cell in cells] == ["bm25", "original"]
    assert cells[0]["metrics"]["depth_dense"] is None
    assert cells[0]["metrics"]["depth_sparse"] == 20 or cells[0]["metrics"]["depth_sparse"] < 20
    assert cells[1]["metrics"]["both_shallower"] is None


def test_a_lost_layout_file_of_a_complete_stage_does_no_harm(demo_slice, warm_home, desa, tmp_path):
    for layout in (tmp_path / "home" / "store").glob("*/*/layout.json"):
        layout.unlink()
    desa(
        "run",
        *dataset(demo_slice),
        "cluster=serial",
        "tracking.enabled=false",
        "fusion.kappa=3",
        "draws=1",
    )
    (cell,) = summaries(tmp_path)
    assert cell["stages"]["computed"] == 2  # DESA's fusion and Original's, from the stored rankings
