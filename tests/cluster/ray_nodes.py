"""Ray nodes as a person starts them (`ray start --block`), each a process of ours that ends with
the test.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from desa_ray.cluster.local import reread_environment

TOKEN = "a-token-of-at-least-sixteen-characters"
START_TIMEOUT_S = 180


def token_environment() -> dict[str, str]:
    """This process's environment, with token authentication and the platform's commands on the
    PATH.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {
        **kept,
        "PATH": path,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "HF_HUB_OFFLINE": "1",
    }


@contextmanager
def token_in_this_process() -> Iterator[None]:
    """Clusters that this process starts or joins ask for the token, as do those that it starts
    commands for.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        reread_environment()
        yield
    reread_environment()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class RayNode:
    """One `ray start --block`; `hidden` is a folder that this node sees empty, and `group` the
    control group that it runs in, where the system allows that.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        hidden: Path | None = None,
        group: Path | None = None,
        **environment: str,
    ):
        ports = free_ports(4)
        flags = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port", "metrics-export-port")
        command = ["ray", "start", "--block", *arguments, "--object-store-memory=100000000"]
        command += [
            f"--{flag}={port}"
            for flag, port in zip((*flags, "runtime-env-agent-port"), ports, strict=True)
        ]
        if hidden is not None:
            script = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", script, str(hidden), *command]
        if group is not None:
            script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
            command = ["sh", "-c", script, str(group), *command]
        self.log = folder / f"node-{ports[0]}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=token_environment() | environment, cwd=folder, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while "block forever" not in self.log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise RuntimeError(self.log.read_text())
            time.sleep(0.2)

    def end(self, *, at_once: bool = False) -> None:
        """End the node and what it started; `at_once` as a power failure does."""
        try:
            family = [
                *psutil.Process(self.process.pid).children(recursive=True),
                psutil.Process(self.process.pid),
            ]
        except psutil.NoSuchProcess:
            return
        if not at_once:
            self.process.terminate()
            psutil.wait_procs(family, timeout=10)
        for one in family:
            if one.is_running():
                one.kill()
        self.process.wait(30)


class RayHead(RayNode):
    """A head without CPUs for work, with its job server at `url`."""

    def __init__(self, folder: Path, *arguments: str, port: int | None = None, **environment: str):
        other, dashboard, client = free_ports(3)
        port = port or other
        self.address, self.url = f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}"
        super().__init__(
            folder,
            "--head",
            f"--port={port}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={dashboard}",
            f"--ray-client-server-port={client}",
            f"--temp-dir={folder / 'ray'}",
            "--num-cpus=0",
            *arguments,
            **environment,
        )


def can_hide_folders() -> bool:
    """Whether this system lets us give a process its own mounts."""
    try:
        return (
            subprocess.run(
                ["unshare", "--mount", "true"], capture_output=True, check=False
            ).returncode
            == 0
        )
    except OSError:
        return False
