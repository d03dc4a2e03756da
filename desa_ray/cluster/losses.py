"""Why a worker on a Ray cluster was lost: with its node, for lack of memory, or by itself."""

from pathlib import Path

import ray
from ray.exceptions import OutOfMemoryError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from desa_ray.pipeline.feasible import GB
from desa_ray.pipeline.stage import Pool
from desa_ray.pipeline.transport import Lost

CGROUPS = Path("/sys/fs/cgroup")
ASK_S = 15.0
LIMIT = 300  # characters of Ray's words


def kernel_kills() -> int:
    """How many processes of this process's control group the kernel has killed for memory; 0 where
    it does not count them.
    """
    for place, name in _groups():
        for folder in (place, place.parent):
            try:
                words = (folder / name).read_text().split()
            except OSError:
                continue
            if "oom_kill" in words:
                return int(words[words.index("oom_kill") + 1])
    return 0


def _groups() -> list[tuple[Path, str]]:
    """Where this process's group is, in version 2 and 1 of control groups, and who counts there."""
    found: list[tuple[Path, str]] = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, kinds, path = line.split(":", 2)
        own = path.lstrip("/")
        if not kinds:
            found += [(CGROUPS / own, "memory.events"), (CGROUPS, "memory.events")]
        elif "memory" in kinds.split(","):
            version_1 = CGROUPS / "memory"
            found += [(version_1 / own, "memory.oom_control"), (version_1, "memory.oom_control")]
    return found


def lost(worker: int, error: RayError, pool: Pool, node: str | None, kills: int) -> Lost:
    """The loss that an error of Ray's stands for.

    Args:
        node: where the worker stood; None if it never came up.
        kills: `kernel_kills` there when it came up.
    """
    text = str(error)
    gone = bool(getattr(error, "preempted", False)) or "node has died" in text or _is_gone(node)
    memory = isinstance(error, OutOfMemoryError) or "low on memory" in text
    memory = memory or "memory usage threshold" in text
    if not memory and not gone and node is not None:
        memory = _kills_now(node) > kills
    if not memory:
        return Lost(worker, _words(text), with_node=gone)
    has = f", which was given {pool.memory / GB:.3g} GB" if pool.memory else ""
    what = f"memory ran out on the node of a worker of pool {pool.name}{has}"
    return Lost(worker, what, with_node=gone, memory=True)


def _words(text: str) -> str:
    """What Ray says beyond "the actor died", in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "\t"]
    return (lines[1] if len(lines) > 1 else "".join(lines))[:LIMIT]


def _is_gone(node: str | None) -> bool:
    alive = {one["NodeID"] for one in ray.nodes() if one["Alive"]}
    return node is not None and node not in alive


def _kills_now(node: str) -> int:
    """`kernel_kills` of a node; 0 where it does not answer."""
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    asked = ray.remote(kernel_kills).options(num_cpus=0, max_retries=0, scheduling_strategy=where)
    try:
        return ray.get(asked.remote(), timeout=ASK_S)
    except RayError:
        return 0
