"""The typed configuration: what Hydra composes becomes these frozen dataclasses at the door, and nothing else inside.

Unknown keys, wrong types and values out of range are collected by pydantic and reported together. Names are those of
the Hydra groups in conf/ (`dataset`, `encoder`, `generator`, `sparse`, `method`, `fusion`, `evaluation`, `cluster`,
`tracking`, `store`). Fields marked *no key* never change a result and therefore never enter an artifact's key.
"""

from collections.abc import Mapping
from dataclasses import field, fields
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from desa_ray.errors import DesaError, Problems, listed

STRICT = ConfigDict(extra="forbid", strict=False)
Config = TypeVar("Config")


def _rational(value: Any) -> Fraction:
    """An exact rational from 1, "1/4", "0.25" or 0.25 (a float is read through its shortest decimal form)."""
    if isinstance(value, bool):
        raise ValueError("a truth value is not a number")
    try:
        return Fraction(str(value))
    except ZeroDivisionError:
        raise ValueError("division by zero") from None


Rational = Annotated[Fraction, BeforeValidator(_rational)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=STRICT)
class DatasetConfig:
    """Where a collection comes from. `kind` names the reader; `path` is a folder or a zip in BEIR layout.

    `queries` keeps only the queries with these ids, and their judgments. Of what is left, `size` keeps a snapshot of so
    many documents and `sample` the first so many judged queries, both by hash (`desa_ray.data.subsets`).
    """

    name: Name
    kind: Literal["demo", "beir_folder", "beir", "ir_datasets"]
    path: str | None = None  # no key: contents are hashed instead
    split: str = "test"
    url: str | None = None
    ir_datasets_id: str | None = None
    missing_relevant: Literal["error", "drop"] = "error"
    queries: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    size: Literal["all"] | Count = "all"
    sample: Literal["all"] | Count = "all"


@dataclass(frozen=True, config=STRICT)
class EncoderConfig:
    """A dense encoder. `path` is a local model folder; without it the weights come from `package` or the hub."""

    name: Name
    backend: Literal["onnx", "sentence_transformers"]
    model: str
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None  # a commit of the hub: branches move
    package: str | None = None
    weights: str | None = None
    tokenizer_package: str | None = None
    path: str | None = None  # no key: weights are hashed instead
    pooling: Literal["mean", "cls"] = "mean"
    max_tokens: Annotated[int, Field(ge=8)] = 256
    query_prefix: str = ""
    block_size: Count = 32
    scoring: Literal["int26", "float32"] = "int26"


@dataclass(frozen=True, config=STRICT)
class GeneratorConfig:
    """Where generated text comes from: `recorded` reads it, `vllm` loads a model, `openai` asks a server.

    `map` lets texts of one prompt stand in for those of another: {hyde: references}; records and summaries say so.
    Fields below a kind's comment mean something to that kind only. Those without *no key* change the text by design.
    """

    name: Name
    kind: Literal["recorded", "vllm", "openai"]
    map: Annotated[dict[str, str], BeforeValidator(lambda value: value or {})] = field(default_factory=dict)
    # recorded: reads `<folder>/<prompt>.jsonl`
    folder: str | None = None  # no key: contents are hashed instead
    strict: bool = False
    # vllm and openai
    model: Annotated[str, Field(min_length=1)] | None = None
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None  # a commit of the hub: branches move
    revision_note: str = ""  # no key: shown where the revision is not to be had
    # vllm
    package: str | None = None  # weights come from this package, converted once
    path: str | None = None  # no key: weights are hashed instead
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    device: Literal["cuda", "cpu"] = "cuda"  # no key
    batch_invariant: bool = True  # no key: says whether the text may depend on what shares its batch
    tensor_parallel_size: Count = 1  # no key
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9  # no key
    kv_cache_gb: Count = 1  # no key; the CPU's counterpart of the memory share
    max_num_seqs: Count = 64  # no key
    max_model_len: Annotated[int, Field(ge=512)] = 4096  # no key: a request that does not fit is an error, not cut
    # openai
    base_url: Annotated[str, Field(pattern=r"^https?://[^@?#\s]+$")] | None = None  # no key
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None  # no key: names a variable
    extended_sampling: bool = True
    concurrency: Count = 8  # no key
    request_timeout_s: Annotated[float, Field(gt=0)] = 300.0  # no key
    max_attempts: Count = 6  # no key
    backoff_s: Annotated[float, Field(gt=0)] = 1.0  # no key
    max_backoff_s: Annotated[float, Field(gt=0)] = 60.0  # no key


@dataclass(frozen=True, config=STRICT)
class SparseConfig:
    """BM25 through Lucene. k1 and b as in the paper; `java_home` overrides the Java that the install brings."""

    name: Name = "bm25"
    k1: Annotated[float, Field(ge=0)] = 0.9
    b: Annotated[float, Field(ge=0, le=1)] = 0.4
    java_home: str | None = None  # no key
    heap: Annotated[str, Field(pattern=r"^[0-9]+[kmgKMG]$")] = "2g"  # no key


@dataclass(frozen=True, config=STRICT)
class ChannelConfig:
    """One ranked list of a method: an operator of its channel kind, and its exact weight in the fusion.

    `prompt` is the channel's own, instead of the method's; `options` are numbers that the operator takes.
    """

    name: Name
    kind: Literal["dense", "sparse"]
    operator: str
    weight: Rational = Fraction(1)
    prompt: str | None = None
    options: dict[str, Rational] = field(default_factory=dict)


@dataclass(frozen=True, config=STRICT)
class MethodConfig:
    """A method is its channels, in reading order for ties, and the prompt whose texts they are built from.

    Attributes:
        fusion: how ranks become one order, a name in `desa_ray.core.fusions`.
        weighting: `fixed` uses the channels' weights, `confidence` a query's own (`desa_ray.core.confidence`).
        prefix: only the first so many documents of each channel are fused; None for complete rankings.
    """

    name: Name
    channels: tuple[ChannelConfig, ...]
    prompt: str | None = None
    fusion: str = "rrf"
    weighting: Literal["fixed", "confidence"] = "fixed"
    prefix: Count | None = None


@dataclass(frozen=True, config=STRICT)
class FusionConfig:
    kappa: Rational = Fraction(60)
    k: Annotated[int, Field(ge=1)] = 20


@dataclass(frozen=True, config=STRICT)
class EvaluationConfig:
    exclude_self: bool = False
    measures: tuple[str, ...] = ()
    run_depth: Annotated[int, Field(ge=1)] = 1000


@dataclass(frozen=True, config=STRICT)
class ClusterConfig:
    """How work is spread; nothing in here enters a key."""

    kind: Literal["serial", "local", "existing"] = "local"
    address: str | None = None
    cpus: Annotated[int, Field(ge=1)] | None = None
    encoders: Annotated[int, Field(ge=1)] | None = None
    encoder_cpus: Annotated[int, Field(ge=1)] = 1
    encoder_gpus: Annotated[float, Field(ge=0)] = 0
    generators: Annotated[int, Field(ge=1)] = 1
    generator_cpus: Annotated[float, Field(gt=0)] = 1
    shard_generations: Annotated[int, Field(ge=1)] = 32
    scorers: Annotated[int, Field(ge=1)] = 2
    replayers: Annotated[int, Field(ge=1)] = 2
    shard_documents: Annotated[int, Field(ge=1)] = 1024
    shard_queries: Annotated[int, Field(ge=1)] = 64
    batch_size: Annotated[int, Field(ge=1)] = 4
    max_failures: Annotated[int, Field(ge=1)] = 3
    shard_timeout_s: Annotated[float, Field(gt=0)] = 3600.0
    memory_gb: Annotated[float, Field(gt=0)] = 2.0


@dataclass(frozen=True, config=STRICT)
class TrackingConfig:
    enabled: bool = True
    uri: str | None = None
    experiment: Name = "default"


@dataclass(frozen=True, config=STRICT)
class StoreConfig:
    root: str | None = None
    repair: bool = False


@dataclass(frozen=True, config=STRICT)
class RunConfig:
    """One cell: everything that decides one row of results, and how it is computed."""

    dataset: DatasetConfig
    encoder: EncoderConfig
    generator: GeneratorConfig
    sparse: SparseConfig
    method: MethodConfig
    fusion: FusionConfig = field(default_factory=FusionConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    n_refs: Annotated[int, Field(ge=1)] = 5
    draws: Annotated[int, Field(ge=1)] = 3


def parse(values: Mapping[str, Any]) -> RunConfig:
    """Plain nested mappings to a `RunConfig`; raises `Problems` with one line for every wrong value."""
    return checked(RunConfig, values)


def checked(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Plain nested mappings to any of these classes; raises `Problems` with one line for every wrong value."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise Problems(
            DesaError(
                f"{issue['msg']}, got {listed([repr(issue['input'])])[:200]}",
                where=".".join(map(str, issue["loc"])),
                mend=f"known: {listed(_names(kind, issue['loc'][:-1]), 50)}" if "unexpected" in issue["type"] else "",
            )
            for issue in error.errors()
        ) from None


def _names(kind: Any, place: tuple[int | str, ...]) -> list[str]:
    """The keys that the class at a place within `kind` has."""
    for step in place:
        kind = get_args(kind)[0] if isinstance(step, int) else get_type_hints(kind)[step]
    return [own.name for own in fields(kind)]
