"""Open the MLflow UI on the tracking store that the last runs used."""

import ipaddress
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from desa_ray.errors import DesaError
from desa_ray.experiment.places import home
from desa_ray.output import print_text
from desa_ray.parents import guard_group
from desa_ray.tracking.last import last_runs, last_uri, links
from desa_ray.tracking.sqlite_uri import for_mlflow, sqlite_file

from .cli.arguments import ArgumentParser

HOSTS = "MLFLOW_SERVER_ALLOWED_HOSTS"
LOCAL = ("localhost", "127.0.0.1")


def main(arguments: list[str]) -> int:
    """`desa ui [--host H] [--port P]`: serves until interrupted; a tracking server's address is
    printed instead.
    """
    parser = ArgumentParser(prog="desa ui", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=5000, help="port to listen on (%(default)s)")
    options = parser.parse_args(arguments)
    uri = last_uri(home())
    if sqlite_file(uri) is None:
        print_text(f"the last runs went to a tracking server: open {uri}")
        for line in links(uri, last_runs(home())):
            print_text(line)
        return 0
    if not 0 < options.port < 65536:
        raise DesaError(
            f"port {options.port} does not exist", where="--port", hint="choose 1 to 65535"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except OSError as error:
            what = f"cannot listen on {options.host}:{options.port}: {error.strerror}"
            raise DesaError(
                what, where="--port", hint="choose another, for example --port 5001"
            ) from error
        address = probe.getsockname()[0]
        anywhere = ipaddress.ip_address(address).is_unspecified
        names = {options.host, address, *LOCAL}
    address = f"http://{options.host}:{options.port}"
    print_text(f"MLflow on {address} (Ctrl-C ends it)")
    for line in links(address, last_runs(home())):
        print_text(line)
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", for_mlflow(uri)]
    command += ["--default-artifact-root", (home() / "mlartifacts").as_uri(), "--workers", "1"]
    command += ["--host", options.host, "--port", str(options.port)]
    environment = {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    if not anywhere and options.host not in LOCAL and HOSTS not in os.environ:
        # MLflow answers to no other Host header than localhost and private addresses.
        environment[HOSTS] = ",".join(sorted(f"{name}:{options.port}" for name in names))
    # A process group of its own: MLflow's workers would outlive it otherwise.
    server = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)
    guard_group(server.pid, server.pid)
    try:
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()
