"""Dense rankings: the operator's query vectors, exact scores against every document, complete
order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desa_ray.core.operators import DenseOperator
from desa_ray.core.ranking import complete_order
from desa_ray.engines.gemm import Float32Gemm, Gemm
from desa_ray.pipeline.stage import Shard, Stage
from desa_ray.stages.calibrated import read_calibration
from desa_ray.stages.plugged import operator_of
from desa_ray.stages.ranking import (
    RankedQuery,
    RankingWork,
    fell_back,
    options,
    own_documents,
    write_ranked,
)
from desa_ray.stages.stored_vectors import read_vectors, vector_shards
from desa_ray.stages.text_vectors import text_vectors
from desa_ray.stages.worker_cache import WorkerCache


@dataclass(frozen=True)
class DenseRankingWork(RankingWork):
    """Operator, exact scores against every document, complete order.

    Inputs: `vectors`, one text-vector stage per text source under its name, `queries`.
    """

    def documents(self, stage: Stage) -> int:
        return corpus_size(stage.inputs["vectors"])

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        rows = range(shard.start, shard.stop)
        queries, angles = dense_queries(engine, stage, rows)
        own = own_documents(engine, stage)
        total = self.documents(stage)
        scores = np.empty((len(rows), total), np.float32)
        for first, part in dense_scores(engine, stage, queries, self.memory_gb):
            scores[:, first : first + part.shape[1]] = part
        ranked: list[RankedQuery] = []
        for offset, row in enumerate(rows):
            (docs,) = complete_order(scores[offset : offset + 1])
            if row in own:
                docs = docs[docs != own[row]]
            top = [*(float(scores[offset, number]) for number in docs[:2]), None, None]
            ranked.append(RankedQuery(docs, docs.size, (top[0], top[1]), angles[offset]))
        write_ranked(stage.artifact, shard.parts, ranked)


def corpus_size(vectors: Stage) -> int:
    return vectors.stored_layout()["bounds"][-1]


def dense_queries(
    engine: WorkerCache, stage: Stage, rows: Sequence[int]
) -> tuple[np.ndarray, list[float | None]]:
    """Expanded query vectors float32 [rows, D] and the operator's angles; a fallback is the
    original query.
    """
    operator = operator_of("dense", stage.params["operator"], stage.params.get("plugin"))
    assert isinstance(operator, DenseOperator)
    given: dict[str, np.ndarray] = {}
    for source in {"query", *operator.texts}:
        text_stage = stage.inputs[source]
        vectors = engine.get(
            text_stage.key.digest, lambda text_stage=text_stage: text_vectors(text_stage)
        )
        given[source] = (
            vectors[rows, 0] if source == "query" else vectors[rows, : stage.params["texts"]]
        )
    numbers: dict[str, Any] = dict(options(stage))
    if operator.calibrated:
        found = stage.inputs["calibration"]
        numbers["alpha"] = engine.get(found.key.digest, lambda: read_calibration(found)[0])
    expanded, diagnostics = operator.function(given, **numbers)
    as_it_was = np.array(fell_back(engine, stage, rows), bool)
    expanded[as_it_was] = given["query"][as_it_was]
    angle = diagnostics.get("angle_deg")
    angles = [None if angle is None or as_it_was[i] else float(angle[i]) for i in range(len(rows))]
    return expanded, angles


def dense_scores(
    engine: WorkerCache,
    stage: Stage,
    queries: np.ndarray,
    memory_gb: float,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first document, float32 scores [queries, n]) for blocks of the documents start..stop,
    in their order.

    Vectors are read one shard at a time; a corpus whose prepared vectors take less than half of
    the budget stays prepared in the worker. `start` and `stop` are edges of vector shards.
    """
    vectors = stage.inputs["vectors"]
    shards = vector_shards(vectors)
    exact = stage.params["scoring"] == "int26"
    gemm: Gemm = engine.gemm if exact else Float32Gemm()
    prepared = gemm.prepared(queries)
    keep = shards[-1].stop * queries.shape[1] * 8 <= memory_gb * 2**29
    kept = engine.get(f"vectors {vectors.key.digest} {exact}", dict) if keep else {}
    block = max(256, int(memory_gb * 2**27 / 8 / (queries.shape[1] + 2 * len(queries))))
    for part in shards:
        if part.start < start or part.stop > (stop or part.stop):
            continue
        pieces: Iterable[tuple[int, Any]] = kept.get(part.number) or _pieces(
            gemm, vectors, part, block
        )
        if keep:
            pieces = kept[part.number] = list(pieces)
        for first, piece in pieces:
            yield first, gemm.scores(prepared, piece)


def _pieces(gemm: Gemm, vectors: Stage, part: Shard, block: int) -> Iterator[tuple[int, Any]]:
    """(first document, vectors ready to be multiplied) for blocks of a shard."""
    documents = read_vectors(vectors, part)
    for first in range(0, len(documents), block):
        yield part.start + first, gemm.prepared(documents[first : first + block])
