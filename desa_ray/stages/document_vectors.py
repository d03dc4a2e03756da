"""Document vectors: every document of the corpus, encoded once, in FAISS flat index files.

Rows are hashed in order, so that the artifact's content does not depend on shard or batch sizes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desa_ray.engines.dense_index import read_shard, write_shard
from desa_ray.engines.encoder import Encoder
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Count, Finished, Pool, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import read_rows
from desa_ray.store.content import ArrayHasher


@dataclass(frozen=True)
class DocumentVectorsWork(Work):
    """Encodes documents, after their prefix, into one FAISS flat index file per shard."""

    pool: Pool
    shard_documents: int
    unit = "documents"
    sized_by = "corpus"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        rows = stage.inputs["corpus"].artifact.manifest()["counts"]["rows"]
        return {"bounds": bounds(rows, self.shard_documents)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.faiss")

    def run(self, engine: Encoder, stage: Stage, shard: Shard) -> None:
        documents = read_rows(stage.inputs["corpus"], shard.start, shard.stop)
        prefix = stage.params.get("prefix", "")
        texts = [prefix + text for text in documents["text"]]
        vectors = engine.encode(texts, documents["id"].to_list())
        stage.artifact.write_part(
            shard.parts[0], lambda path: write_shard(vectors, path), rows=shard.stop - shard.start
        )

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return finish_vectors(stage, self.shards(layout))

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["corpus"])

    @classmethod
    def comparable_key(cls, params: Params, rows: Rows) -> Any:
        return params["encoder"]["backend"], sorted(rows)

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        return (params.get("encoder"),)

    def shard_rows(self, rows: Rows) -> int:
        return self.shard_documents

    def metrics(self, stage: Stage, parts: Sequence[str]) -> Iterator[Count]:
        yield Count("documents_encoded", stage.rows_of(parts), {})


def document_vectors_stage(
    corpus: Stage, encoder: Mapping[str, Any], prefix: str, work: DocumentVectorsWork, label: str
) -> Stage:
    """The vectors of a corpus under an encoder's identity; `prefix` is put before each document."""
    params: dict[str, Any] = {"encoder": encoder}
    if prefix:  # which most encoders have not: their keys stay
        params["prefix"] = prefix
    return Stage(corpus.store, "vectors", 1, params, work, {"corpus": corpus}, label)


def finish_vectors(stage: Stage, shards: Sequence[Shard]) -> Finished:
    dimension = corpus_shard(stage, shards[0]).shape[1]
    hasher = ArrayHasher(np.float32, (dimension,))
    for shard in shards:
        hasher.update(corpus_shard(stage, shard))
    return Finished(hasher.hexdigest(), {"rows": shards[-1].stop, "dimension": dimension})


def corpus_shard(stage: Stage, shard: Shard) -> np.ndarray:
    """Vectors float32 [stop - start, D] of one stored shard."""
    return read_shard(stage.artifact.read_part(shard.parts[0]), shard.stop - shard.start)
