"""Runs on a real MLflow server, and the UI on the store that the last runs used."""

import json
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.desa_fixtures import dataset, summaries
from tests.tracking_servers import answered, end, free_port, started, tracking_server


@pytest.mark.long
def test_a_run_logs_to_a_tracking_server(demo_slice, warm_home, desa, tmp_path):
    port = free_port()
    server = tracking_server(tmp_path, port)
    try:
        uri = f"http://127.0.0.1:{port}"
        desa(
            "run",
            *dataset(demo_slice),
            "method=bm25",
            "cluster=serial",
            f"tracking.uri={uri}",
            "tracking.experiment=served",
        )
        (cell,) = summaries(tmp_path)
        client = MlflowClient(uri)
        run = client.get_run(cell["mlflow_run_id"])
        assert client.get_experiment(run.info.experiment_id).name == "desa/served"
        assert run.data.metrics["ndcg_at_10"] == cell["metrics"]["ndcg_at_10"]
        path = client.download_artifacts(cell["mlflow_run_id"], "manifest.json", str(tmp_path))
        assert json.loads(Path(path).read_text())["config"]["method"]["name"] == "bm25"
    finally:
        end(server)


@pytest.mark.long
def test_ui_serves_the_store_of_the_last_runs(demo_slice, warm_home, desa, tmp_path):
    """In a home whose name is no part of an address as it stands, on an address that MLflow itself
    does not answer to.
    """
    home = warm_home.rename(tmp_path / "a?b#c%41&d::e ü")
    assert "run `desa run` first" in desa("ui", check=False, home=tmp_path / "empty").stderr
    desa(
        "run",
        *dataset(demo_slice),
        "method=bm25",
        "cluster=serial",
        "tracking.experiment=shown",
        home=home,
    )
    (cell,) = summaries(tmp_path)
    desa(
        "report",
        f"runs=[{cell['mlflow_run_id']}]",
        "resamples=50",
        "tracking.enabled=false",
        home=home,
    )
    assert f"{home}/store" in desa("store", "list", home=home).stdout
    # The copied home's sweep (Original's fusion, three draws of four methods), and BM25's fusion.
    assert "refer to 14 results" in desa("store", "gc", home=home).stdout
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {home.name, "outputs"}
    port = free_port()
    command = [sys.executable, "-m", "desa_ray.jobs", "ui", "--host", "127.0.0.2"]
    command += ["--port", str(port)]
    server = started(*command, cwd=tmp_path, DESA_HOME=str(home))
    try:
        page = answered(f"http://127.0.0.2:{port}/", server)
        assert "MLflow" in page
        names = {
            experiment.name
            for experiment in MlflowClient(f"http://127.0.0.2:{port}").search_experiments()
        }
        assert "desa/shown" in names
    finally:
        end(server)
