"""Snapshot vectors: a view of the whole corpus's vectors, one bit for each of its documents;
nothing is encoded and no vector is copied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desa_ray.engines.dense_index import write_shard
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Finished, Shard, Stage, Work, shards_of
from desa_ray.stages.collection import read_ids
from desa_ray.stages.document_vectors import corpus_shard, finish_vectors
from desa_ray.stages.stored_vectors import CHOSEN, chosen_rows, read_vectors, vector_shards
from desa_ray.store.content import ArrayHasher, HashedRowsHasher
from desa_ray.store.tables import read_array, write_array


@dataclass(frozen=True)
class SnapshotVectorsWork(Work):
    """Chooses a snapshot's vectors among those of the whole corpus; nothing is encoded.

    Engines whose vectors depend on a text's neighbours (torch) would give a snapshot other bits; so
    the whole corpus's vectors are the ones that count. Inputs: `corpus`, `whole` (its documents),
    `vectors` (of the whole). Part: `documents.npy`, the bits of the chosen documents. Earlier
    versions copied the vectors into shards of their own; those are still read, and finished.
    """

    pool: None = None
    unit = "documents"
    sized_by = "corpus"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        documents, whole = (read_ids(stage.inputs[role]) for role in ("corpus", "whole"))
        chosen = whole.is_in(documents.implode()).to_numpy()
        assert int(chosen.sum()) == len(documents), f"{stage} is no subset"
        write_array(stage.artifact, CHOSEN, np.packbits(chosen))
        numbers = np.flatnonzero(chosen)
        edges, sources = [0], []
        for shard in stage.inputs["vectors"].stored_shards():
            stop = int(np.searchsorted(numbers, shard.stop))
            if stop > edges[-1]:
                edges.append(stop)
                sources.append(shard.number)
        return {"bounds": edges, "sources": sources}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return [] if "sources" in layout else shards_of(layout, "part-{}.faiss")

    def read_through(self, layout: Mapping[str, Any]) -> Sequence[str]:
        return ["vectors"] if "sources" in layout else []

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        """Copies a shard, of a layout of earlier versions."""
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
        if "sources" not in layout:
            return finish_vectors(stage, self.shards(layout))
        whole = stage.inputs["vectors"]
        dimension = whole.artifact.manifest()["counts"]["dimension"]
        hasher: ArrayHasher | HashedRowsHasher
        if "hashed" in whole.stored_layout():
            hasher = HashedRowsHasher(np.float32, (dimension,))
            for number in layout["sources"]:
                source = whole.stored_shards()[number]
                hashes = read_array(whole.artifact, source.parts[1])
                hasher.update(hashes[chosen_rows(stage, source)])
        else:
            hasher = ArrayHasher(np.float32, (dimension,))
            for shard in vector_shards(stage):
                hasher.update(read_vectors(stage, shard))
        counts = {"rows": layout["bounds"][-1], "dimension": dimension}
        return Finished(hasher.hexdigest(), counts)

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["corpus"])


def snapshot_vectors_stage(
    corpus: Stage, whole: Stage, vectors: Stage, work: SnapshotVectorsWork, label: str
) -> Stage:
    """The vectors of a snapshot `corpus` of `whole`, whose `vectors` those are."""
    inputs = {"corpus": corpus, "whole": whole, "vectors": vectors}
    return Stage(corpus.store, "snapshot_vectors", 1, dict(vectors.params), work, inputs, label)
