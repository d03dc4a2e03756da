"""The settings of where work is done and where results go; none of them is part of a key."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from desa_ray.config_values import Count, Float, Int, Name, Seconds, Text, Workers

STRICT = ConfigDict(extra="forbid", strict=False)


@dataclass(frozen=True, config=STRICT)
class ClusterConfig:
    """How work is spread; nothing in here enters a key."""

    kind: Literal["serial", "local", "existing"] = "local"
    address: Text | None = None
    cpus: Annotated[Int, Field(ge=1, le=100_000)] | None = None
    encoders: Workers | None = None
    encoder_cpus: Workers = 1
    encoder_gpus: Annotated[Float, Field(ge=0, le=1000)] | None = None
    generators: Workers | None = None
    generator_cpus: Annotated[Float, Field(gt=0, le=10_000)] = 1
    shard_generations: Count = 32
    indexers: Workers | None = None
    scorers: Workers | None = None
    scorer_gpus: Annotated[Float, Field(ge=0, le=1000)] | None = None
    replayers: Workers | None = None
    shard_documents: Count = 1024
    range_documents: Count = 131_072
    shard_queries: Count = 64
    batch_size: Annotated[Int, Field(ge=1, le=65_536)] = 4
    max_failures: Annotated[Int, Field(ge=1, le=1000)] = 3
    shard_timeout_s: Seconds = 3600.0
    wait_s: Seconds | None = None
    max_workers: Workers | None = None
    max_gpus: Annotated[Float, Field(gt=0, le=1_000_000)] | None = None
    max_nodes: Annotated[Int, Field(ge=0, le=100_000)] = 0
    node_cpus: Annotated[Float, Field(gt=0, le=10_000)] = 1
    node_gpus: Annotated[Float, Field(ge=0, le=1000)] = 0
    idle_s: Seconds = 60.0
    turn_s: Seconds = 300.0
    memory_gb: Annotated[Float, Field(gt=0, le=100_000)] = 2.0


@dataclass(frozen=True, config=STRICT)
class TrackingConfig:
    enabled: bool = True
    uri: Text | None = None
    experiment: Name = "default"
    offline: bool = False
    system_metrics_s: Annotated[float, Field(ge=0, le=86400)] = 10.0


@dataclass(frozen=True, config=STRICT)
class StoreConfig:
    root: Text | None = None
    repair: bool = False
    copies: bool = False
