"""Runs on a real MLflow server, and the UI on the store that the last runs used."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.desa_fixtures import dataset, summaries


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await(url: str, process: subprocess.Popen, timeout_s: float = 90) -> str:
    deadline = time.monotonic() + timeout_s
    while True:
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.3)


def _server(*command: str, cwd: Path, **environment: str) -> subprocess.Popen:
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = (cwd / "server.log").open("w")
    return subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **quiet, **environment},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _end(process: subprocess.Popen) -> None:
    os.killpg(process.pid, 15)  # the server and its workers, a process group of this test's own
    process.wait(30)


@pytest.mark.long
def test_a_run_logs_to_a_tracking_server(demo_slice, warm_home, desa, tmp_path):
    port = _free_port()
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/server.db",
    ]
    command += [
        "--artifacts-destination",
        str(tmp_path / "artifacts"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    server = _server(*command, "--workers", "1", cwd=tmp_path)
    try:
        _await(f"http://127.0.0.1:{port}/health", server)
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
        _end(server)


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
    port = _free_port()
    command = [sys.executable, "-m", "desa_ray.jobs", "ui", "--host", "127.0.0.2"]
    command += ["--port", str(port)]
    server = _server(*command, cwd=tmp_path, DESA_HOME=str(home))
    try:
        page = _await(f"http://127.0.0.2:{port}/", server)
        assert "MLflow" in page
        names = {
            experiment.name
            for experiment in MlflowClient(f"http://127.0.0.2:{port}").search_experiments()
        }
        assert "desa/shown" in names
    finally:
        _end(server)
