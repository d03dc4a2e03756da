"""What nodes have for engines on GPUs, and which share of a GPU one worker takes.

Plans ask this once: a local cluster and a run without Ray have this machine, a running cluster the
nodes that it has and may be given.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from desa_ray.engines.gpu_engines import gpu_libraries
from desa_ray.errors import DesaError, counted, listed
from desa_ray.pipeline.machine import gpu_memory, this_machine

GB = 1 << 30
GPU_BYTES = 16 * GB  # of a GPU that does not say: no usual one of a server has less
SHARES = (4, 2, 1)  # workers per GPU that are tried
ENCODER_BYTES, MOST_ENCODERS = 2 * GB, 2  # beside weights; two: one reads texts, one computes
SCORER_BYTES, MOST_SCORERS = 1 * GB, 4  # beside `cluster.memory_gb`


@dataclass(frozen=True)
class DeviceNode:
    """One node.

    Attributes:
        gpu_memory: bytes of its smallest GPU; 0 where that is not known.
        libraries: those for GPUs that are installed there (`gpu_libraries`).
    """

    name: str
    cpus: float
    gpus: float = 0.0
    gpu_memory: int = 0
    libraries: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Devices:
    """All nodes of a place, `this machine` or `the cluster`."""

    place: str
    nodes: Sequence[DeviceNode]

    @property
    def with_gpus(self) -> list[DeviceNode]:
        return [node for node in self.nodes if node.gpus > 0]

    def lacks(self, library: str) -> str:
        """Why workers cannot use GPUs with this library, in words; empty where they can. A worker
        may come to any node with a GPU, so all of them must have it.
        """
        if not self.with_gpus:
            return f"{self.place} has no GPU"
        without = [node.name for node in self.with_gpus if library not in node.libraries]
        if not without:
            return ""
        where = "" if self.place == THIS_MACHINE else f" on {listed(without, 3)}"
        return f"{library} for GPUs is not installed{where}"

    def share(self, needed: int, cpus: float, most: int, limit: float | None = None) -> float:
        """The share of a GPU of one worker: as many fit as memory holds and as there are CPUs for,
        on the smallest node with GPUs.

        Args:
            needed: bytes of GPU memory of a worker.
            cpus: that a worker takes.
            most: workers per GPU.
            limit: GPUs that the run may use.
        """
        fitting = [
            min(
                most,
                (node.gpu_memory or GPU_BYTES) / needed,
                node.cpus / node.gpus / cpus if cpus else most,
            )
            for node in self.with_gpus
        ]
        held = int(min(fitting, default=1))
        share = 1 / next((count for count in SHARES if count <= held), 1)
        return share if limit is None else min(share, limit)

    def __str__(self) -> str:
        gpus = sum(node.gpus for node in self.with_gpus)
        if self.place == THIS_MACHINE:
            return f"{gpus:g} GPU{'s' * (gpus != 1)} here"
        return f"{gpus:g} GPU{'s' * (gpus != 1)} on {counted(len(self.with_gpus), 'node')}"


THIS_MACHINE = "this machine"


def this_node(name: str = THIS_MACHINE) -> DeviceNode:
    """The machine that this process runs on."""
    machine = this_machine()
    if not machine.gpus:
        return DeviceNode(name, machine.cpus)
    return DeviceNode(name, machine.cpus, machine.gpus, gpu_memory(), gpu_libraries())


def local_devices() -> Devices:
    return Devices(THIS_MACHINE, [this_node()])


def no_gpu(setting: str, value: str, why: str, hint: str) -> DesaError:
    """A GPU that was asked for is not available."""
    return DesaError(f"{value} asks for GPUs, but {why}", where=setting, hint=hint)
