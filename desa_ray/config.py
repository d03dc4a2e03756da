"""The typed configuration: the command line turns what Hydra composes into these frozen
dataclasses, which all other code uses.

Unknown keys, wrong types and values out of range are collected by pydantic and reported together.
Names are those of the Hydra groups in conf/ (`dataset`, `encoder`, `generator`, `prompt`,
`decoding`, `sparse`, `method`, `fusion`, `evaluation`, `cluster`, `tracking`, `store`). Fields
marked *no key* never change a result and therefore never enter an artifact's key.
"""

from dataclasses import field, fields
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
)
from pydantic.dataclasses import dataclass

from desa_ray.config_places import STRICT, ClusterConfig, StoreConfig, TrackingConfig
from desa_ray.config_values import (
    Analyzer,
    Count,
    Float,
    Int,
    Literally,
    Name,
    Rational,
    Scale,
    Seconds,
    Templates,
    Text,
)

DEFAULT_RULE = "rrf"  # where no rule of fusion is named; records and tables leave it out


@dataclass(frozen=True, config=STRICT)
class DatasetConfig:
    """Where a collection comes from. `kind` names the reader (demo, beir_folder, beir, msmarco,
    tables, ir_datasets, or a plug-in's); `path` is its folder, or a zip in BEIR layout.

    `queries` keeps only the queries with these ids, and their judgments. Of what is left, `size`
    keeps a snapshot of this many documents and `sample` this many judged queries, both the first in
    hash order (`desa_ray.data.subsets`).
    """

    name: Name
    kind: Name
    path: Text | None = None  # no key: contents are hashed instead
    split: Text = "test"
    url: Text | None = None
    ir_datasets_id: Text | None = None
    missing_relevant: Literal["error", "drop", "keep"] = "error"
    queries: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    size: Literal["all"] | Count = "all"
    sample: Literal["all"] | Count = "all"


@dataclass(frozen=True, config=STRICT)
class EncoderConfig:
    """A dense encoder. `backend` names its engine (onnx, sentence_transformers, static, or a
    plug-in's); `path` is a local model folder; without it the weights come from `package` or the
    hub. `tokenizer` names the tokenizer's file, tokenizer.json unless set.
    """

    name: Name
    backend: Name
    model: Text
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = (
        None  # a commit of the hub: branches move
    )
    package: Text | None = None
    weights: Text | None = None
    tokenizer_package: Text | None = None
    tokenizer: Text | None = None
    path: Text | None = None  # no key: weights are hashed instead
    pooling: Literal["mean", "cls"] = "mean"
    max_tokens: Annotated[Int, Field(ge=8, le=10**6)] = 256
    query_prefix: str = ""
    document_prefix: str = ""  # of documents, and of texts that are encoded as such
    dimensions: Count | None = None  # only the first so many of each vector (Matryoshka)
    block_size: Count = 32
    scoring: Literal["int26", "float32"] = "int26"
    scorer: Literal["auto", "torch", "faiss_gpu", "cpu"] = "auto"  # no key: the same exact scores
    engine: Literal["auto", "cpu", "gpu"] = "auto"  # in keys where it is a GPU's


@dataclass(frozen=True, config=STRICT)
class GeneratorConfig:
    """Where generated text comes from: `recorded` reads it, `vllm` loads a model, `openai` asks a
    server, any other `kind` is a plug-in's.

    `map` uses texts of one prompt instead of those of another: {hyde: references}; records and
    summaries say so. Fields below a kind's comment mean something to that kind only. Those without
    *no key* change the text by design.
    """

    name: Name
    kind: Name
    map: Annotated[dict[str, str], BeforeValidator(lambda value: value or {})] = field(
        default_factory=dict
    )
    # recorded: reads `<folder>/<prompt>.jsonl`
    folder: Text | None = None  # no key: contents are hashed instead
    strict: bool = False
    # vllm and openai
    model: Text | None = None
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = (
        None  # a commit of the hub: branches move
    )
    revision_note: str = ""  # no key: shown if the revision is not available
    # vllm
    package: Text | None = None  # weights come from this package, converted once
    path: Text | None = None  # no key: weights are hashed instead
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    device: Literal["cuda", "cpu"] = "cuda"  # no key
    batch_invariant: bool = (
        True  # no key: says whether the text may depend on what shares its batch
    )
    tensor_parallel_size: Count = 1  # no key
    gpu_memory_utilization: Annotated[Float, Field(gt=0, le=1)] = 0.9  # no key
    kv_cache_gb: Count = 1  # no key; the CPU's counterpart of the memory share
    max_num_seqs: Count | None = None  # no key; None: as many as the memory holds
    max_model_len: Annotated[Int, Field(ge=512, le=10**7)] = (
        4096  # no key: a request that does not fit is an error, not cut
    )
    # openai
    base_url: Annotated[str, Field(pattern=r"^https?://[^@?#\s]+$")] | None = None  # no key
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = (
        None  # no key: names a variable
    )
    extended_sampling: bool = True
    seed_bits: Literal[32, 63] = 63  # of a request's seed that are sent, the low ones
    concurrency: Annotated[Int, Field(ge=1, le=1000)] = 8  # no key
    request_timeout_s: Seconds = 300.0  # no key
    max_attempts: Annotated[Int, Field(ge=1, le=1000)] = 6  # no key
    backoff_s: Seconds = 1.0  # no key
    max_backoff_s: Seconds = 60.0  # no key


@dataclass(frozen=True, config=STRICT)
class SparseConfig:
    """BM25 through Lucene (`kind` bm25), or learned impacts (`impact`: of a file, `splade`: of a
    model).

    k1 and b as in the paper; `scores` are Lucene's own, or those that Anserini's searcher makes of
    them; `java_home` overrides the Java that the install brings. `analyzer` makes terms of texts
    (`desa_ray.engines.analysis`); `stemmer` and `stopwords` change that of `en`, where None stands
    for Porter's and for dropping them. `document_texts` names a file of texts that are appended to
    documents. Fields below a kind's comment mean something to it only.
    """

    name: Name = "bm25"
    kind: Literal["bm25", "impact", "splade"] = "bm25"
    k1: Annotated[Float, Field(ge=0, le=10**6)] = 0.9
    b: Annotated[Float, Field(ge=0, le=1)] = 0.4
    analyzer: Analyzer = "en"
    stemmer: Literal["porter", "krovetz", "none"] | None = None
    stopwords: Literal["drop", "keep"] | None = None
    scores: Literal["raw", "adjusted"] = "raw"
    document_texts: Text | None = None  # no key: contents are hashed instead
    java_home: Text | None = None  # no key
    heap: Annotated[str, Field(pattern=r"^[0-9]+[kmgKMG]$")] = "2g"  # no key
    # impact and splade: None for 100, 100 and sum
    scale: Scale | None = None  # of documents' weights, which become whole numbers
    query_scale: Scale | None = None
    combine: Literal["sum", "max", "joint"] | None = None
    # impact
    impacts: Text | None = None  # no key: contents are hashed instead
    tokenizer: Text | None = None  # no key: likewise; None: terms of `analyzer`
    token_weights: Text | None = None  # no key: likewise; None: each token weighs 1
    query_vectors: Text | None = None  # no key: likewise; None: queries are weighed as texts
    # splade: the model is found as an encoder's is; None for what it says itself
    model: Text | None = None
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    package: Text | None = None
    weights: Text | None = None
    path: Text | None = None  # no key: weights are hashed instead
    max_tokens: Annotated[Int, Field(ge=8, le=10**6)] | None = None  # None for 256
    pooling: Literal["max", "sum"] | None = None
    activation: Literal["relu", "log1p_relu"] | None = None


@dataclass(frozen=True, config=STRICT)
class ChannelConfig:
    """One ranked list of a method: an operator of its channel kind, and its exact weight in the
    fusion.

    `prompt` is the channel's own, instead of the method's; `options` are numbers that the operator
    takes.
    """

    name: Name
    kind: Literal["dense", "sparse"]
    operator: str
    weight: Rational = Fraction(1)
    prompt: str | None = None
    options: dict[str, Rational] = field(default_factory=dict)


@dataclass(frozen=True, config=STRICT)
class MethodConfig:
    """A method is its channels, in reading order for ties, and the prompt whose texts they are
    built from.

    Attributes:
        fusion: how ranks become one order, a name in `desa_ray.core.fusion.registry`; or `score`,
            sums of scores (`desa_ray.core.fusion.scores`).
        weighting: `fixed` uses the channels' weights, `confidence` a query's own
            (`desa_ray.core.fusion.weights`).
        prefix: only this many documents of each channel, the first ones, are fused; None for
            complete rankings.
    """

    name: Name
    channels: tuple[ChannelConfig, ...]
    prompt: str | None = None
    fusion: str = DEFAULT_RULE
    weighting: Literal["fixed", "confidence"] = "fixed"
    prefix: Count | None = None


Outputs = Annotated[Int, Field(ge=1, le=1000)]


@dataclass(frozen=True, config=STRICT)
class PromptConfig:
    """A prompt and its decoding: `prompt=NAME` replaces the method's own prompt with it.

    `user` and `systems` are keyed by data set, `default` and `system` serving all others
    (`desa_ray.engines.prompts`).
    """

    name: Name
    system: Literally
    user: Templates
    requests: Outputs
    texts_per_request: Outputs
    structured: bool
    max_new_tokens: Annotated[Int, Field(ge=1, le=10**6)]
    temperature: Annotated[Float, Field(ge=0, le=100)]
    top_p: Annotated[Float, Field(gt=0, le=1)]
    top_k: Annotated[Int, Field(ge=-1, le=10**6)]
    max_words: Annotated[Int, Field(ge=1, le=10**5)] | None = None
    systems: dict[str, Literally] | None = None
    source: str = ""  # no key


@dataclass(frozen=True, config=STRICT)
class DecodingConfig:
    """How live generators decode, instead of what each prompt says; None leaves it to the prompt.
    Another `seed` changes the seed of every request.
    """

    temperature: Annotated[Float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[Float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Int, Field(ge=-1, le=10**6)] | None = None
    max_tokens: Annotated[Int, Field(ge=1, le=10**6)] | None = None
    seed: Annotated[Int, Field(ge=0, lt=2**63)] | None = None

    @property
    def given(self) -> dict[str, int | float]:
        """What is set, by name."""
        values = {own.name: getattr(self, own.name) for own in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, config=STRICT)
class FusionConfig:
    """What fuses the channels of every method that names no fusion of its own.

    Attributes:
        rule: a name in `desa_ray.core.fusion.registry` or `desa_ray.core.rules.registry`, `score`,
            or a plug-in's.
        replay: exact sums, or the paper's authors' floats (`desa_ray.core.fusion.release`).
        weights: of channels by their kind, instead of the method's.
        normaliser, mean: of rules of scores; None for the rule's own.
        least, most: limits of a channel's scores by its kind, where a rule needs them.
        prefix: only so many documents of each channel are fused, where a method does not say so
            itself; None for all, and 1,000 for rules of scores.
    """

    rule: Name = DEFAULT_RULE
    kappa: Rational = Fraction(60)
    k: Count = 20
    replay: Literal["exact", "release"] = "exact"
    weights: dict[Literal["dense", "sparse"], Rational] | None = None
    normaliser: Name | None = None
    mean: Name | None = None
    least: dict[Literal["dense", "sparse"], Rational] | None = None
    most: dict[Literal["dense", "sparse"], Rational] | None = None
    prefix: Count | None = None


@dataclass(frozen=True, config=STRICT)
class EvaluationConfig:
    exclude_self: bool = False
    measures: tuple[str, ...] = ()
    access_depths: bool = False
    exponential_cutoffs: bool = False
    run_depth: Count = 1000


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
    ranking: Literal["complete", "lazy", "counted"] = "complete"
    n_refs: Annotated[Int, Field(ge=1, le=1000)] = 5
    draws: Annotated[Int, Field(ge=1, le=1000)] = 3
    prompt: PromptConfig | None = None
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
