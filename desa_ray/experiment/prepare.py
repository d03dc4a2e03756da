"""Preparation of a plan: everything that it depends on is read and validated, and the collection is
stored.

Every problem of a configuration is found here, before anything expensive starts, and all are
reported together. The collection is remembered in the store, so an unchanged source is read once.
Planning, which comes after this, writes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from desa_ray.config import RunConfig
from desa_ray.core.evaluation import EXPONENTIAL, check_grades, grade_limits
from desa_ray.counting import counting
from desa_ray.engines.encoder import check_encoder, encoder_identity
from desa_ray.engines.jvm import check_java
from desa_ray.engines.learned_sparse import sparse_identity
from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.checks import decoding_problems, measures_of, setting_problems
from desa_ray.experiment.learned import analysis, file_stages
from desa_ray.experiment.methods import check_generator_map, prompts
from desa_ray.experiment.pools import reader_pool
from desa_ray.experiment.reading import readers, store_collection, stored
from desa_ray.experiment.text_source import TextSource
from desa_ray.pipeline.backend import Backend
from desa_ray.stages.collection import CollectionStages, read_rows
from desa_ray.store.artifacts import Store

Result = TypeVar("Result")


@dataclass(frozen=True)
class Prepared:
    """One valid configuration, and what its plan is made from.

    Attributes:
        collection: its tables, stored.
        texts: where its generated texts come from.
        encoder: everything that decides the encoder's vectors; empty where no channel is dense.
        recording_counts: what was noticed in recorded texts.
        devices: what encodes and scores, in words, once that is decided.
        sparse: what decides learned impacts, query weights and the texts of documents
            (`sparse_identity`).
    """

    config: RunConfig
    home: Path
    collection: CollectionStages
    texts: TextSource
    encoder: dict[str, Any]
    recording_counts: Mapping[str, int]
    devices: tuple[str, ...] = ()
    sparse: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


def prepare(configs: Sequence[RunConfig], store: Store, home: Path) -> list[Prepared]:
    """Prepare all cells of a run; raises `Problems` with every problem of every one, each once."""
    prepared, problems, answers = [], {}, Answers()
    with ExitStack() as around:
        backend = around.enter_context(readers(configs[0].cluster)) if configs else None
        for config in counting(configs, "checking cells"):
            try:
                prepared.append(prepare_cell(config, store, home, answers, backend))
            except Problems as found:
                problems |= {str(problem): problem for problem in found.problems}
    if problems:
        raise Problems(problems.values())
    return prepared


class Answers:
    """What cells of one run ask alike, asked once: thousands of them share an encoder and a
    collection, whose files are read and hashed for an answer.
    """

    def __init__(self):
        self._known: dict[tuple[str, ...], Any] = {}

    def of(self, question: str, about: Sequence[Any], ask: Callable[[], Result]) -> Result:
        """What `ask` returns or raises (`DesaError`); one question about equal things has one
        answer.
        """
        key = question, *map(repr, about)
        if key not in self._known:
            try:
                self._known[key] = ask()
            except DesaError as error:
                self._known[key] = error
        answer = self._known[key]
        if isinstance(answer, DesaError):
            raise answer.with_traceback(None)
        return answer


def prepare_cell(
    config: RunConfig,
    store: Store,
    home: Path,
    answers: Answers | None = None,
    backend: Backend | None = None,
) -> Prepared:
    """Prepare one configuration; raises `Problems` with everything found.

    Args:
        answers: what was found for other cells of the same run.
        backend: what reads large collections; this process where left out.
    """
    known = answers or Answers()
    found = _Findings(setting_problems(config))
    models, encoder, dataset = home / "models", config.encoder, config.dataset
    identity: dict[str, Any] | None = {}
    if any(channel.kind == "dense" for channel in config.method.channels):
        identity = found.of(
            lambda: known.of(
                "encoder", [encoder], lambda: encoder_identity(encoder, model_home=models)
            )
        )
        found.of(
            lambda: known.of("files", [encoder], lambda: check_encoder(encoder, model_home=models))
        )
    sparse, learned = config.sparse, None
    if any(channel.kind == "sparse" for channel in config.method.channels):
        learned = found.of(
            lambda: known.of(
                "sparse", [sparse], lambda: sparse_identity(sparse, analysis(sparse), models)
            )
        )
    java = config.sparse.java_home
    found.of(lambda: known.of("java", [java], lambda: check_java(java)))
    collection = found.of(
        lambda: known.of(
            "collection",
            [dataset],
            lambda: store_collection(dataset, store, home / "data", reader_pool(config), backend),
        )
    )
    if collection is not None and not found.problems:
        found.of(lambda: _check_grades(config, collection, known))
        for stage in file_stages(config, collection, learned or {}) if not found.problems else ():
            found.of(partial(stored, stage))
    found.raise_any()
    assert collection is not None
    assert identity is not None
    texts_from = [dataset, config.generator]
    recordings = known.of("recordings", texts_from, dict)
    texts = TextSource(config, collection, store, home, recordings)
    wanted = prompts(config.method)
    asked = [*texts_from, config.cluster, config.draws, wanted, config.prompt, config.decoding]
    counts = found.of(lambda: known.of("texts", asked, lambda: texts.check(wanted)))
    found.raise_any()
    sparse_side = learned or {}
    return Prepared(config, home, collection, texts, identity, counts or {}, sparse=sparse_side)


def prepare_texts(config: RunConfig, wanted: Sequence[str], store: Store, home: Path) -> TextSource:
    """The source of generated texts alone, checked for these prompts; raises `Problems`."""
    found = _Findings([*check_generator_map(config.generator), *decoding_problems(config)])
    collection = found.of(
        lambda: store_collection(config.dataset, store, home / "data", reader_pool(config))
    )
    texts = TextSource(config, collection, store, home) if collection is not None else None
    if texts is not None:
        found.of(lambda: texts.check(wanted))
    found.raise_any()
    assert texts is not None
    return texts


def _check_grades(config: RunConfig, collection: CollectionStages, known: Answers) -> None:
    """Refuses measures that have no value for a grade of the collection; nDCG with exponential gain
    is in every record.
    """
    limited = grade_limits([EXPONENTIAL, *measures_of(config)])
    known.of(
        "grades",
        [collection.qrels.key.digest, limited],
        lambda: check_grades(limited, read_rows(collection.qrels), "evaluation.measures"),
    )


class _Findings:
    """The problems of one configuration, found step by step."""

    def __init__(self, problems: Sequence[DesaError]):
        self.problems = list(problems)

    def of(self, step: Callable[[], Result]) -> Result | None:
        """What a step returns; None where it raises, and its problems are kept."""
        try:
            return step()
        except Problems as found:
            self.problems += found.problems
        except DesaError as found:
            if str(found) not in map(str, self.problems):  # two steps may look at one file
                self.problems.append(found)
        return None

    def raise_any(self) -> None:
        if self.problems:
            raise Problems(self.problems)
