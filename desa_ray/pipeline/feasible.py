"""Refuses what cannot run before anything starts: workers that fit nowhere, matrices that exceed
the given memory.

A local cluster is judged by this machine; the nodes of a running one are asked by `cluster` when
the run connects.
"""

from collections.abc import Iterator, Sequence

from desa_ray.config import ClusterConfig
from desa_ray.errors import DesaError, Problems
from desa_ray.pipeline.machine import Machine, this_machine
from desa_ray.pipeline.stage import Pool, Stage

GB = 2**30
SERIAL_CPUS = 2  # threads of an encoder of cluster=serial, on any machine


def check_feasible(
    todo: Sequence[Stage], cluster: ClusterConfig, machine: Machine | None = None
) -> None:
    """Raises `Problems` with every reason why the stages to compute cannot run on this cluster."""
    machine = machine or this_machine()
    problems = [] if cluster.kind == "existing" else list(_pool_problems(todo, cluster, machine))
    problems += _limit_problems(todo, cluster)
    problems += _memory_problems(todo, cluster, machine)
    if problems:
        raise Problems({str(problem): problem for problem in problems}.values())


def check_limit(pool: Pool, config: ClusterConfig) -> None:
    """Raises DesaError where one worker takes more GPUs than the whole run may."""
    if config.max_gpus is not None and pool.gpus > config.max_gpus:
        raise DesaError(
            f"a worker of pool {pool.name} takes {pool.gpus:g} GPUs, but this run may use"
            f" {config.max_gpus:g}",
            where="cluster.max_gpus",
            hint="raise it, or give the worker fewer GPUs",
        )


def capacity(pool: Pool, cluster: ClusterConfig, machine: Machine) -> int:
    """How many workers of this kind fit a local cluster."""
    cpus, gpus = cluster.cpus or machine.cpus, machine.gpus
    return int(
        min(
            cpus // pool.cpus if pool.cpus else 1 << 20, gpus // pool.gpus if pool.gpus else 1 << 20
        )
    )


def queries_per_shard(stage: Stage, cluster: ClusterConfig) -> int:
    """Queries of one shard."""
    source = stage.inputs.get("queries")
    if source is None or not source.artifact.exists():
        return cluster.shard_queries
    return min(cluster.shard_queries, source.rows)


def _pool_problems(
    todo: Sequence[Stage], cluster: ClusterConfig, machine: Machine
) -> Iterator[DesaError]:
    pools = {stage.work.pool.name: stage.work.pool for stage in todo if stage.work.pool}
    cpus = cluster.cpus or machine.cpus
    for name, pool in pools.items():
        size = pool.settings.size
        if pool.gpus > machine.gpus:
            yield DesaError(
                f"a worker of {name} takes GPUs ({pool.gpus:g}), this machine has"
                f" {machine.gpus or 'none'}",
                where=pool.settings.gpus,
                hint="use cluster=existing with GPU nodes, or lower it",
            )
        whole = "the local cluster" if cluster.kind == "local" else "this machine"
        if pool.cpus > (cpus if cluster.kind == "local" else max(cpus, SERIAL_CPUS)):
            yield DesaError(
                f"a worker of {name} takes {pool.cpus:g} CPUs, {whole} has {cpus}",
                where=pool.settings.cpus,
                hint="lower it, or use cluster=existing",
            )
        elif cluster.kind == "local" and pool.gpus <= machine.gpus and size:
            # The defaults are made for any machine: on a small one fewer workers start. More is
            # a setting that the user gave.
            asked, default = getattr(cluster, size), getattr(ClusterConfig(), size)
            if (held := capacity(pool, cluster, machine)) < (asked or 0) and asked > (default or 0):
                takes = f"{pool.cpus:g} CPUs" + (f" and {pool.gpus:g} GPUs" if pool.gpus else "")
                yield DesaError(
                    f"{asked} workers of {takes} each do not fit: the local cluster holds {held}",
                    where=f"cluster.{size}",
                    hint="lower it, or use cluster=existing",
                )


def _limit_problems(todo: Sequence[Stage], cluster: ClusterConfig) -> Iterator[DesaError]:
    for stage in todo:
        if stage.work.pool is not None:
            try:
                check_limit(stage.work.pool, cluster)
            except DesaError as problem:
                yield problem


def _memory_problems(
    todo: Sequence[Stage], cluster: ClusterConfig, machine: Machine
) -> Iterator[DesaError]:
    given = cluster.memory_gb * GB
    worst: dict[str, tuple[int, Pool]] = {}
    for stage in todo:
        queries = queries_per_shard(stage, cluster)
        needed, full = stage.work.worker_bytes(stage, 1), stage.work.worker_bytes(stage, queries)
        if needed is None or full is None:
            continue
        if needed > given:
            smaller = f", or use {stage.work.smaller}" if stage.work.smaller else ""
            yield DesaError(
                f"one query alone takes {needed / GB:.3g} GB ({_shown(stage)}), "
                f"more than the {cluster.memory_gb:g} GB a worker may use",
                where="cluster.memory_gb",
                hint=f"set it to {_rounded_up(needed / GB)}" + smaller,
            )
        elif stage.work.pool and cluster.kind != "existing":
            pool = stage.work.pool
            workers = (
                1
                if cluster.kind == "serial"
                else min(pool.size or 1, max(1, capacity(pool, cluster, machine)))
            )
            total = workers * min(int(given), full)
            if total > worst.get(pool.kind, (0, pool))[0]:
                worst[pool.kind] = total, pool
    for kind, (total, pool) in worst.items():
        if total > machine.memory:
            yield DesaError(
                f"all {kind}s together hold up to {total / GB:.3g} GB, this machine has"
                f" {machine.memory / GB:.3g} GB",
                where=f"cluster.{pool.settings.size}",
                hint="lower it or cluster.memory_gb",
            )


def _shown(stage: Stage) -> str:
    return f"{stage.name} {stage.params.get('kind', '')}".strip()


def _rounded_up(gb: float) -> str:
    """Two significant digits, never below the number itself."""
    unit = 10.0 ** (len(f"{int(gb)}") - 2) if gb >= 1 else 0.01
    while gb / unit < 1:
        unit /= 10
    return f"{-(-gb // unit) * unit:.6g}"
