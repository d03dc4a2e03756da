"""The node of a local cluster: Ray's own, without what would listen needlessly; tells when and why it died."""

from typing import Any

import psutil
from ray._private import ray_constants
from ray._private.node import Node

from desa_ray.cluster.ray_logs import ended, last_words

VITAL = (ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER)
END_S = 2.0  # how long a worker may take to follow its raylet
KILL_S = 10.0


class OwnNode(Node):
    """A node without dashboard, autoscaler and log monitor, which `made` holds from its first moment on."""

    def __init__(self, made: "list[OwnNode]", ray_params: Any, *arguments: Any, **further: Any):
        made.append(self)
        ray_params.update(no_monitor=True, include_log_monitor=False)
        super().__init__(ray_params, *arguments, **further)

    def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
        self._webui_url = ""

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
        """Whether it came so far as to have processes and logs; Ray's constructor may raise before."""
        return hasattr(self, "all_processes") and hasattr(self, "_logs_dir")


def end_all(processes: list[psutil.Process]) -> None:
    """Wait until they have ended, and help those that do not."""
    for left in psutil.wait_procs(processes, timeout=END_S)[1]:
        try:
            left.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=KILL_S)
