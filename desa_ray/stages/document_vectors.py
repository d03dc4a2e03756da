"""Document vectors: every document of the corpus, encoded once, in FAISS flat index files.

Rows are hashed in order, so that the artifact's content does not depend on shard or batch sizes.
Where there are many, each is hashed by the worker that encoded it, and the content is a hash over
these hashes: no process reads all vectors for it.
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
from desa_ray.store.content import ArrayHasher, HashedRowsHasher, array_content, row_hashes
from desa_ray.store.tables import read_array, write_array

HASHED_BY_ROW = 1 << 18  # documents; more are hashed by row, in artifacts made from now on
HASHES = "hashes-{}.npy"


@dataclass(frozen=True)
class DocumentVectorsWork(Work):
    """Encodes documents, after their prefix, into one FAISS flat index file per shard; beside it,
    where the layout says so, `hashes-*.npy`, uint8 [n, 32], those of its rows.
    """

    pool: Pool
    shard_documents: int
    unit = "documents"
    sized_by = "corpus"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        rows = stage.inputs["corpus"].artifact.manifest()["counts"]["rows"]
        layout: dict[str, Any] = {"bounds": bounds(rows, self.shard_documents)}
        if rows > HASHED_BY_ROW:
            layout["hashed"] = "rows"
        return layout

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.faiss", *([HASHES] if "hashed" in layout else []))

    def run(self, engine: Encoder, stage: Stage, shard: Shard) -> None:
        documents = read_rows(stage.inputs["corpus"], shard.start, shard.stop)
        prefix = stage.params.get("prefix", "")
        texts = [prefix + text for text in documents["text"]]
        store_vectors(stage, shard, engine.encode(texts, documents["id"].to_list()))

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


def store_vectors(stage: Stage, shard: Shard, vectors: np.ndarray) -> None:
    """Writes a shard's vectors, and the hashes of its rows where the shard has a part for them."""
    hashed = shard.parts[1:]
    content = array_content(vectors) if hashed else None
    written = stage.artifact.write_part(
        shard.parts[0], lambda path: write_shard(vectors, path), rows=len(vectors), content=content
    )
    if hashed:
        # The first writer's vectors count, also where an engine gave this one other bits
        counted = vectors if written.content == content else corpus_shard(stage, shard)
        write_array(stage.artifact, hashed[0], row_hashes(counted))


def finish_vectors(stage: Stage, shards: Sequence[Shard]) -> Finished:
    """The content of all vectors: by row hashes where there are any."""
    dimension = corpus_shard(stage, shards[0]).shape[1]
    if shards[0].parts[1:]:
        by_row = HashedRowsHasher(np.float32, (dimension,))
        for shard in shards:
            by_row.update(read_array(stage.artifact, shard.parts[1]))
        content = by_row.hexdigest()
    else:
        hasher = ArrayHasher(np.float32, (dimension,))
        for shard in shards:
            hasher.update(corpus_shard(stage, shard))
        content = hasher.hexdigest()
    return Finished(content, {"rows": shards[-1].stop, "dimension": dimension})


def corpus_shard(stage: Stage, shard: Shard) -> np.ndarray:
    """Vectors float32 [stop - start, D] of one stored shard."""
    return read_shard(stage.artifact.read_part(shard.parts[0]), shard.stop - shard.start)
