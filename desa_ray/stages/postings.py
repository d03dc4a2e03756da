"""Postings: the corpus as Lucene indexes it, kept as plain arrays, a range of documents at a time.

Lucene analyses the texts, and the engine counts their terms or reads them out of an index that it
builds in a scratch folder and drops: everything later (complete-list BM25 at any k1 and b) needs
the postings alone and no JVM. An index kept as well would be a second copy of the same data that
nothing reads and whose bytes differ from build to build.

A corpus of more than `range_documents` documents is indexed in ranges, by as many JVMs as there
are. `finish` merges their terms and counts, once; scores, and the content hash, are those of a
single index.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from desa_ray.engines.bm25 import BM25
from desa_ray.engines.lucene import Lucene
from desa_ray.engines.merged_postings import merge_ranges
from desa_ray.engines.postings import POSTING_ARRAYS, Postings
from desa_ray.engines.ranged_postings import CorpusStatistics, RangedPostings
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import read_rows
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.tables import read_array, write_array
from desa_ray.temporary import OwnFolder

COMMON = ("terms", "term_offsets", "indptr", "statistics")  # arrays of all ranges together


@dataclass(frozen=True)
class PostingsWork(Work):
    """Indexes ranges of the corpus with Lucene and stores their postings as arrays.

    Parts: an array each, `docs.npy` and so on, of a corpus of one range; of more, those of each
    range, `docs-00000.npy` and so on, and the arrays of COMMON, which `finish` merges.
    """

    pool: Pool
    range_documents: int
    unit = "documents"
    sized_by = "corpus"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(stage.inputs["corpus"].rows, self.range_documents)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        if len(layout["bounds"]) == 2:
            parts = tuple(f"{name}.npy" for name in POSTING_ARRAYS)
            return [Shard(0, 0, layout["bounds"][-1], parts)]
        return shards_of(layout, *(f"{name}-{{}}.npy" for name in POSTING_ARRAYS))

    def run(self, engine: Lucene, stage: Stage, shard: Shard) -> None:
        texts = _texts(stage.inputs["corpus"], shard.start, shard.stop)
        with OwnFolder("desa-lucene-") as scratch:
            # Swept by the next one where this process is killed
            postings = engine.build_postings(texts, scratch, analyzer=stage.params["analyzer"])
        for part, array in zip(shard.parts, postings.arrays().values(), strict=True):
            write_array(stage.artifact, part, array)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        edges = layout["bounds"]
        if len(edges) == 2:
            postings = _read(stage, "{}.npy")
            statistics = RangedPostings.whole(postings).statistics
            return Finished(postings.content_hash(), _counts(edges[-1], statistics))
        ranges = [_range(stage, number) for number in range(len(edges) - 1)]
        with OwnFolder("desa-postings-") as scratch:
            merged = merge_ranges(ranges, scratch)
            for name, array in merged.arrays().items():
                write_array(stage.artifact, f"{name}.npy", array)
            return Finished(merged.content_hash(), _counts(edges[-1], merged.statistics))

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["corpus"])

    def shard_rows(self, rows: Rows) -> int:
        return self.range_documents


def _texts(corpus: Stage, start: int, stop: int) -> Iterator[str]:
    """The texts of documents start..stop-1, of which one part of the corpus is held at a time."""
    for first, last in pairwise(corpus.stored_layout()["bounds"]):
        a, b = max(first, start), min(last, stop)
        if a < b:
            yield from read_rows(corpus, a, b)["text"]


def _counts(documents: int, own: CorpusStatistics) -> dict[str, int]:
    return {
        "documents": documents,
        "indexed_documents": own.doc_count,
        "terms": len(own.indptr) - 1,
        "total_terms": own.sum_total_term_freq,
    }


def postings_stage(corpus: Stage, analysis: Mapping[str, str], work: PostingsWork) -> Stage:
    """The postings of a corpus under an analysis (analyzer and Lucene version)."""
    return Stage(corpus.store, "postings", 1, analysis, work, {"corpus": corpus}, corpus.label)


def read_postings(stage: Stage) -> RangedPostings:
    """The postings of a corpus, memory-mapped where the store is local; a range is read when it is
    first needed.
    """
    edges = stage.stored_layout()["bounds"]
    if len(edges) == 2:
        return RangedPostings.whole(_read(stage, "{}.npy"))
    terms, offsets, indptr, counts = (read_array(stage.artifact, f"{n}.npy") for n in COMMON)
    statistics = CorpusStatistics(terms, offsets, indptr, *map(int, counts))
    return RangedPostings(statistics, edges, partial(_range, stage))


def bm25_of(cache: WorkerCache, stage: Stage) -> BM25:
    """The scorer of a stage that has `postings` among its inputs, and `k1` and `b`."""
    postings, k1, b = stage.inputs["postings"], stage.params["k1"], stage.params["b"]
    return cache.get(
        f"bm25 {postings.key.digest} {k1} {b}",
        lambda: BM25(read_postings(postings), k1=k1, b=b),
    )


def _range(stage: Stage, number: int) -> Postings:
    return _read(stage, f"{{}}-{number:05d}.npy")


def _read(stage: Stage, part: str) -> Postings:
    artifact = stage.artifact
    return Postings.from_arrays(
        {name: read_array(artifact, part.format(name)) for name in POSTING_ARRAYS}
    )
