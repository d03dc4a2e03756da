"""Open the MLflow UI on the tracking store that the last runs used."""

import argparse
import json
import os
import subprocess
import sys

from desa_ray.errors import DesaError
from jobs.settings import home


def main(arguments: list[str]) -> int:
    """`desa ui [--host H] [--port P]`: serves until interrupted; a tracking server's address is printed instead."""
    parser = argparse.ArgumentParser(prog="desa ui", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    options = parser.parse_args(arguments)
    last = home() / "last_tracking.json"
    if not last.exists():
        raise DesaError(
            "no run has logged anything yet", where=str(home()), mend="run `desa run` first, or set DESA_HOME"
        )
    uri = json.loads(last.read_text(encoding="utf-8"))["uri"]
    if not uri.startswith("sqlite:"):
        print(f"the last runs went to a tracking server: open {uri}")
        return 0
    print(f"MLflow on http://{options.host}:{options.port} (Ctrl-C ends it)", flush=True)
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    command += ["--default-artifact-root", (home() / "mlartifacts").as_uri(), "--workers", "1"]
    command += ["--host", options.host, "--port", str(options.port)]
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode
