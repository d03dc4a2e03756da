"""A real Postgres and a real MLflow server on it, as infra/compose starts them, on free ports of
127.0.0.1.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.infra.programs import REPOSITORY, free_port, program

DATABASE_PASSWORD = "s3cr3t-of-the-database"
ADMIN_PASSWORD = "s3cr3t-of-the-admin"


def _other_user() -> dict[str, str | int]:
    """Postgres refuses to run as root: then it runs as its own user, or as nobody."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise AssertionError("no user to run Postgres as")


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """Serves the empty databases `mlflow` and `mlflow_users`; gives libpq's variables."""
    initdb, server, psql = program("initdb"), program("postgres"), program("psql")
    other = _other_user()
    # pytest's own folders are closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="desa-postgres-"))
    port = free_port()
    try:
        (folder / "password").write_text(DATABASE_PASSWORD)
        if other:
            for path in (folder, folder / "password"):
                os.chown(path, int(other["user"]), int(other["group"]))
        make = [
            initdb,
            "-D",
            folder / "data",
            "-U",
            "mlflow",
            "-A",
            "scram-sha-256",
            "--pwfile",
            folder / "password",
        ]
        subprocess.run([*make, "--no-sync"], check=True, capture_output=True, cwd=folder, **other)
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            "fsync": "off",
        }
        command = [server, "-D", folder / "data", "-p", str(port)]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **other)
        variables = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(port),
            "PGUSER": "mlflow",
            "PGPASSWORD": DATABASE_PASSWORD,
        }
        try:
            _fill(psql, variables)
            yield variables
        finally:
            process.send_signal(signal.SIGINT)  # fast shutdown: clients are cut off
            process.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(psql: str, variables: dict[str, str], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    users = (REPOSITORY / "infra/compose/users.sql").read_text()
    command = [
        psql,
        "-d",
        "postgres",
        "-v",
        "ON_ERROR_STOP=1",
        "-c",
        "CREATE DATABASE mlflow",
        "-c",
        users,
    ]
    while True:
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)


@contextmanager
def mlflow_server(database: dict[str, str], objects: dict[str, str], log: Path) -> Iterator[str]:
    """The server that infra/compose/mlflow.sh starts, with its users and proxied artifacts; gives
    its address.
    """
    port = free_port()
    bin_folder = Path(sys.executable).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")},
        **database,
        **objects,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "MLFLOW_ARTIFACTS": "s3://mlflow",
        "MLFLOW_S3_ENDPOINT_URL": objects["AWS_ENDPOINT_URL"],
        "MLFLOW_AUTH_ADMIN_PASSWORD": ADMIN_PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "s3cr3t-of-the-forms",
        "MLFLOW_HOST": "127.0.0.1",
        "MLFLOW_PORT": str(port),
    }
    script = REPOSITORY / "infra/compose/mlflow.sh"
    with log.open("w") as sink:
        process = subprocess.Popen(
            ["bash", script], env=environment, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 240
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
