"""From one configuration to its stages: validates everything that can be known beforehand, then wires the graph.

Every problem of a configuration is found before anything expensive starts, and all are reported together. Reading and
validating the collection is part of that; it is remembered in the store, so an unchanged source is read once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from desa_ray.config import ChannelConfig, MethodConfig, RunConfig
from desa_ray.core.metrics import parse_measures
from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS
from desa_ray.data import generations_folder
from desa_ray.engines.encoder import encoder_identity
from desa_ray.engines.jvm import check_java
from desa_ray.engines.prompts import load_prompt, prompt_names
from desa_ray.engines.recorded_generator import recorded_fingerprint
from desa_ray.errors import DesaError, Problems, listed
from desa_ray.pipeline.collection import CollectionStages, collection_stages, record_stage
from desa_ray.pipeline.execute import Quiet, present, run_stage
from desa_ray.pipeline.executor import SerialExecutor
from desa_ray.pipeline.fusing import FusionWork
from desa_ray.pipeline.generations import RecordedWork
from desa_ray.pipeline.lexical import PostingsWork, TermsWork
from desa_ray.pipeline.pools import encoder_pool, lucene_pool, replay_pool, scorer_pool
from desa_ray.pipeline.provenance import installed
from desa_ray.pipeline.rankings import DenseRankingWork, SparseRankingWork
from desa_ray.pipeline.stage import Pool, Stage
from desa_ray.pipeline.vectors import CorpusVectorsWork, TextVectorsWork
from desa_ray.store.artifacts import Store

ORIGINAL = MethodConfig(
    name="original",
    channels=(
        ChannelConfig(name="dense", kind="dense", operator="original"),
        ChannelConfig(name="sparse", kind="sparse", operator="original"),
    ),
)
MEASURES = ("nDCG@10", "R@20")
OPERATORS: Mapping[str, Mapping[str, Any]] = {"dense": DENSE_OPERATORS, "sparse": SPARSE_OPERATORS}


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


def check_method(method: MethodConfig, n_refs: int) -> list[DesaError]:
    """What is wrong with a method as written; choices are listed from the operators there are."""
    problems = []
    where = f"method {method.name}"
    names = [channel.name for channel in method.channels]
    if not names:
        problems.append(DesaError("no channels", where=where, mend="list at least one"))
    if repeated := {name for name in names if names.count(name) > 1}:
        problems.append(DesaError(f"two channels named {listed(sorted(repeated))}", where=where, mend="rename one"))
    if method.prompt is not None and method.prompt not in prompt_names():
        problems.append(
            DesaError(f"unknown prompt {method.prompt!r}", where=where, mend=f"known: {listed(prompt_names())}")
        )
    for channel in method.channels:
        place = f"{where}, channel {channel.name}"
        known = OPERATORS[channel.kind]
        if channel.operator not in known:
            what = f"unknown {channel.kind} operator {channel.operator!r}"
            problems.append(DesaError(what, where=place, mend=f"known: {listed(known, 20)}"))
        elif method.prompt is None and set(known[channel.operator].texts) != {"query"}:
            what = f"operator {channel.operator!r} needs generated text, but the method names no prompt"
            problems.append(DesaError(what, where=place, mend=f"add prompt: one of {listed(prompt_names())}"))
        if channel.weight <= 0:
            what = f"weight {channel.weight} is not positive"
            problems.append(DesaError(what, where=place, mend="drop the channel or give it a weight > 0"))
    if method.prompt == "references" and n_refs > load_prompt("references").text_count:
        what = f"n_refs is {n_refs}, but the prompt asks for {load_prompt('references').text_count} references"
        problems.append(DesaError(what, where="n_refs", mend="use a smaller n_refs"))
    return problems


class Builder:
    """Builds the cells of one configuration; stages are made once and shared by methods and draws."""

    def __init__(self, config: RunConfig, store: Store, home: Path):
        self.config, self.store = config, store
        self.data_home, self.model_home = home / "data", home / "models"
        self.problems: list[DesaError] = []

    def cell(self) -> Cell:
        """Validate and wire; raises `Problems` with everything found."""
        config = self.config
        self.problems += check_method(config.method, config.n_refs)
        if config.fusion.kappa <= -1:
            self._problem(f"kappa is {config.fusion.kappa}", "fusion.kappa", "use a value above -1")
        self._try(lambda: parse_measures(self.measures))
        kinds = {channel.kind for channel in config.method.channels}
        identity = self._try(lambda: encoder_identity(config.encoder, model_home=self.model_home))
        self._try(lambda: check_java(config.sparse.java_home))
        collection = self._try(self._collection)
        counts = self._try(lambda: self._recording(collection)) if collection and not self.problems else None
        if self.problems:
            raise Problems(self.problems)
        assert collection is not None
        assert identity is not None
        self.collection, self.identity, self.stages = collection, identity, {}
        draws = range(config.draws if config.method.prompt else 1)
        fused = tuple(self._fused(config.method, draw) for draw in draws)
        compared = kinds == {"dense", "sparse"} and config.method.channels != ORIGINAL.channels
        reference = self._fused(ORIGINAL, 0) if compared else None
        return Cell(config, collection, fused, reference, counts or {})

    @cached_property
    def measures(self) -> list[str]:
        return list(dict.fromkeys([*MEASURES, *self.config.evaluation.measures]))

    def _problem(self, what: str, where: str, mend: str) -> None:
        self.problems.append(DesaError(what, where=where, mend=mend))

    def _try(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Problems as found:
            self.problems += found.problems
        except DesaError as found:
            self.problems.append(found)
        return None

    def _collection(self) -> CollectionStages:
        dataset = self.config.dataset
        serial = SerialExecutor(self.store.files.root)
        record = record_stage(dataset, self.data_home)
        if not present(self.store, record):
            run_stage(self.store, record, serial, Quiet())
        collection = collection_stages(dataset, record.artifact(self.store).manifest(), self.data_home)
        for stage in (collection.documents, collection.queries, collection.qrels):
            if not present(self.store, stage):
                run_stage(self.store, stage, serial, Quiet())
        return collection

    def _recording(self, collection: CollectionStages) -> Mapping[str, int]:
        """Where the generated texts lie; reads and checks them unless the store has them already."""
        config = self.config
        self.folder: Path | None = None
        self.recording: str | None = None
        if config.method.prompt is None:
            return {}
        if config.generator.folder is not None:
            self.folder = Path(config.generator.folder)
        else:
            self.folder = generations_folder(config.dataset, data_home=self.data_home)
        if self.folder is None:
            raise DesaError(
                f"data set {config.dataset.name} brings no recorded generations",
                where="generator.folder",
                mend="set it to the folder that holds references.jsonl",
            )
        self.collection = collection
        prompt = load_prompt(config.method.prompt)
        self.recording = recorded_fingerprint(self.folder, prompt)
        stages = [self._generation(draw) for draw in range(config.draws)]
        if all(present(self.store, stage) for stage in stages):
            return stages[0].artifact(self.store).manifest()["meta"]["recording"]
        work = stages[0].work
        assert isinstance(work, RecordedWork)
        return work.read(self.store, stages[0]).counts

    def _generation(self, draw: int) -> Stage:
        config = self.config
        assert config.method.prompt is not None
        prompt = load_prompt(config.method.prompt)
        params = {
            "generator": config.generator.kind,
            "recording": self.recording,
            "strict": config.generator.strict,
            "prompt": prompt.name,
            "prompt_hash": prompt.hash,
            "count": prompt.text_count,
            "draw": draw,
        }
        work = RecordedWork(str(self.folder), config.dataset.name, config.draws)
        return Stage("generation", 1, params, work, {"queries": self.collection.queries}, f"{prompt.name} draw {draw}")

    def _texts_used(self) -> int:
        """How many generated texts a channel uses: n_refs of the five references, all of any other prompt's."""
        prompt = self.config.method.prompt
        assert prompt is not None
        return self.config.n_refs if prompt == "references" else load_prompt(prompt).text_count

    def _vectors(self) -> Stage:
        work = CorpusVectorsWork(self._encoders, self._encoder_shard)
        return Stage("vectors", 1, {"encoder": self.identity}, work, {"corpus": self.collection.documents}, self._label)

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
        prefix = "" if source == "reference" else self.config.encoder.query_prefix
        inputs = {"queries": self.collection.queries} | ({"generation": generation} if generation else {})
        params = {"encoder": self.identity, "template": source, "prefix": prefix}
        work = TextVectorsWork(self._encoders, self._encoder_shard)
        label = f"{source} {generation.label}" if generation else source
        return Stage("text_vectors", 1, params, work, inputs, label)

    def _lexical(self, source: str, generation: Stage | None) -> Stage:
        used = self._texts_used() if generation else 0
        inputs = {"queries": self.collection.queries} | ({"generation": generation} if generation else {})
        params = {"template": source, "texts": used, **self._analysis}
        work = TermsWork(lucene_pool(self.config), self.config.cluster.shard_queries * 4)
        label = f"{source} {generation.label}" if generation else source
        return Stage("terms", 1, params, work, inputs, label)

    @property
    def _analysis(self) -> dict[str, str]:
        return {"analyzer": "DefaultEnglishAnalyzer", "pyserini": installed()["pyserini"]}

    def _ranking(self, channel: ChannelConfig, generation: Stage | None) -> Stage:
        config, collection = self.config, self.collection
        cluster = config.cluster
        operator = OPERATORS[channel.kind][channel.operator]
        generated = [source for source in operator.texts if source != "query"]
        generation = generation if generated else None
        inputs: dict[str, Stage] = {"queries": collection.queries}
        params: dict[str, Any] = {
            "kind": channel.kind,
            "operator": channel.operator,
            "texts": self._texts_used() if generated else 0,
            "exclude_self": config.evaluation.exclude_self,
        }
        if generation is not None:
            inputs["generation"] = generation
        if config.evaluation.exclude_self:
            inputs["corpus"] = collection.documents
        make = self._text_vectors if channel.kind == "dense" else self._lexical
        inputs["query"] = make("query", None)
        for source in generated:
            inputs[source] = make(source, generation)
        shape = (scorer_pool(config), cluster.shard_queries, cluster.memory_gb)
        if channel.kind == "dense":
            inputs["vectors"] = self._vectors()
            params["scoring"] = config.encoder.scoring
            work = DenseRankingWork(*shape)
        else:
            inputs["postings"] = Stage(
                "postings",
                1,
                self._analysis,
                PostingsWork(lucene_pool(config)),
                {"corpus": collection.documents},
                config.dataset.name,
            )
            params |= {"k1": config.sparse.k1, "b": config.sparse.b}
            work = SparseRankingWork(*shape)
        label = f"{channel.kind} {channel.operator}" + (f" {generation.label}" if generation else "")
        return Stage("ranking", 1, params, work, inputs, label)

    def _fused(self, method: MethodConfig, draw: int) -> Stage:
        config, collection = self.config, self.collection
        generation = self._generation(draw) if method.prompt else None
        channels = [{"name": c.name, "kind": c.kind, "weight": str(c.weight)} for c in method.channels]
        inputs = {"queries": collection.queries, "corpus": collection.documents, "qrels": collection.qrels}
        if generation is not None:
            inputs["generation"] = generation
        for channel in method.channels:
            inputs[f"channel:{channel.name}"] = self._ranking(channel, generation)
        params = {
            "channels": channels,
            "kappa": str(config.fusion.kappa),
            "k": config.fusion.k,
            "measures": self.measures,
            "run_depth": config.evaluation.run_depth,
        }
        work = FusionWork(replay_pool(config), config.cluster.shard_queries)
        return Stage("fusion", 1, params, work, inputs, f"{method.name} draw {draw} kappa {config.fusion.kappa}")
