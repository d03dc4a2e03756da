"""Impacts: the documents' learned term weights as whole numbers, and their postings.

Impacts of a file are read and checked in the driver before a plan is made, those of a model are
computed by shards of documents; everything after them, ranges, postings, scores and rankings, is
the code that BM25 uses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from desa_ray.core.impacts import quantised
from desa_ray.data.id_files import IdFile
from desa_ray.data.impact_files import DOCUMENT_IMPACTS, QUERY_VECTORS, read_impacts
from desa_ray.engines.impact_postings import Impacts, bags, postings_of
from desa_ray.engines.learned_sparse import TermWeigher
from desa_ray.errors import DesaError
from desa_ray.lines import shown
from desa_ray.pipeline.sizes import Params, Rows, Size, even_size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import read_rows
from desa_ray.stages.document_texts import check_unchanged
from desa_ray.stages.postings import PostingsWork, read_postings
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.content import RowHasher
from desa_ray.store.tables import read_table, write_array, write_table

IMPACTS = pl.Schema({"terms": pl.List(pl.String), "weights": pl.List(pl.Int32)})
PART = "part-{:05d}.parquet"
ROWS_A_PART = 65_536


@dataclass(frozen=True)
class ImpactFileWork(Work):
    """Reads a file of impacts, once, into parts of documents.

    Attributes:
        path: the file.
        whole: the stage with all documents that the file may name; None: it may name any.
    """

    path: str
    whole: Stage | None = field(repr=False)
    pool: None = None
    unit = "documents"
    sized_by = "corpus"
    kind: ClassVar[IdFile] = DOCUMENT_IMPACTS
    hashed: ClassVar[str] = "impacts_sha256"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(stage.inputs[self.sized_by].rows, ROWS_A_PART)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        edges = layout["bounds"]
        parts = tuple(PART.format(number) for number in range(len(edges) - 1))
        return [Shard(0, 0, edges[-1], parts)]

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        rows = read_rows(stage.inputs[self.sized_by])
        known = None if self.whole is None else frozenset(read_rows(self.whole)["id"])
        empty = frozenset(rows.filter(pl.col("text").str.strip_chars() == "")["id"])
        path, scale = Path(self.path), stage.params["scale"]
        found = read_impacts(path, scale, rows["id"].to_list(), known, empty, self.kind)
        check_unchanged(path, stage.params[self.hashed])
        for part, (start, stop) in zip(
            shard.parts, pairwise(stage.stored_layout()["bounds"]), strict=True
        ):
            _write(stage, part, found[start:stop])

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return finish_impacts(stage, layout)

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows[cls.sized_by])


@dataclass(frozen=True)
class QueryVectorsWork(ImpactFileWork):
    """Likewise of queries."""

    unit = "queries"
    sized_by = "queries"
    kind = QUERY_VECTORS
    hashed = "query_vectors_sha256"


def query_vectors_stage(queries: Stage, identity: Mapping[str, Any], work: Work) -> Stage:
    """The weights of queries, of a file; `identity` is what decides them."""
    return Stage(queries.store, "query_vectors", 1, identity, work, {"queries": queries}, "file")


def read_query_vectors(stage: Stage) -> list[dict[str, int]]:
    """One bag per query."""
    found: list[dict[str, int]] = []
    for number in range(len(stage.stored_layout()["bounds"]) - 1):
        table = read_table(stage.artifact, PART.format(number), IMPACTS)
        found += bags(table["terms"].to_list(), table["weights"].to_list())
    return found


@dataclass(frozen=True)
class SpladeWork(Work):
    """Weighs the terms of documents with a model."""

    pool: Pool
    shard_documents: int
    unit = "documents"
    sized_by = "corpus"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(stage.inputs["corpus"].rows, self.shard_documents)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.parquet")

    def run(self, engine: TermWeigher, stage: Stage, shard: Shard) -> None:
        documents = read_rows(stage.inputs["corpus"], shard.start, shard.stop)
        found: list[dict[str, int]] = []
        weighed = engine.weigh(documents["text"].to_list())
        for name, weights in zip(documents["id"], weighed, strict=True):
            try:
                found.append(quantised(weights, stage.params["scale"]))
            except DesaError as error:
                hint = "lower sparse.scale, or fetch the model again"
                raise DesaError(error.what, where=f"document {shown(name)}", hint=hint) from None
        _write(stage, shard.parts[0], found)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return finish_impacts(stage, layout)

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["corpus"])

    def shard_rows(self, rows: Rows) -> int:
        return self.shard_documents


def _write(stage: Stage, part: str, found: Sequence[Mapping[str, int]]) -> None:
    table = {
        "terms": [list(bag) for bag in found],
        "weights": [list(bag.values()) for bag in found],
    }
    write_table(stage.artifact, part, pl.DataFrame(table, IMPACTS), IMPACTS)


def finish_impacts(stage: Stage, layout: Mapping[str, Any]) -> Finished:
    """Content and counts of the parts."""
    hasher, terms = RowHasher(IMPACTS), 0
    for number in range(len(layout["bounds"]) - 1):
        table = read_table(stage.artifact, PART.format(number), IMPACTS)
        hasher.update(table)
        terms += int(table["terms"].list.len().sum())
    return Finished(hasher.hexdigest(), {"rows": layout["bounds"][-1], "impacts": terms})


def impacts_stage(documents: Stage, identity: Mapping[str, Any], work: Work) -> Stage:
    """The impacts of documents; `identity` is what decides them."""
    store, label = documents.store, documents.label
    return Stage(store, "impacts", 1, identity, work, {"corpus": documents}, label)


@dataclass(frozen=True)
class ImpactPostingsWork(PostingsWork):
    """Inverts the impacts of ranges of documents; parts and merging as of `PostingsWork`."""

    sized_by = "impacts"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(stage.inputs["impacts"].rows, self.range_documents)}

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        source, found = stage.inputs["impacts"], [pl.DataFrame(schema=IMPACTS)]
        for number, (first, last) in enumerate(pairwise(source.stored_layout()["bounds"])):
            if first < shard.stop and last > shard.start:
                table = read_table(source.artifact, PART.format(number), IMPACTS)
                found.append(table[max(shard.start - first, 0) : shard.stop - first])
        rows = pl.concat(found)
        postings = postings_of(bags(rows["terms"].to_list(), rows["weights"].to_list()))
        for part, array in zip(shard.parts, postings.arrays().values(), strict=True):
            write_array(stage.artifact, part, array)

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        return even_size(rows["impacts"])


def impact_postings_stage(impacts: Stage, work: ImpactPostingsWork) -> Stage:
    """The postings of a corpus's impacts."""
    inputs = {"impacts": impacts}
    return Stage(impacts.store, "impact_postings", 1, {}, work, inputs, impacts.label)


def impacts_of(cache: WorkerCache, stage: Stage) -> Impacts:
    """The scorer of a stage that has `postings` of impacts among its inputs."""
    postings = stage.inputs["postings"]
    name = f"impacts {postings.key.digest}"
    return cache.get(name, lambda: Impacts(read_postings(postings)))
