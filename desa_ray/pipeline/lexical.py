"""The lexical side that needs Lucene: postings of the corpus, and analysed terms of query-side texts.

Lucene builds its index in a scratch folder, the postings are read out of it once, and the index is dropped: everything
later (complete-list BM25 at any k1 and b) needs the postings alone and no JVM. An index kept beside them would be a
second copy of the same data that nothing reads and whose bytes differ from build to build.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.core.query_text import SPARSE_TEXTS, mugi_repeats
from desa_ray.core.reweighting import SPARSE_TERMS
from desa_ray.engines.lucene import Lucene
from desa_ray.engines.postings import POSTING_ARRAYS, Postings
from desa_ray.pipeline.collection import read_rows
from desa_ray.pipeline.generations import read_generations
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, bounds, shards_of, stored_layout
from desa_ray.store.artifacts import Artifact, Store
from desa_ray.store.content import RowHasher
from desa_ray.store.tables import read_array, read_table, write_array, write_table

TERMS = pl.Schema({"terms": pl.List(pl.String)})


@dataclass(frozen=True)
class PostingsWork:
    """Indexes the corpus with Lucene and stores the postings as arrays; one shard, since statistics are global."""

    pool: Pool

    def layout(self, store: Store, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": [0, stage.inputs["corpus"].artifact(store).manifest()["counts"]["rows"]]}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        parts = tuple(f"{name}.npy" for name in POSTING_ARRAYS)
        return [Shard(0, 0, layout["bounds"][-1], parts)]

    def run(self, engine: Lucene, store: Store, stage: Stage, shard: Shard) -> None:
        texts = read_rows(store, stage.inputs["corpus"])["text"]
        with tempfile.TemporaryDirectory(prefix="desa-lucene-") as scratch:
            postings = engine.build_postings(texts, Path(scratch))
        artifact = stage.artifact(store)
        for name, array in postings.arrays().items():
            write_array(artifact, f"{name}.npy", array)

    def finish(self, store: Store, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        postings = read_postings(store, stage)
        counts = {
            "documents": postings.n_documents,
            "indexed_documents": postings.doc_count,
            "terms": postings.n_terms,
            "total_terms": postings.sum_total_term_freq,
        }
        return Finished(postings.content_hash(), counts)


def read_postings(store: Store, stage: Stage) -> Postings:
    """The postings of a corpus, memory-mapped where the store is local."""
    artifact = stage.artifact(store)
    return Postings.from_arrays({name: read_array(artifact, f"{name}.npy") for name in POSTING_ARRAYS})


@dataclass(frozen=True)
class TermsWork:
    """Analyses the string that a template makes of a query and its texts, or weighs their terms; one row a query."""

    pool: Pool
    shard_queries: int

    def layout(self, store: Store, stage: Stage) -> Mapping[str, Any]:
        rows = stage.inputs["queries"].artifact(store).manifest()["counts"]["rows"]
        return {"bounds": bounds(rows, self.shard_queries)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.parquet")

    def run(self, engine: Lucene, store: Store, stage: Stage, shard: Shard) -> None:
        queries = read_rows(store, stage.inputs["queries"])["text"].to_list()
        texts = self._texts(store, stage, queries)
        name, rows = stage.params["template"], range(shard.start, shard.stop)
        if name in SPARSE_TERMS:
            weigh = SPARSE_TERMS[name]
            found = iter(engine.analyse([text for row in rows for text in (queries[row], *texts[row])]))
            terms = [weigh(next(found), [next(found) for _ in texts[row]]) for row in rows]
        else:
            numbers = {option: int(value) for option, value in stage.params.get("options", {}).items()}
            terms = engine.analyse([SPARSE_TEXTS[name](queries[row], texts[row], **numbers) for row in rows])
        write_table(stage.artifact(store), shard.parts[0], pl.DataFrame({"terms": terms}, TERMS), TERMS)

    @staticmethod
    def _texts(store: Store, stage: Stage, queries: Sequence[str]) -> list[list[str]]:
        """The texts used of each query."""
        if "generation" not in stage.inputs:
            return [[] for _ in queries]
        texts = read_generations(store, stage.inputs["generation"]).texts_or(queries)
        return [own[: stage.params["texts"]] for own in texts]

    def finish(self, store: Store, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        artifact: Artifact = stage.artifact(store)
        hasher = RowHasher(TERMS)
        for shard in self.shards(layout):
            hasher.update(read_table(artifact, shard.parts[0], TERMS))
        counts = {"rows": layout["bounds"][-1]}
        if stage.params["template"] == "mugi":  # long queries may get no copy at all: the formula's own doing
            queries = read_rows(store, stage.inputs["queries"])["text"].to_list()
            texts = self._texts(store, stage, queries)
            counts["queries_without_copy"] = sum(mugi_repeats(*pair) == 0 for pair in zip(queries, texts, strict=True))
        return Finished(hasher.hexdigest(), counts)


def read_terms(store: Store, stage: Stage) -> list[list[str]]:
    """Analysed terms, one list a query."""
    artifact = stage.artifact(store)
    shards = stage.work.shards(stored_layout(store, stage))
    return [terms for s in shards for terms in read_table(artifact, s.parts[0], TERMS)["terms"].to_list()]
