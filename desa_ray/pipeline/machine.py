"""The resources of this machine, for plans, which must know them before anything starts; for a
running cluster, Ray reports them instead.
"""

import math
import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
LIST_S = 60.0


@dataclass(frozen=True)
class Machine:
    """CPUs and GPUs that a local cluster could hand out, and main memory in bytes."""

    cpus: int
    gpus: int
    memory: int


@cache
def this_machine() -> Machine:
    """Within the limits of the container that the process runs in."""
    cpus, memory = os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    quota, _, period = _limit("cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        cpus = min(cpus, math.ceil(int(quota) / int(period)))
    limit = _limit("memory.max")
    return Machine(cpus, visible_gpus(), min(memory, int(limit)) if limit.isdigit() else memory)


def visible_gpus() -> int:
    """NVIDIA GPUs that a process started here may use; CUDA_VISIBLE_DEVICES counts as CUDA reads
    it.
    """
    found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not found and (program := shutil.which("nvidia-smi")):
        listed = ""
        with suppress(OSError, subprocess.TimeoutExpired):  # a driver that hangs gives no GPU
            listed = subprocess.run(
                [program, "-L"], capture_output=True, text=True, check=False, timeout=LIST_S
            ).stdout
        found = sum(line.startswith("GPU ") for line in listed.splitlines())
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return found
    names = [name.strip() for name in chosen.split(",")]
    return min(
        found,
        next((n for n, name in enumerate(names) if name in ("", "-1", "NoDevFiles")), len(names)),
    )


def gpu_memory() -> int:
    """Bytes of the smallest GPU here, as nvidia-smi reports it; 0 where it does not."""
    if not (program := shutil.which("nvidia-smi")):
        return 0
    command = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    told = ""
    with suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIST_S
        ).stdout
    return min((int(line) << 20 for line in told.split() if line.isdigit()), default=0)


def _limit(name: str) -> str:
    try:
        return (CGROUP / name).read_text().strip()
    except OSError:
        return ""
