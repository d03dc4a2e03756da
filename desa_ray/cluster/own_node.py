"""The node of a local cluster: Ray's own, without the processes that would open ports needlessly;
it reports when and why it died.

Ray's agents (metrics, dashboard, packages of runtime environments) have no work here. Each is a
Python process that listens, and a raylet ends itself where they take more than its 15 s to come up,
as they do on a busy machine.
"""

import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from ray._private import ray_constants
from ray._private.node import Node

from desa_ray.cluster.ray_logs import ended, last_words

RAYLET: Any = importlib.import_module("ray._raylet")  # type checkers do not see what it holds
AGENTS = ("dashboard_agent_command", "runtime_env_agent_command")
AGENT_PORTS = (
    RAYLET.METRICS_AGENT_PORT_NAME,
    RAYLET.METRICS_EXPORT_PORT_NAME,
    RAYLET.DASHBOARD_AGENT_LISTEN_PORT_NAME,
    RAYLET.RUNTIME_ENV_AGENT_PORT_NAME,
)
NO_SERVICE = -1
IDLE_AGENT = Path(__file__).with_name("idle_agent.py")
VITAL = (ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER)
END_S = 2.0  # how long a worker may take to follow its raylet
KILL_S = 10.0


class OwnNode(Node):
    """A node with workers and nothing else; `made` holds it from its first moment on."""

    def __init__(self, made: "list[OwnNode]", ray_params: Any, *arguments: Any, **further: Any):
        made.append(self)
        ray_params.update(no_monitor=True, include_log_monitor=False)
        super().__init__(ray_params, *arguments, **further)

    def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
        self._webui_url = ""

    def start_ray_processes(self) -> None:
        for name in AGENT_PORTS:  # as an agent says that it serves nothing
            RAYLET.persist_port(self._session_dir, self._node_id, name, NO_SERVICE)
        super().start_ray_processes()

    def death(self) -> str | None:
        """Why this node can do nothing any more; None while it can."""
        for kind, process in self.dead_processes() if self._begun else ():
            if kind in VITAL:
                return ended(kind, process.returncode, self._logs_dir)
        return None

    def last_words(self) -> str:
        """The last error that the raylet logged."""
        return last_words(self._logs_dir) if self._begun else ""

    def workers(self) -> list[psutil.Process]:
        """All processes below its own: workers, agents, and what those started."""
        found: list[psutil.Process] = []
        for _, process in self.live_processes() if self._begun else ():
            try:
                found += psutil.Process(process.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                continue
        return found

    def end(self) -> None:
        """End its own processes at once."""
        if self._begun:
            self.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)

    @property
    def _begun(self) -> bool:
        """Whether it came so far as to have processes and logs; Ray's constructor may
        raise before.
        """
        return hasattr(self, "all_processes") and hasattr(self, "_logs_dir")


def without_agents(start: Callable[..., Any]) -> Callable[..., Any]:
    """Ray's way to start a process, with idle agents on the command line of a raylet."""
    idle = subprocess.list2cmdline([sys.executable, "-S", "-E", str(IDLE_AGENT)])

    def start_process(
        command: Sequence[str], process_type: str, *arguments: Any, **further: Any
    ) -> Any:
        if process_type == ray_constants.PROCESS_TYPE_RAYLET:
            options = tuple(f"--{agent}=" for agent in AGENTS)
            kept = [word for word in command if not word.startswith(options)]
            assert len(kept) == len(command) - len(AGENTS), command
            command = [*kept, *(f"--{agent}={idle}" for agent in AGENTS)]
        return start(command, process_type, *arguments, **further)

    return start_process


def end_all(processes: list[psutil.Process]) -> None:
    """Wait until they have ended, and help those that do not."""
    for left in psutil.wait_procs(processes, timeout=END_S)[1]:
        try:
            left.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=KILL_S)
