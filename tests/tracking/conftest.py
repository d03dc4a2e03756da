"""A migrated SQLite tracking store for each test of the log, and one MLflow server for
all of them.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from desa_ray.tracking import outbox
from tests.tracking.lossy_proxy import DELIVER, LossyProxy, lossy_proxy


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty, migrated store: making one takes seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(database: Path, tmp_path: Path) -> str:
    (tmp_path / "mlflow.db").write_bytes(database.read_bytes())
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture(scope="session")
def port(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real MLflow server on a database of its own, with artifacts through the server."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "mlflow.db").write_bytes(database.read_bytes())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
    ]
    command += [
        "--artifacts-destination",
        str(folder / "artifacts"),
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("w") as log:
        environment = {**os.environ, **quiet}
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 240
        while True:
            assert server.poll() is None, (folder / "log").read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield port
    finally:
        os.killpg(server.pid, 15)  # the server and its workers, a process group of this test's own
        server.wait(60)


@pytest.fixture
def proxy(port, monkeypatch) -> Iterator[LossyProxy]:
    monkeypatch.setattr(outbox, "RETRY_S", 0.0)
    with lossy_proxy(port, lambda *_: DELIVER) as proxy:
        yield proxy
