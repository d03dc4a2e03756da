"""Which worker pools a configuration asks for. A name contains what makes workers interchangeable,
and nothing else.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from desa_ray.config import RunConfig
from desa_ray.engines.encoder import load_encoder
from desa_ray.engines.generator import load_generator
from desa_ray.engines.gpu_engines import CPU
from desa_ray.engines.jvm import heap_bytes
from desa_ray.engines.lucene import Lucene
from desa_ray.engines.model_files import find_model
from desa_ray.engines.plugged import generator_engine
from desa_ray.errors import DesaError
from desa_ray.pipeline.machine import this_machine
from desa_ray.pipeline.stage import Pool, PoolSettings
from desa_ray.stages.ingest import Reading
from desa_ray.stages.ranking import WorkerCache
from desa_ray.types import sha256_json

JVM_SHARE = 4  # of the machine's memory: its heap, as much for texts and arrays, and that again
IN_FLIGHT = 64  # shards of generation at one engine, at most; it says itself how many it wants
PROCESS_BYTES = 512 << 20  # of a worker with nothing loaded: Python and its libraries
GB = 1 << 30
ENCODERS = PoolSettings("encoders", "cluster.encoder_cpus", "cluster.encoder_gpus")
GENERATORS = PoolSettings("generators", "cluster.generator_cpus", "generator.tensor_parallel_size")
INDEXERS = PoolSettings("indexers")
SCORERS = PoolSettings("scorers", gpus="cluster.scorer_gpus")
REPLAYERS = PoolSettings("replayers")


def _memory(config: RunConfig, own: float) -> int:
    """What a worker asks of a cluster that others use: its own bytes and those of a process. A
    local cluster is judged as a whole before it starts (`feasible`).
    """
    return int(own) + PROCESS_BYTES if config.cluster.kind == "existing" else 0


def _fitting(config: RunConfig, size: int | None) -> int | None:
    """`size`, where one is set; else as many workers as this machine has CPUs and memory for. Of a
    running cluster only the nodes know.
    """
    cluster = config.cluster
    if size is not None or cluster.kind == "existing":
        return size
    machine, each = this_machine(), cluster.memory_gb * GB + PROCESS_BYTES
    return max(1, min(cluster.cpus or machine.cpus, int(machine.memory / each)))


def encoder_bytes(config: RunConfig, identity: Mapping[str, Any], model_home: Path) -> int:
    """Bytes of the encoder's weights; 0 where they are not files that we know, or not here, which
    is told elsewhere.
    """
    if "plugin" in identity:
        return 0
    try:
        return find_model(config.encoder, model_home).weights.stat().st_size
    except DesaError:
        return 0


def encoder_pool(config: RunConfig, identity: dict, model_home: Path) -> Pool:
    """Encoders: one model per actor, `encoder_cpus` threads each."""
    cluster = config.cluster
    return Pool(
        f"encoder:{config.encoder.name}:{sha256_json(identity)[:12]}",
        partial(
            load_encoder,
            config.encoder,
            threads=cluster.encoder_cpus,
            model_home=model_home,
            batch_size=cluster.batch_size,
            plugin=identity.get("plugin"),
            engine=identity.get("engine", CPU),
        ),
        size=cluster.encoders,
        cpus=cluster.encoder_cpus,
        gpus=cluster.encoder_gpus or 0,
        # Stored and optimised
        memory=_memory(config, 2 * encoder_bytes(config, identity, model_home)),
        settings=ENCODERS,
    )


def generator_pool(config: RunConfig, identity: Mapping[str, Any], model_home: Path) -> Pool:
    """Text engines: one model per actor, over as many GPUs as it is split into; a server's client
    takes none.
    """
    generator, cluster = config.generator, config.cluster
    # Engine options enter no key, but two engines with other options are not interchangeable.
    options = sha256_json([dict(identity), asdict(generator)])
    on_gpu = generator.kind == "vllm" and generator.device == "cuda"
    gpus: float = generator.tensor_parallel_size if on_gpu else 0
    isolated, plugin = generator.kind == "vllm", identity.get("plugin")
    if plugin:
        engine = generator_engine(generator.kind, plugin)[1]
        gpus, isolated = engine.gpus, engine.isolated
    return Pool(
        f"generator:{generator.name}:{options[:12]}",
        partial(
            load_generator,
            generator,
            model_home=model_home,
            threads=int(cluster.generator_cpus),
            plugin=plugin,
        ),
        size=cluster.generators or (None if gpus else 1),
        cpus=cluster.generator_cpus,
        gpus=gpus,
        isolated=isolated,
        in_flight=IN_FLIGHT,
        settings=GENERATORS,
    )


def lucene_pool(config: RunConfig, documents: int) -> Pool:
    """JVMs: each indexes ranges of documents or analyses texts. Unless `cluster.indexers` says how
    many: on a cluster as many as there are ranges and texts to analyse, on this machine one for
    each range of the `documents` that its memory holds beside the others.
    """
    sparse, cluster = config.sparse, config.cluster
    size = cluster.indexers
    if size is None and cluster.kind != "existing":
        fitting = this_machine().memory // (JVM_SHARE * heap_bytes(sparse.heap))
        size = max(1, min(fitting, -(-documents // cluster.range_documents)))
    return Pool(
        f"lucene:{sparse.java_home}:{sparse.heap}",
        partial(Lucene, sparse.java_home, sparse.heap),
        size=size,
        memory=_memory(config, heap_bytes(sparse.heap)),
        isolated=True,
        settings=INDEXERS,
    )


def scorer_pool(config: RunConfig, *, dense: bool = True) -> Pool:
    """What scores and ranks; `dense` scores are computed on a GPU where scorers have one."""
    scorer = config.encoder.scorer if dense else "auto"
    gpus = (config.cluster.scorer_gpus or 0) if dense else 0
    words = ["scorer", *([scorer] if scorer != "auto" else []), *([f"{gpus:g}"] if gpus else [])]
    return Pool(
        ":".join(words),
        partial(WorkerCache, scorer),
        size=_fitting(config, config.cluster.scorers),
        gpus=gpus,
        memory=_memory(config, config.cluster.memory_gb * GB),
        settings=SCORERS,
    )


def reader_pool(config: RunConfig) -> Pool:
    """What reads the pieces of large collections, on the driver's machine."""
    own = replace(config, cluster=replace(config.cluster, kind="local"))
    return Pool("reader", Reading, size=_fitting(own, None), light=True)


def replay_pool(config: RunConfig) -> Pool:
    return Pool(
        "replayer",
        WorkerCache,
        size=_fitting(config, config.cluster.replayers),
        memory=_memory(config, config.cluster.memory_gb * GB),
        light=True,
        settings=REPLAYERS,
    )
