"""The machine's load while a sweep runs, under MLflow's own names for system metrics."""

import threading
import time
from contextlib import suppress
from threading import RLock

from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

from desa_ray.locks import SAMPLES, inside

Sample = tuple[str, float, int, int]
STOP_S = 10.0  # for a driver's answer; the thread ends with the process at the latest


class SystemSampler:
    """Samples CPU, memory, disk, network and NVIDIA GPUs of the driver's machine in a thread of its
    own.
    """

    def __init__(self, every_s: float):
        self.every_s = every_s
        self._monitors: list[BaseMetricsMonitor] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
        with suppress(Exception):  # no NVIDIA driver, or no pynvml: there is nothing to sample
            self._monitors.append(GPUMonitor())
        self._taken: list[Sample] = []
        self._lock, self._stop, self._step = RLock(), threading.Event(), 0
        self._thread = threading.Thread(target=self._run, name="desa-system-metrics", daemon=True)
        self._thread.start()

    def take(self) -> list[Sample]:
        """The samples since the last call: (name, value, Unix time in ms, step)."""
        with inside(SAMPLES, self._lock):
            taken, self._taken = self._taken, []
        return taken

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while True:
            time_ms = int(time.time() * 1000)
            for monitor in self._monitors:
                monitor.collect_metrics()
                values = monitor.aggregate_metrics() or {}
                monitor.clear_metrics()
                with inside(SAMPLES, self._lock):
                    self._taken += [
                        (f"system/{name}", float(v), time_ms, self._step)
                        for name, v in values.items()
                    ]
            self._step += 1
            if self._stop.wait(self.every_s):
                return
