"""A real MLflow server on Postgres with artifacts on an S3-compatible store: sweeps log to it,
alone and together.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.desa_fixtures import METHODS, dataset, run_desa
from tests.infra.objects import client, object_server
from tests.infra.programs import REPOSITORY, free_port, program
from tests.infra.services import ADMIN_PASSWORD, DATABASE_PASSWORD, mlflow_server, postgres

pytestmark = pytest.mark.slow
SWEEPS = 8
LOGIN = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": ADMIN_PASSWORD}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The server's address and what its object store's clients need; both logs lie in
    the folder.
    """
    folder = tmp_path_factory.mktemp("server")
    with object_server(folder / "objects.log") as objects:
        client(objects).create_bucket(Bucket="mlflow")
        with (
            postgres() as database,
            mlflow_server(database, objects, folder / "mlflow.log") as address,
        ):
            yield address, objects, folder


@pytest.fixture
def login(monkeypatch):
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)


def _runs(address: str, experiment: str) -> list:
    mlflow = MlflowClient(tracking_uri=address)
    found = mlflow.get_experiment_by_name(f"desa/{experiment}")
    assert found is not None
    return list(mlflow.search_runs([found.experiment_id], max_results=1000))


def _cells(runs: list) -> list:
    return [run for run in runs if "method" in run.data.params and "ndcg_at_10" in run.data.metrics]


def test_a_sweep_logs_everything_and_leaves_no_password(
    server, login, demo_slice, warm_home, tmp_path
):
    address, objects, folder = server
    arguments = [
        "run",
        "-m",
        METHODS,
        *dataset(demo_slice),
        "cluster=serial",
        f"tracking.uri={address}",
    ]
    done = run_desa(tmp_path, warm_home, *arguments, "tracking.experiment=alone")
    assert done.returncode == 0, done.stderr
    cells = _cells(_runs(address, "alone"))
    assert {run.data.params["method"] for run in cells} == set(METHODS.partition("=")[2].split(","))
    assert all(run.info.status == "FINISHED" for run in cells)
    (summary,) = tmp_path.glob("outputs/sweeps/*/*/summary.json")
    written = {cell["method"]: cell for cell in json.loads(summary.read_text())["cells"]}
    s3, mlflow = client(objects), MlflowClient(tracking_uri=address)
    stored = {found["Key"] for found in s3.list_objects_v2(Bucket="mlflow")["Contents"]}
    for run in cells:
        cell = written[run.data.params["method"]]
        assert run.data.metrics["ndcg_at_10"] == pytest.approx(
            cell["metrics"]["ndcg_at_10"], abs=1e-12
        )
        # Proxied: the address names the server, the bytes lie in the bucket.
        assert run.info.artifact_uri.startswith("mlflow-artifacts:")
        local = mlflow.download_artifacts(run.info.run_id, "records.parquet", str(tmp_path))
        assert Path(local).stat().st_size > 0
        assert any(run.info.run_id in name and name.endswith("records.parquet") for name in stored)
    secrets = [ADMIN_PASSWORD, DATABASE_PASSWORD, objects["AWS_SECRET_ACCESS_KEY"]]
    texts = [done.stdout, done.stderr, str([run.to_dictionary() for run in cells])]
    texts += [path.read_text(errors="replace") for path in folder.iterdir()]
    assert not any(secret in text for secret in secrets for text in texts)
    for place in (tmp_path / "outputs", warm_home):
        for path in place.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert not any(secret.encode() in data for secret in secrets), path


@pytest.mark.parametrize("password", ["", "wrong"])
def test_without_the_right_password_nothing_starts(
    server, password, demo_slice, tmp_path, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    uri = f"tracking.uri={server[0]}"
    done = run_desa(tmp_path, tmp_path / "home", "run", *dataset(demo_slice), "cluster=serial", uri)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "MLFLOW_TRACKING_USERNAME" in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "home/store/vectors").exists()


def test_the_doctor_finds_the_server(server, login, tmp_path):
    done = run_desa(tmp_path, tmp_path / "home", "doctor", "--no-ray", "--tracking", server[0])
    assert f"ok   tracking: a server answers at {server[0]}" in done.stdout


def test_sweeps_at_once_lose_nothing(server, login, demo_slice, warm_home, tmp_path):
    address, objects, _ = server
    running = []
    for number in range(SWEEPS):
        folder = tmp_path / str(number)
        folder.mkdir()
        home = folder / "home"
        shutil.copytree(warm_home, home)
        arguments = [
            "run",
            "-m",
            METHODS,
            *dataset(demo_slice),
            "cluster=serial",
            f"tracking.uri={address}",
        ]
        # Another measure for each, so that no two sweeps are the same one.
        arguments += ["tracking.experiment=together", f"evaluation.measures=[nDCG@{number + 11}]"]
        environment = {**os.environ, "DESA_HOME": str(home)}
        command = [sys.executable, "-m", "desa_ray.jobs", *arguments]
        log = (folder / "log").open("w")
        running.append(
            (subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log), folder)
        )
    for process, folder in running:
        assert process.wait(1500) == 0, (folder / "log").read_text()
    runs = _runs(address, "together")
    cells = _cells(runs)
    assert len(cells) == SWEEPS * 5
    # A parent a sweep, with its five cells.
    parents = Counter(run.data.tags["mlflow.parentRunId"] for run in cells)
    assert sorted(parents.values()) == [5] * SWEEPS
    assert {run.info.status for run in runs if run.info.run_id in parents} == {"FINISHED"}
    assert len(runs) == SWEEPS * 6
    assert all(run.info.status == "FINISHED" for run in cells)
    s3 = client(objects)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="mlflow")
    stored = {found["Key"] for page in pages for found in page["Contents"]}
    for run in cells:
        assert any(run.info.run_id in name and name.endswith("records.parquet") for name in stored)
    for _, folder in running:
        (summary,) = folder.glob("outputs/sweeps/*/*/summary.json")
        for cell in json.loads(summary.read_text())["cells"]:
            (run,) = [run for run in cells if run.info.run_id == cell["mlflow_run_id"]]
            for name, value in cell["metrics"].items():
                if value is not None:
                    assert run.data.metrics[name] == pytest.approx(value, abs=1e-12)


def test_through_the_proxy_example_with_tls(server, login, tmp_path, monkeypatch):
    nginx = program("nginx")
    key, certificate = tmp_path / "key.pem", tmp_path / "fullchain.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "1",
    ]
    make += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls, plain = free_port(), free_port()
    site = (
        (REPOSITORY / "infra/nginx/mlflow.conf").read_text().replace("/etc/ssl/desa", str(tmp_path))
    )
    site = site.replace("http://127.0.0.1:5000", server[0])
    site = re.sub(
        r"listen 443",
        f"listen 127.0.0.1:{tls}",
        re.sub(r"listen 80;", f"listen 127.0.0.1:{plain};", site),
    )
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    head = f"daemon off; user root; pid {tmp_path}/pid; error_log stderr; events {{}}"
    (tmp_path / "nginx.conf").write_text(f"{head} http {{ access_log off; {paths} {site} }}")
    proxy = subprocess.Popen([nginx, "-c", tmp_path / "nginx.conf", "-e", tmp_path / "error.log"])
    try:
        uri = f"https://localhost:{tls}"
        refused = run_desa(tmp_path, tmp_path / "home", "doctor", "--no-ray", "--tracking", uri)
        assert "fail tracking" in refused.stdout  # an unknown authority
        assert "CERTIFICATE" in refused.stdout.upper()
        monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(certificate))
        trusted = run_desa(tmp_path, tmp_path / "home", "doctor", "--no-ray", "--tracking", uri)
        assert f"ok   tracking: a server answers at {uri}" in trusted.stdout, trusted.stdout
    finally:
        proxy.terminate()
        proxy.wait(30)
