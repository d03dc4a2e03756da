"""Complete rankings: one artifact a channel (operator and inputs), one row a query.

Parts of a shard: `docs-*.npy` (document numbers int32, best first, queries one after another) and
`queries-*.parquet` (length, ranking hash, dense angle, the two best scores). A ranking does not know kappa or
weights, so a sweep over those reads it and ranks nothing again.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS, Scored
from desa_ray.core.ranking import complete_order, sparse_order
from desa_ray.engines.bm25 import BM25
from desa_ray.engines.gemm import Float32Gemm, Gemm, best_gemm
from desa_ray.pipeline.collection import read_rows
from desa_ray.pipeline.generations import read_generations
from desa_ray.pipeline.kernels import compile_kernels
from desa_ray.pipeline.lexical import read_postings, read_terms
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, bounds, shards_of, stored_layout
from desa_ray.pipeline.vectors import corpus_shard, text_vectors
from desa_ray.store.artifacts import Artifact, Store
from desa_ray.store.content import RowHasher
from desa_ray.store.tables import read_array, read_table, write_array, write_table

QUERIES = pl.Schema(
    {
        "length": pl.Int64,
        "hash": pl.String,
        "angle_deg": pl.Float64,
        "score_1": pl.Float64,
        "score_2": pl.Float64,
    }
)
BYTES_A_DOCUMENT = 16  # of a ranking in the making: score, order, what is written, and as much again in between


class Scratch:
    """What a scoring worker keeps between shards: its last inputs, read and verified once."""

    def __init__(self) -> None:
        compile_kernels()
        self.kept: dict[str, Any] = {}

    def get(self, name: str, read: Any) -> Any:
        if name not in self.kept:
            if len(self.kept) >= 16:
                self.kept.clear()
            self.kept[name] = read()
        return self.kept[name]


@dataclass(frozen=True)
class RankedQuery:
    """One ranking, or its beginning.

    Attributes:
        docs: int32, best first.
        length: how long the ranking is; more than `docs` holds for a prefix.
        top: its two best scores.
        angle_deg: the angle of the dense operator.
    """

    docs: np.ndarray
    length: int
    top: tuple[float | None, float | None]
    angle_deg: float | None = None


def write_ranked(artifact: Artifact, parts: Sequence[str], ranked: Sequence[RankedQuery]) -> None:
    """Writes rankings, or prefixes, of consecutive queries: `parts` name their documents and their table."""
    docs = [np.ascontiguousarray(query.docs, "<i4") for query in ranked]
    table = {
        "length": [query.length for query in ranked],
        "hash": [hashlib.sha256(d.tobytes()).hexdigest() for d in docs],
        "angle_deg": [query.angle_deg for query in ranked],
        "score_1": [query.top[0] for query in ranked],
        "score_2": [query.top[1] for query in ranked],
    }
    write_array(artifact, parts[0], np.concatenate(docs) if docs else np.empty(0, "<i4"))
    write_table(artifact, parts[1], pl.DataFrame(table, QUERIES), QUERIES)


def finish_ranked(artifact: Artifact, shards: Sequence[Shard]) -> Finished:
    """Content and counts of what `write_ranked` wrote, by query, however the queries were cut."""
    hasher = RowHasher(QUERIES)
    items = 0
    for shard in shards:
        table = read_table(artifact, shard.parts[1], QUERIES)
        hasher.update(table)
        items += int(table["length"].sum())
    return Finished(hasher.hexdigest(), {"rows": shards[-1].stop, "items": items})


def ranking_bytes(documents: int, queries: int) -> int:
    """What a worker holds to rank the queries of a shard; shards are cut to fit `memory_gb`, down to one query."""
    return documents * queries * BYTES_A_DOCUMENT


def queries_in(store: Store, stage: Stage) -> int:
    return stage.inputs["queries"].artifact(store).manifest()["counts"]["rows"]


@dataclass(frozen=True)
class _RankingWork:
    pool: Pool
    shard_queries: int
    memory_gb: float

    def layout(self, store: Store, stage: Stage) -> Mapping[str, Any]:
        # One shard's scores, orders and what is written of them fit into the budget together.
        fitting = int(self.memory_gb * 2**30 / BYTES_A_DOCUMENT / max(1, self.documents(store, stage)))
        return {"bounds": bounds(queries_in(store, stage), max(1, min(self.shard_queries, fitting)))}

    def documents(self, store: Store, stage: Stage) -> int:
        raise NotImplementedError

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "docs-{}.npy", "queries-{}.parquet")

    def finish(self, store: Store, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return finish_ranked(stage.artifact(store), self.shards(layout))


def own_documents(scratch: Scratch, store: Store, stage: Stage) -> dict[int, int]:
    """Query row -> number of the document that is the query (equal id and equal text), for `exclude_self`."""
    if not stage.params["exclude_self"]:
        return {}

    def read() -> dict[int, int]:
        queries = read_rows(store, stage.inputs["queries"]).with_row_index("query")
        documents = read_rows(store, stage.inputs["corpus"]).with_row_index("document")
        same = queries.join(documents, on=["id", "text"], how="inner")
        return dict(zip(same["query"].to_list(), same["document"].to_list(), strict=True))

    return scratch.get(f"own {stage.inputs['queries'].key.digest} {stage.inputs['corpus'].key.digest}", read)


def fallbacks(scratch: Scratch, store: Store, stage: Stage) -> list[bool]:
    """Per query, whether its generated text fell back: the channel is then the Original channel."""
    generation = stage.inputs.get("generation")
    if generation is None:
        return [False] * stored_layout(store, stage)["bounds"][-1]
    return scratch.get(f"fallback {generation.key.digest}", lambda: read_generations(store, generation).fallback)


def _options(stage: Stage) -> dict[str, Fraction]:
    """The numbers that the operator takes."""
    return {name: Fraction(value) for name, value in stage.params.get("options", {}).items()}


@dataclass(frozen=True)
class DenseRankingWork(_RankingWork):
    """Operator, exact scores against every document, complete order.

    Inputs: `vectors`, one text-vector stage a text source under its name, `queries`.
    """

    def documents(self, store: Store, stage: Stage) -> int:
        return corpus_size(store, stage.inputs["vectors"])

    def run(self, engine: Scratch, store: Store, stage: Stage, shard: Shard) -> None:
        rows = range(shard.start, shard.stop)
        queries, angles = dense_queries(engine, store, stage, rows)
        own = own_documents(engine, store, stage)
        total = self.documents(store, stage)
        scores = np.empty((len(rows), total), np.float32)
        for first, part in dense_scores(engine, store, stage, queries, self.memory_gb):
            scores[:, first : first + part.shape[1]] = part
        ranked: list[RankedQuery] = []
        for offset, row in enumerate(rows):
            (docs,) = complete_order(scores[offset : offset + 1])
            if row in own:
                docs = docs[docs != own[row]]
            top = [*(float(scores[offset, number]) for number in docs[:2]), None, None]
            ranked.append(RankedQuery(docs, docs.size, (top[0], top[1]), angles[offset]))
        write_ranked(stage.artifact(store), shard.parts, ranked)


def corpus_size(store: Store, vectors: Stage) -> int:
    return stored_layout(store, vectors)["bounds"][-1]


def dense_queries(
    engine: Scratch, store: Store, stage: Stage, rows: Sequence[int]
) -> tuple[np.ndarray, list[float | None]]:
    """Expanded query vectors float32 [rows, D] and the operator's angles; a fallback is the original query."""
    operator = DENSE_OPERATORS[stage.params["operator"]]
    given: dict[str, np.ndarray] = {}
    for source in {"query", *operator.texts}:
        text_stage = stage.inputs[source]
        vectors = engine.get(text_stage.key.digest, lambda text_stage=text_stage: text_vectors(store, text_stage))
        given[source] = vectors[rows, 0] if source == "query" else vectors[rows, : stage.params["texts"]]
    expanded, diagnostics = operator.function(given, **_options(stage))
    all_fell_back = fallbacks(engine, store, stage)
    fell_back = np.array([all_fell_back[row] for row in rows], bool)
    expanded[fell_back] = given["query"][fell_back]
    found = diagnostics.get("angle_deg")
    angles = [None if found is None or fell_back[i] else float(found[i]) for i in range(len(rows))]
    return expanded, angles


def dense_scores(
    engine: Scratch,
    store: Store,
    stage: Stage,
    queries: np.ndarray,
    memory_gb: float,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first document, float32 scores [queries, n]) for blocks of the documents start..stop, in their order.

    Vectors stream past a shard at a time; a corpus whose prepared vectors take less than half of the budget stays
    prepared in the worker. `start` and `stop` lie on the edges of vector shards.
    """
    vectors = stage.inputs["vectors"]
    shards = vectors.work.shards(stored_layout(store, vectors))
    exact = stage.params["scoring"] == "int26"
    gemm: Gemm = engine.get("gemm", best_gemm) if exact else Float32Gemm()
    prepared = gemm.prepared(queries)
    keep = shards[-1].stop * queries.shape[1] * 8 <= memory_gb * 2**29
    kept = engine.get(f"vectors {vectors.key.digest} {exact}", dict) if keep else {}
    block = max(256, int(memory_gb * 2**27 / 8 / (queries.shape[1] + 2 * len(queries))))
    for part in shards:
        if part.start < start or part.stop > (stop or part.stop):
            continue
        pieces: Iterable[tuple[int, Any]] = kept.get(part.number) or _pieces(gemm, store, vectors, part, block)
        if keep:
            pieces = kept[part.number] = list(pieces)
        for first, piece in pieces:
            yield first, gemm.scores(prepared, piece)


def _pieces(gemm: Gemm, store: Store, vectors: Stage, part: Shard, block: int) -> Iterator[tuple[int, Any]]:
    """(first document, vectors ready to be multiplied) for blocks of a shard."""
    documents = corpus_shard(store, vectors, part)
    for first in range(0, len(documents), block):
        yield part.start + first, gemm.prepared(documents[first : first + block])


@dataclass(frozen=True)
class SparseRankingWork(_RankingWork):
    """BM25 lists of each text source, operator, complete order.

    Inputs: `postings`, one terms stage a text source under its name, `queries`.
    """

    def documents(self, store: Store, stage: Stage) -> int:
        return stage.inputs["postings"].artifact(store).manifest()["counts"]["documents"]

    def run(self, engine: Scratch, store: Store, stage: Stage, shard: Shard) -> None:
        own = own_documents(engine, store, stage)
        ranked: list[RankedQuery] = []
        for row in range(shard.start, shard.stop):
            scored = sparse_hits(engine, store, stage, row)
            docs, values = without(scored, own.get(row))
            order = sparse_order(docs, values)
            best = [*np.sort(values)[::-1][:2].astype(float).tolist(), None, None]
            ranked.append(RankedQuery(order, order.size, (best[0], best[1])))
        write_ranked(stage.artifact(store), shard.parts, ranked)


def without(hits: Scored, document: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Documents and scores of a hit list without one document."""
    if document is None:
        return hits.docs, hits.scores
    kept = hits.docs != document
    return hits.docs[kept], hits.scores[kept]


def sparse_hits(
    engine: Scratch, store: Store, stage: Stage, row: int, start: int = 0, stop: int | None = None
) -> Scored:
    """The channel's hits of a query among the documents start..stop, scored; a fallback is the original query's."""
    operator = SPARSE_OPERATORS[stage.params["operator"]]
    k1, b = stage.params["k1"], stage.params["b"]
    postings = stage.inputs["postings"]
    scorer = engine.get(
        f"bm25 {postings.key.digest} {k1} {b}", lambda: BM25(read_postings(store, postings), k1=k1, b=b)
    )
    used, numbers = operator, _options(stage)
    if fallbacks(engine, store, stage)[row]:
        used, numbers = SPARSE_OPERATORS["original"], {}
    hits = {}
    for source in used.texts:
        texts = stage.inputs[source]
        terms = engine.get(texts.key.digest, lambda texts=texts: read_terms(store, texts))
        hits[source] = Scored(*scorer.scores(terms[row], start, stop))
    return used.function(hits, **numbers)


@dataclass
class Rankings:
    """Reads a ranking or prefix stage row by row; parts are opened when first used."""

    store: Store
    stage: Stage
    _open: dict[int, tuple[np.ndarray, np.ndarray, pl.DataFrame]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        work: Any = self.stage.work
        read = getattr(work, "ranked_shards", work.shards)
        self.shards: list[Shard] = list(read(stored_layout(self.store, self.stage)))
        self.starts = np.array([shard.start for shard in self.shards])

    def _part(self, row: int) -> tuple[Shard, np.ndarray, np.ndarray, pl.DataFrame]:
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        shard = self.shards[number]
        if number not in self._open:
            artifact = self.stage.artifact(self.store)
            table = read_table(artifact, shard.parts[1], QUERIES)
            held = table["length"].clip(upper_bound=self.stage.params.get("depth"))
            edges = np.concatenate([[0], np.cumsum(held.to_numpy())])
            self._open[number] = (read_array(artifact, shard.parts[0]), edges, table)
        return shard, *self._open[number]

    def docs(self, row: int) -> np.ndarray:
        """The ranking of a query, or its prefix: document numbers int32, best first."""
        shard, docs, edges, _ = self._part(row)
        return docs[edges[row - shard.start] : edges[row - shard.start + 1]]

    def info(self, row: int) -> dict[str, Any]:
        """The query's row of the `queries` table."""
        shard, _, _, table = self._part(row)
        return table.row(row - shard.start, named=True)
