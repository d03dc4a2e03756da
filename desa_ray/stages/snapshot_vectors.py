"""Snapshot vectors: the vectors of part of a corpus, taken from those of the whole; nothing is
encoded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from desa_ray.engines.dense_index import write_shard
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Finished, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import read_rows
from desa_ray.stages.document_vectors import corpus_shard, finish_vectors
from desa_ray.store.tables import read_array, write_array


@dataclass(frozen=True)
class SnapshotVectorsWork(Work):
    """Takes a snapshot's vectors from those of the whole corpus; nothing is encoded.

    Engines whose vectors depend on a text's neighbours (torch) would give a snapshot other bits; so
    the whole corpus's vectors are the ones that count. Inputs: `corpus`, `whole` (its documents),
    `vectors` (of the whole). Parts: `numbers.npy` int64 (each document's number in the whole), and
    index files as above.
    """

    shard_documents: int
    pool: None = None
    unit = "documents"
    sized_by = "corpus"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        documents, whole = (read_rows(stage.inputs[role])["id"] for role in ("corpus", "whole"))
        # Both are in the order of ids
        numbers = whole.is_in(documents.implode()).arg_true().to_numpy()
        assert len(numbers) == len(documents), f"{stage} is no subset"
        write_array(stage.artifact, "numbers.npy", numbers.astype(np.int64))
        return {"bounds": bounds(len(numbers), self.shard_documents)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.faiss")

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        artifact, source = stage.artifact, stage.inputs["vectors"]
        numbers = read_array(artifact, "numbers.npy")[shard.start : shard.stop]
        found = []
        for part in source.stored_shards():
            own = numbers[(numbers >= part.start) & (numbers < part.stop)]
            if own.size:
                found.append(corpus_shard(source, part)[own - part.start])
        vectors = np.concatenate(found)
        artifact.write_part(
            shard.parts[0], lambda path: write_shard(vectors, path), rows=shard.stop - shard.start
        )

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return finish_vectors(stage, self.shards(layout))

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["corpus"])

    def shard_rows(self, rows: Rows) -> int:
        return self.shard_documents


def snapshot_vectors_stage(
    corpus: Stage, whole: Stage, vectors: Stage, work: SnapshotVectorsWork, label: str
) -> Stage:
    """The vectors of a snapshot `corpus` of `whole`, whose `vectors` those are."""
    inputs = {"corpus": corpus, "whole": whole, "vectors": vectors}
    return Stage(corpus.store, "snapshot_vectors", 1, dict(vectors.params), work, inputs, label)
