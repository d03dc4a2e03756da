"""MLflow servers as processes of their own, which tests kill."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


def tracking_server(folder: Path, port: int) -> subprocess.Popen:
    """It answers; it leads a process group of its own, by which it is ended."""
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"sqlite:///{folder}/server.db",
    ]
    command += [
        "--artifacts-destination",
        str(folder / "artifacts"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = (folder / "server.log").open("a")
    process = subprocess.Popen(
        [*command, "--workers", "1"],
        env={**os.environ, **quiet},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return process
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.3)
