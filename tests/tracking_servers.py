"""MLflow servers as processes of their own, which tests end or kill."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def started(*command: str, cwd: Path, **environment: str) -> subprocess.Popen:
    """A server's process; it leads a process group of its own, by which it is ended."""
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = (cwd / "server.log").open("a")
    return subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **quiet, **environment},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def answered(url: str, process: subprocess.Popen, timeout_s: float = 300) -> str:
    """The page at an address, once the server answers."""
    deadline = time.monotonic() + timeout_s
    while True:
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.3)


def tracking_server(folder: Path, port: int) -> subprocess.Popen:
    """MLflow's tracking server with its database and artifacts in a folder; it answers."""
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    process = started(*command, cwd=folder)
    answered(f"http://127.0.0.1:{port}/health", process)
    return process


def end(process: subprocess.Popen) -> None:
    """End a server with its workers."""
    os.killpg(process.pid, 15)
    process.wait(30)
