"""The channels of one prepared configuration: from its settings to the stages of vectors, postings,
terms and rankings. Reads and writes nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from desa_ray.config import ChannelConfig, FusionConfig, MethodConfig
from desa_ray.core.feedback import FEEDBACK
from desa_ray.core.query_text import AS_DOCUMENT
from desa_ray.experiment.checks import measures_of
from desa_ray.experiment.learned import (
    analysis,
    indexed_documents,
    learned_postings,
    query_vectors,
    scoring_params,
    weigher_pool,
)
from desa_ray.experiment.methods import (
    ORIGINAL,
    operator,
    options,
    own_prompts,
    prompt_of,
    texts_used,
)
from desa_ray.experiment.pools import encoder_pool, lucene_pool, scorer_pool
from desa_ray.experiment.prepare import Prepared
from desa_ray.pipeline.stage import Pool, Stage
from desa_ray.stages.calibration import CalibrationWork, calibration_stage
from desa_ray.stages.counted_fusion import CountedPlan, counted_plan
from desa_ray.stages.dense_runs import CompleteDenseWork
from desa_ray.stages.document_vectors import DocumentVectorsWork, document_vectors_stage
from desa_ray.stages.feedback import FEEDBACK_INPUTS, FeedbackWork, feedback_stage
from desa_ray.stages.plugged import operator_plugin
from desa_ray.stages.postings import PostingsWork, postings_stage
from desa_ray.stages.prefix import DensePrefixWork, SparsePrefixWork, prefix_stage
from desa_ray.stages.query_weights import QueryWeightsWork, query_weights_stage
from desa_ray.stages.ranking import ranking_stage
from desa_ray.stages.snapshot_vectors import SnapshotVectorsWork, snapshot_vectors_stage
from desa_ray.stages.sparse_ranking import SparseRankingWork
from desa_ray.stages.terms import TermsWork, terms_stage
from desa_ray.stages.text_vectors import TextVectorsWork, text_vectors_stage
from desa_ray.stages.top_scores import TopScoresWork, top_scores_stage


class Channels:
    """Makes the stages of one prepared configuration's channels, each once.

    Args:
        rankings: those made for other cells of the same run; thousands of cells share a few.
    """

    def __init__(self, prepared: Prepared, rankings: dict[tuple[str, ...], Stage] | None = None):
        self.rankings = {} if rankings is None else rankings
        self.config, self.collection = prepared.config, prepared.collection
        self.source = prepared.texts
        self.identity, self.model_home = prepared.encoder, prepared.home / "models"
        self.learned = prepared.sparse

    @cached_property
    def measures(self) -> list[str]:
        return measures_of(self.config)

    @property
    def encoded(self) -> Stage:
        """The vectors of all documents; a snapshot of the collection takes some of them."""
        whole = self.collection.whole or self.collection.documents
        work = DocumentVectorsWork(self._encoders, self._encoder_shard)
        prefix = self.config.encoder.document_prefix
        return document_vectors_stage(whole, self.identity, prefix, work, self._label)

    def _vectors(self) -> Stage:
        documents, vectors = self.collection.documents, self.encoded
        whole = vectors.inputs["corpus"]
        if whole.key == documents.key:
            return vectors
        part = SnapshotVectorsWork()
        label = f"{documents.label} {self.config.encoder.name}"
        return snapshot_vectors_stage(documents, whole, vectors, part, label)

    @property
    def _label(self) -> str:
        return f"{self.config.dataset.name} {self.config.encoder.name}"

    @property
    def _encoder_shard(self) -> int:
        """Texts per shard: whole blocks where the engine's vectors depend on a text's neighbours
        (torch).
        """
        block = int(self.identity.get("block_size", 1))
        return -(-self.config.cluster.shard_documents // block) * block

    @cached_property
    def _encoders(self) -> Pool:
        return encoder_pool(self.config, self.identity, self.model_home)

    @cached_property
    def _indexers(self) -> Pool:
        return lucene_pool(self.config, self.collection.counts["documents"])

    def _text_vectors(self, source: str, generation: Stage | None) -> Stage:
        encoder = self.config.encoder
        prefix = encoder.document_prefix if source in AS_DOCUMENT else encoder.query_prefix
        work = TextVectorsWork(self._encoders, self._encoder_shard)
        queries = self.collection.queries
        return text_vectors_stage(queries, generation, self.identity, source, prefix, work)

    def _terms(
        self, source: str, generation: Stage | None, used: int, numbers: Mapping[str, str]
    ) -> Stage:
        size, queries = self.config.cluster.shard_queries * 4, self.collection.queries
        if self.config.sparse.kind != "bm25":
            pool = weigher_pool(self.config, self._indexers, self.learned, self.model_home)
            weigh, own = QueryWeightsWork(pool, size), self.learned["queries"]
            vectors = query_vectors(self.config, self.collection, self.learned)
            texts = queries, generation, source, used
            return query_weights_stage(*texts, numbers, own, weigh, vectors)
        work = TermsWork(self._indexers, size)
        return terms_stage(queries, generation, source, used, numbers, self._analysis, work)

    def _postings(self) -> Stage:
        if self.config.sparse.kind != "bm25":
            return learned_postings(self.config, self.collection, self.learned, self.model_home)
        work = PostingsWork(self._indexers, self.config.cluster.range_documents)
        documents = indexed_documents(self.config, self.collection, self.learned)
        return postings_stage(documents, self._analysis, work)

    def _feedback(
        self,
        model: str,
        numbers: Mapping[str, str],
        scored: Mapping[str, Any],
        inputs: Mapping[str, Stage],
    ) -> Stage:
        work = FeedbackWork(
            scorer_pool(self.config, dense=False), self.config.cluster.shard_queries
        )
        ranked = {name: scored[name] for name in ("k1", "b", "exclude_self")}
        read = {name: inputs[name] for name in FEEDBACK_INPUTS if name in inputs}
        return feedback_stage(model, numbers, ranked, read, work)

    @property
    def _analysis(self) -> dict[str, str]:
        return analysis(self.config.sparse)

    def scored(
        self, method: MethodConfig, channel: ChannelConfig, draw: int
    ) -> tuple[dict[str, Any], dict[str, Stage], str]:
        """What decides the scores of a channel, parameters and inputs; and its label."""
        prompt = prompt_of(method, channel)
        generation = self.source.stage(prompt, draw) if prompt else None
        params = self._channel_params(method, channel)
        inputs: dict[str, Stage] = {"queries": self.collection.queries}
        if generation is not None:
            inputs["generation"] = generation
        if self.config.evaluation.exclude_self:
            inputs["corpus"] = self.collection.documents
        label = f"{channel.kind} {channel.operator}"
        if generation is not None:
            label += f" {generation.label}"
        if channel.kind == "sparse":
            self._add_sparse(channel, generation, params, inputs)
        else:
            self._add_dense(channel, generation, params, inputs)
        return params, inputs, label

    def _channel_params(self, method: MethodConfig, channel: ChannelConfig) -> dict[str, Any]:
        """What dense and sparse channels have in common."""
        config, prompt = self.config, prompt_of(method, channel)
        own = own_prompts(method, config.prompt)
        used = texts_used(prompt, config.generator, config.n_refs, own) if prompt else 0
        params: dict[str, Any] = {
            "kind": channel.kind,
            "operator": channel.operator,
            "texts": used,
            "exclude_self": config.evaluation.exclude_self,
        }
        numbers = _numbers(channel)
        if numbers:
            params["options"] = numbers
        if plugged := operator_plugin(channel.kind, channel.operator):
            params["plugin"] = plugged
        return params

    def _add_sparse(
        self,
        channel: ChannelConfig,
        generation: Stage | None,
        params: dict[str, Any],
        inputs: dict[str, Stage],
    ) -> None:
        """Add postings, and the terms of each text that the operator reads, to a channel."""
        numbers = _numbers(channel)
        inputs["postings"] = self._postings()
        params |= scoring_params(self.config.sparse)
        for source in _texts_read(channel):
            text = generation if source != "query" else None
            if source in FEEDBACK:
                inputs[source] = self._feedback(source, numbers, params, inputs)
            else:
                used = params["texts"] if text else 0
                inputs[source] = self._terms(source, text, used, numbers)

    def _add_dense(
        self,
        channel: ChannelConfig,
        generation: Stage | None,
        params: dict[str, Any],
        inputs: dict[str, Stage],
    ) -> None:
        """Add the vectors of documents and of each text that the operator reads to a channel."""
        for source in _texts_read(channel):
            inputs[source] = self._text_vectors(source, generation if source != "query" else None)
        inputs["vectors"] = self._vectors()
        params["scoring"] = self.config.encoder.scoring
        if getattr(operator(channel), "calibrated", False):
            work = CalibrationWork(scorer_pool(self.config), self.config.cluster.memory_gb)
            assert generation is not None
            given = dict(inputs)
            inputs["calibration"] = calibration_stage(params, given, work, generation.label)

    @cached_property
    def _unfused(self) -> str:
        """All settings but those of methods and fusion, on which rankings do not depend unless they
        are counted.
        """
        return repr(replace(self.config, method=ORIGINAL, fusion=FusionConfig()))

    def ranking(self, method: MethodConfig, channel: ChannelConfig, draw: int) -> Stage:
        if self.config.ranking == "counted":
            return self._new_ranking(method, channel, draw)
        about = self._unfused, repr(method), channel.name, str(draw)
        if about not in self.rankings:
            self.rankings[about] = self._new_ranking(method, channel, draw)
        return self.rankings[about]

    def _new_ranking(self, method: MethodConfig, channel: ChannelConfig, draw: int) -> Stage:
        """The channel's complete ranking, or the head of it that a lazy or counted run holds."""
        cluster = self.config.cluster
        scorers = scorer_pool(self.config, dense=channel.kind == "dense")
        params, inputs, label = self.scored(method, channel, draw)
        if channel.kind == "dense":
            complete = CompleteDenseWork(scorers, cluster.shard_queries, cluster.memory_gb)
            prefix = DensePrefixWork(scorers, cluster.memory_gb)
        else:
            complete = SparseRankingWork(scorers, cluster.shard_queries, cluster.memory_gb)
            prefix = SparsePrefixWork(scorers, cluster.shard_queries)
        if self.config.ranking == "complete":
            return ranking_stage(params, inputs, complete, label)
        depth = self.counted_for(method).depth if self.config.ranking == "counted" else None
        return prefix_stage(params, inputs, prefix, label, depth)

    def counted_for(self, method: MethodConfig) -> CountedPlan:
        """What a counted run of a method holds and counts."""
        return counted_plan(method, self.config.fusion.kappa, self.config.fusion.k, self.measures)

    def top_scores(self, method: MethodConfig, channel: ChannelConfig, draw: int) -> Stage:
        cluster = self.config.cluster
        pool = scorer_pool(self.config, dense=channel.kind == "dense")
        work = TopScoresWork(pool, cluster.shard_queries, cluster.memory_gb)
        params, inputs, label = self.scored(method, channel, draw)
        return top_scores_stage(params, inputs, work, label)


def _numbers(channel: ChannelConfig) -> dict[str, str]:
    """A channel's operator options, as they are written in keys."""
    return {name: str(value) for name, value in options(channel).items()}


def _texts_read(channel: ChannelConfig) -> list[str]:
    """The query, and what else the operator reads, each once."""
    return list(dict.fromkeys(("query", *operator(channel).texts)))
