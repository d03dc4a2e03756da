"""Vectors: the corpus in FAISS shard files, and each distinct query-side text once.

Both stages hash their rows in order, so that the artifact's content does not depend on shard or batch sizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.query_text import DENSE_TEXTS
from desa_ray.engines.dense_index import read_shard, write_shard
from desa_ray.engines.encoder import Encoder
from desa_ray.errors import DesaError
from desa_ray.pipeline.collection import read_rows
from desa_ray.pipeline.generations import Generations, read_generations
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, bounds, shards_of, stored_layout
from desa_ray.store.artifacts import Store
from desa_ray.store.content import ArrayHasher, array_content
from desa_ray.store.tables import read_array, read_table, write_array, write_table

TEXTS = pl.Schema({"text": pl.String})


@dataclass(frozen=True)
class CorpusVectorsWork:
    """Encodes documents, as they are, into one FAISS flat index file a shard."""

    pool: Pool
    shard_documents: int

    def layout(self, store: Store, stage: Stage) -> Mapping[str, Any]:
        rows = stage.inputs["corpus"].artifact(store).manifest()["counts"]["rows"]
        return {"bounds": bounds(rows, self.shard_documents)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.faiss")

    def run(self, engine: Encoder, store: Store, stage: Stage, shard: Shard) -> None:
        documents = read_rows(store, stage.inputs["corpus"], shard.start, shard.stop)
        vectors = engine.encode(documents["text"].to_list(), documents["id"].to_list())
        stage.artifact(store).write_part(
            shard.parts[0], lambda path: write_shard(vectors, path), rows=shard.stop - shard.start
        )

    def finish(self, store: Store, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return _finished_vectors(store, stage, self.shards(layout))


@dataclass(frozen=True)
class SnapshotVectorsWork:
    """Takes a snapshot's vectors out of those of the whole corpus; nothing is encoded.

    Engines whose vectors depend on a text's neighbours (torch) would give a snapshot other bits; so the whole corpus's
    vectors are the ones that count. Inputs: `corpus`, `whole` (its documents), `vectors` (of the whole).
    Parts: `numbers.npy` int64 (each document's number in the whole), and index files as above.
    """

    shard_documents: int
    pool: None = None

    def layout(self, store: Store, stage: Stage) -> Mapping[str, Any]:
        documents, whole = (read_rows(store, stage.inputs[role])["id"] for role in ("corpus", "whole"))
        numbers = whole.is_in(documents.implode()).arg_true().to_numpy()  # both are in the order of ids
        assert len(numbers) == len(documents), f"{stage} is no subset"
        write_array(stage.artifact(store), "numbers.npy", numbers.astype(np.int64))
        return {"bounds": bounds(len(numbers), self.shard_documents)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.faiss")

    def run(self, engine: None, store: Store, stage: Stage, shard: Shard) -> None:
        artifact, source = stage.artifact(store), stage.inputs["vectors"]
        numbers = read_array(artifact, "numbers.npy")[shard.start : shard.stop]
        found = []
        for part in source.work.shards(stored_layout(store, source)):
            own = numbers[(numbers >= part.start) & (numbers < part.stop)]
            if own.size:
                found.append(corpus_shard(store, source, part)[own - part.start])
        vectors = np.concatenate(found)
        artifact.write_part(shard.parts[0], lambda path: write_shard(vectors, path), rows=shard.stop - shard.start)

    def finish(self, store: Store, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return _finished_vectors(store, stage, self.shards(layout))


def _finished_vectors(store: Store, stage: Stage, shards: Sequence[Shard]) -> Finished:
    dimension = corpus_shard(store, stage, shards[0]).shape[1]
    hasher = ArrayHasher(np.float32, (dimension,))
    for shard in shards:
        hasher.update(corpus_shard(store, stage, shard))
    return Finished(hasher.hexdigest(), {"rows": shards[-1].stop, "dimension": dimension})


def corpus_shard(store: Store, stage: Stage, shard: Shard) -> np.ndarray:
    """Vectors float32 [stop - start, D] of one stored shard."""
    return read_shard(stage.artifact(store).read_part(shard.parts[0]), shard.stop - shard.start)


def made_texts(stage: Stage, queries: Sequence[str], generations: Generations | None) -> list[list[str]]:
    """What the encoder is given for each query: the stage's template of the query and its generated texts."""
    template, prefix = DENSE_TEXTS[stage.params["template"]], stage.params["prefix"]
    texts = generations.texts_or(queries) if generations else [[] for _ in queries]
    return [[prefix + text for text in template(*pair)] for pair in zip(queries, texts, strict=True)]


@dataclass(frozen=True)
class TextVectorsWork:
    """Encodes the distinct texts that a template makes of queries and generated texts.

    Parts: `texts.parquet` (distinct texts in order of first use), `index.npy` int64 [Q, n] (row of each text), and
    `part-*.npy` float32 [rows, D].
    """

    pool: Pool
    shard_texts: int

    def layout(self, store: Store, stage: Stage) -> Mapping[str, Any]:
        artifact = stage.artifact(store)
        queries = read_rows(store, stage.inputs["queries"])["text"].to_list()
        generation = stage.inputs.get("generation")
        made = made_texts(stage, queries, read_generations(store, generation) if generation else None)
        rows: dict[str, int] = {}
        index = np.array([[rows.setdefault(text, len(rows)) for text in line] for line in made], np.int64)
        write_table(artifact, "texts.parquet", pl.DataFrame({"text": list(rows)}, TEXTS), TEXTS)
        write_array(artifact, "index.npy", index.reshape(len(queries), -1))
        return {"bounds": bounds(len(rows), self.shard_texts)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.npy")

    def run(self, engine: Encoder, store: Store, stage: Stage, shard: Shard) -> None:
        artifact = stage.artifact(store)
        texts = read_table(artifact, "texts.parquet", TEXTS)["text"][shard.start : shard.stop].to_list()
        names = [f"text {number}" for number in range(shard.start, shard.stop)]
        write_array(artifact, shard.parts[0], engine.encode(texts, names))

    def finish(self, store: Store, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        vectors = text_vectors(store, stage)
        return Finished(array_content(vectors), {"rows": len(vectors), "distinct_texts": layout["bounds"][-1]})


def text_vectors(store: Store, stage: Stage) -> np.ndarray:
    """Vectors float32 [Q, n, D] of a text-vector stage, one row a query."""
    artifact = stage.artifact(store)
    parts = [
        read_array(artifact, part) for shard in stage.work.shards(stored_layout(store, stage)) for part in shard.parts
    ]
    if not parts:
        raise DesaError("no text was encoded", where=str(stage))
    return np.concatenate(parts)[read_array(artifact, "index.npy")]
