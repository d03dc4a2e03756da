"""Postings: the corpus as Lucene indexes it, kept as plain arrays.

Lucene builds its index in a scratch folder, the postings are read out of it once, and the index is
dropped: everything later (complete-list BM25 at any k1 and b) needs the postings alone and no JVM.
An index kept as well would be a second copy of the same data that nothing reads and whose bytes
differ from build to build.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from desa_ray.engines.lucene import Lucene
from desa_ray.engines.postings import POSTING_ARRAYS, Postings
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work
from desa_ray.stages.collection import read_rows
from desa_ray.store.tables import read_array, write_array
from desa_ray.temporary import OwnFolder


@dataclass(frozen=True)
class PostingsWork(Work):
    """Indexes the corpus with Lucene and stores the postings as arrays; one shard, since statistics
    are global.
    """

    pool: Pool
    unit = "documents"
    sized_by = "corpus"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": [0, stage.inputs["corpus"].rows]}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        parts = tuple(f"{name}.npy" for name in POSTING_ARRAYS)
        return [Shard(0, 0, layout["bounds"][-1], parts)]

    def run(self, engine: Lucene, stage: Stage, shard: Shard) -> None:
        texts = read_rows(stage.inputs["corpus"])["text"]
        with OwnFolder(
            "desa-lucene-"
        ) as scratch:  # swept by the next one where this process is killed
            postings = engine.build_postings(texts, scratch, analyzer=stage.params["analyzer"])
        artifact = stage.artifact
        for name, array in postings.arrays().items():
            write_array(artifact, f"{name}.npy", array)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        postings = read_postings(stage)
        counts = {
            "documents": postings.n_documents,
            "indexed_documents": postings.doc_count,
            "terms": postings.n_terms,
            "total_terms": postings.sum_total_term_freq,
        }
        return Finished(postings.content_hash(), counts)

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["corpus"])


def postings_stage(corpus: Stage, analysis: Mapping[str, str], work: PostingsWork) -> Stage:
    """The postings of a corpus under an analysis (analyzer and Lucene version)."""
    return Stage(corpus.store, "postings", 1, analysis, work, {"corpus": corpus}, corpus.label)


def read_postings(stage: Stage) -> Postings:
    """The postings of a corpus, memory-mapped where the store is local."""
    artifact = stage.artifact
    return Postings.from_arrays(
        {name: read_array(artifact, f"{name}.npy") for name in POSTING_ARRAYS}
    )
