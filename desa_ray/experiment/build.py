"""From one configuration to its stages: validates everything that can be known beforehand, then wires the graph.

Every problem of a configuration is found before anything expensive starts, and all are reported together. Reading and
validating the collection is part of that; it is remembered in the store, so an unchanged source is read once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from desa_ray.config import ChannelConfig, MethodConfig, RunConfig
from desa_ray.core.evaluation import check_grades, computed_plainly, grade_limits, parse_measures
from desa_ray.core.fusion.cutoffs import CUTOFFS
from desa_ray.core.query_text import AS_DOCUMENT
from desa_ray.engines.encoder import check_encoder, encoder_identity
from desa_ray.engines.jvm import check_java
from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.methods import (
    ORIGINAL,
    check_generator_map,
    check_method,
    needs_text,
    operator,
    options,
    prompt_of,
    prompts,
    texts_used,
)
from desa_ray.experiment.pools import encoder_pool, lucene_pool, replay_pool, scorer_pool
from desa_ray.experiment.text_source import TextSource
from desa_ray.pipeline.execute import Quiet, present, run_stage
from desa_ray.pipeline.executor import SerialExecutor
from desa_ray.pipeline.provenance import installed
from desa_ray.pipeline.stage import Pool, Stage
from desa_ray.stages.collection import CollectionStages, collection_stages, read_rows, record_stage
from desa_ray.stages.dense_ranking import DenseRankingWork
from desa_ray.stages.document_vectors import DocumentVectorsWork, document_vectors_stage
from desa_ray.stages.fusion import FusionWork, fusion_stage
from desa_ray.stages.lazy_fusion import LazyFusionWork, check_lazy
from desa_ray.stages.postings import PostingsWork, postings_stage
from desa_ray.stages.prefix import DensePrefixWork, SparsePrefixWork, prefix_stage
from desa_ray.stages.ranking import ranking_stage
from desa_ray.stages.selection import selected, selection_stage
from desa_ray.stages.snapshot_vectors import SnapshotVectorsWork, snapshot_vectors_stage
from desa_ray.stages.sparse_ranking import SparseRankingWork
from desa_ray.stages.terms import TermsWork, terms_stage
from desa_ray.stages.text_vectors import TextVectorsWork, text_vectors_stage
from desa_ray.store.artifacts import Store

MEASURES = ("nDCG@10", "R@20")


@dataclass(frozen=True)
class Cell:
    """One configuration and its final stages.

    Attributes:
        fused: fusion stages, one a draw.
        reference: the fusion stage of Original under the same settings, which "shallower in both" compares with; None
            for Original itself and for methods without both channels.
    """

    config: RunConfig
    collection: CollectionStages
    fused: tuple[Stage, ...]
    reference: Stage | None
    recording_counts: Mapping[str, int]

    @property
    def targets(self) -> list[Stage]:
        return [*self.fused, *([self.reference] if self.reference else [])]


def measures_of(config: RunConfig) -> list[str]:
    """The names of all measures of a run."""
    return list(dict.fromkeys([*MEASURES, *config.evaluation.measures]))


def setting_problems(config: RunConfig) -> list[DesaError]:
    """Everything wrong with the settings as such: what can be known without any file."""
    problems = [
        *check_generator_map(config.generator),
        *check_method(config.method, config.generator, config.n_refs),
    ]
    if config.fusion.kappa <= -1:
        problems.append(DesaError(f"kappa is {config.fusion.kappa}", where="fusion.kappa", mend="use a value above -1"))
    try:
        parse_measures(measures_of(config))
    except Problems as found:
        problems += found.problems
    except DesaError as found:
        problems.append(found)
    if config.ranking == "lazy" and not problems:
        problems += check_lazy(config, measures_of(config))
    return problems


class Builder:
    """Builds the cells of one configuration; stages are made once and shared by methods and draws."""

    def __init__(self, config: RunConfig, store: Store, home: Path):
        self.config, self.store = config, store
        self.home, self.data_home, self.model_home = home, home / "data", home / "models"
        self.problems: list[DesaError] = []

    def cell(self) -> Cell:
        """Validate and wire; raises `Problems` with everything found."""
        config = self.config
        self.problems += setting_problems(config)
        kinds = {channel.kind for channel in config.method.channels}
        identity = self._try(lambda: encoder_identity(config.encoder, model_home=self.model_home))
        if "dense" in kinds:
            self._try(lambda: check_encoder(config.encoder, model_home=self.model_home))
        self._try(lambda: check_java(config.sparse.java_home))
        collection = self._try(self._collection)
        if collection and not self.problems:
            self._try(lambda: self._grades(collection))
        counts = self._try(lambda: self._texts(collection)) if collection and not self.problems else None
        if self.problems:
            raise Problems(self.problems)
        assert collection is not None
        assert identity is not None
        self.collection, self.identity = collection, identity
        draws = range(config.draws if prompts(config.method) else 1)
        fused = tuple(self._fused(config.method, draw) for draw in draws)
        compared = kinds == {"dense", "sparse"} and config.method.channels != ORIGINAL.channels
        reference = self._fused(ORIGINAL, 0) if compared else None
        return Cell(config, collection, fused, reference, counts or {})

    def texts(self, wanted: Sequence[str]) -> TextSource:
        """The source of generated texts alone, checked for these prompts; raises `Problems`."""
        self.problems += check_generator_map(self.config.generator)
        collection = self._try(self._collection)
        if collection is not None:
            self.source = TextSource(self.config, collection, self.store, self.home)
            self._try(lambda: self.source.check(wanted))
        if self.problems:
            raise Problems(self.problems)
        return self.source

    @property
    def lazy(self) -> bool:
        return self.config.ranking == "lazy"

    @cached_property
    def measures(self) -> list[str]:
        return measures_of(self.config)

    def _try(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Problems as found:
            self.problems += found.problems
        except DesaError as found:
            if str(found) not in map(str, self.problems):  # two looks at one file
                self.problems.append(found)
        return None

    def _collection(self) -> CollectionStages:
        dataset = self.config.dataset
        whole = replace(dataset, size="all", sample="all")
        record = self._stored(record_stage(self.store, whole, self.data_home))
        collection = collection_stages(self.store, whole, record, self.data_home)
        for stage in collection.tables:
            self._stored(stage)
        if dataset == whole:
            return collection
        selection = selection_stage(dataset, collection)
        part = selected(collection, selection, self._stored(selection))
        for stage in part.tables:
            self._stored(stage)
        return part

    def _stored(self, stage: Stage) -> Mapping[str, Any]:
        """The manifest of a cheap stage that planning itself needs, computed here where it is missing."""
        if not present(stage):
            run_stage(stage, SerialExecutor(self.store.files.root), Quiet())
        return stage.artifact.manifest()

    def _grades(self, collection: CollectionStages) -> None:
        """Refuses measures that have no value for a grade of the collection."""
        if limited := grade_limits(self.measures):
            check_grades(limited, read_rows(collection.qrels), "evaluation.measures")

    def _texts(self, collection: CollectionStages) -> Mapping[str, int]:
        """Finds and checks the generated texts."""
        self.source = TextSource(self.config, collection, self.store, self.home)
        return self.source.check(prompts(self.config.method))

    def _vectors(self) -> Stage:
        documents = self.collection.documents
        whole = self.collection.whole or documents
        work = DocumentVectorsWork(self._encoders, self._encoder_shard)
        vectors = document_vectors_stage(whole, self.identity, work, self._label)
        if whole.key == documents.key:
            return vectors
        part = SnapshotVectorsWork(self.config.cluster.shard_documents)
        label = f"{documents.label} {self.config.encoder.name}"
        return snapshot_vectors_stage(documents, whole, vectors, part, label)

    @property
    def _label(self) -> str:
        return f"{self.config.dataset.name} {self.config.encoder.name}"

    @property
    def _encoder_shard(self) -> int:
        """Texts a shard: whole blocks where the engine's vectors depend on a text's neighbours (torch)."""
        block = int(self.identity.get("block_size", 1))
        return -(-self.config.cluster.shard_documents // block) * block

    @cached_property
    def _encoders(self) -> Pool:
        return encoder_pool(self.config, self.identity, self.model_home)

    def _text_vectors(self, source: str, generation: Stage | None) -> Stage:
        prefix = "" if source in AS_DOCUMENT else self.config.encoder.query_prefix
        work = TextVectorsWork(self._encoders, self._encoder_shard)
        queries = self.collection.queries
        return text_vectors_stage(queries, generation, self.identity, source, prefix, work)

    def _terms(self, source: str, generation: Stage | None, used: int, numbers: Mapping[str, str]) -> Stage:
        work = TermsWork(lucene_pool(self.config), self.config.cluster.shard_queries * 4)
        queries = self.collection.queries
        return terms_stage(queries, generation, source, used, numbers, self._analysis, work)

    def _postings(self) -> Stage:
        work = PostingsWork(lucene_pool(self.config))
        return postings_stage(self.collection.documents, self._analysis, work)

    @property
    def _analysis(self) -> dict[str, str]:
        return {"analyzer": "DefaultEnglishAnalyzer", "pyserini": installed()["pyserini"]}

    def _ranking(self, method: MethodConfig, channel: ChannelConfig, draw: int) -> Stage:
        config, collection, cluster = self.config, self.collection, self.config.cluster
        prompt = prompt_of(method, channel)
        generation = self.source.stage(prompt, draw) if prompt else None
        used = texts_used(prompt, config.generator, config.n_refs) if prompt else 0
        numbers = {name: str(value) for name, value in options(channel).items()}
        inputs: dict[str, Stage] = {"queries": collection.queries}
        params: dict[str, Any] = {
            "kind": channel.kind,
            "operator": channel.operator,
            "texts": used,
            "exclude_self": config.evaluation.exclude_self,
        }
        if numbers:
            params["options"] = numbers
        if generation is not None:
            inputs["generation"] = generation
        if config.evaluation.exclude_self:
            inputs["corpus"] = collection.documents
        for source in dict.fromkeys(("query", *operator(channel).texts)):
            text = generation if source != "query" else None
            if channel.kind == "dense":
                inputs[source] = self._text_vectors(source, text)
            else:
                inputs[source] = self._terms(source, text, used if text else 0, numbers)
        scorers = scorer_pool(config)
        if channel.kind == "dense":
            inputs["vectors"] = self._vectors()
            params["scoring"] = config.encoder.scoring
            complete = DenseRankingWork(scorers, cluster.shard_queries, cluster.memory_gb)
            prefix = DensePrefixWork(scorers, cluster.memory_gb)
        else:
            inputs["postings"] = self._postings()
            params |= {"k1": config.sparse.k1, "b": config.sparse.b}
            complete = SparseRankingWork(scorers, cluster.shard_queries, cluster.memory_gb)
            prefix = SparsePrefixWork(scorers, cluster.shard_queries)
        label = f"{channel.kind} {channel.operator}"
        if generation is not None:
            label += f" {generation.label}"
        if self.lazy:
            return prefix_stage(params, inputs, prefix, label)
        return ranking_stage(params, inputs, complete, label)

    def _fused(self, method: MethodConfig, draw: int) -> Stage:
        config = self.config
        texts = {prompt: self.source.stage(prompt, draw) for prompt in prompts(method)}
        channels = {c.name: self._ranking(method, c, draw) for c in method.channels}
        sparse = [channel for channel in method.channels if channel.kind == "sparse"]
        original = None
        if len(sparse) == 1 and any(map(needs_text, method.channels)) and not self.lazy:
            original = self._ranking(ORIGINAL, ORIGINAL.channels[1], 0)
        named = [{"name": c.name, "kind": c.kind, "weight": str(c.weight)} for c in method.channels]
        params: dict[str, Any] = {
            "channels": named,
            "fusion": method.fusion,
            "weighting": method.weighting,
            "prefix": method.prefix,
            "kappa": str(config.fusion.kappa),
            "k": config.fusion.k,
            "measures": self.measures,
            "cutoffs": list(CUTOFFS),
            "run_depth": config.evaluation.run_depth,
        }
        if computed_plainly(self.measures):
            params["plain_measures"] = 1
        work = FusionWork(replay_pool(config), config.cluster.shard_queries)
        if self.lazy:
            params["ranking"] = "lazy"
            work = LazyFusionWork(work.pool, work.shard_queries)
        label = f"{method.name} draw {draw} kappa {config.fusion.kappa}"
        return fusion_stage(self.collection, channels, texts, original, params, work, label)
