"""Complete rankings: one artifact a channel (operator and inputs), one row a query.

Parts of a shard: `docs-*.npy` (document numbers int32, best first, queries one after another) and
`queries-*.parquet` (length, ranking hash, dense angle, the two best scores). A ranking does not know kappa or
weights, so a sweep over those reads it and ranks nothing again.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS, Scored
from desa_ray.core.ranking import complete_order, exact_scores, float32_scores, quantise, sparse_order
from desa_ray.engines.bm25 import BM25
from desa_ray.pipeline.collection import read_rows
from desa_ray.pipeline.generations import read_generations
from desa_ray.pipeline.lexical import read_postings, read_terms
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, bounds, shards_of, stored_layout
from desa_ray.pipeline.vectors import corpus_shard, text_vectors
from desa_ray.store.artifacts import Store
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


class Scratch:
    """What a scoring worker keeps between shards: its last inputs, read and verified once."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, name: str, read: Any) -> Any:
        if name not in self.kept:
            if len(self.kept) >= 16:
                self.kept.clear()
            self.kept[name] = read()
        return self.kept[name]


@dataclass(frozen=True)
class RankedQuery:
    """One ranking: documents int32 best first, its two best scores, and the angle of the dense operator."""

    docs: np.ndarray
    top: tuple[float | None, float | None]
    angle_deg: float | None = None


@dataclass(frozen=True)
class _RankingWork:
    pool: Pool
    shard_queries: int
    memory_gb: float

    def layout(self, store: Store, stage: Stage) -> Mapping[str, Any]:
        rows = stage.inputs["queries"].artifact(store).manifest()["counts"]["rows"]
        return {"bounds": bounds(rows, self.shard_queries)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "docs-{}.npy", "queries-{}.parquet")

    def finish(self, store: Store, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        hasher = RowHasher(QUERIES)
        artifact = stage.artifact(store)
        items = 0
        for shard in self.shards(layout):
            table = read_table(artifact, shard.parts[1], QUERIES)
            hasher.update(table)
            items += int(table["length"].sum())
        return Finished(hasher.hexdigest(), {"rows": layout["bounds"][-1], "items": items})

    def write(self, store: Store, stage: Stage, shard: Shard, ranked: list[RankedQuery]) -> None:
        artifact = stage.artifact(store)
        docs = [np.ascontiguousarray(query.docs, "<i4") for query in ranked]
        table = {
            "length": [len(d) for d in docs],
            "hash": [hashlib.sha256(d.tobytes()).hexdigest() for d in docs],
            "angle_deg": [query.angle_deg for query in ranked],
            "score_1": [query.top[0] for query in ranked],
            "score_2": [query.top[1] for query in ranked],
        }
        write_array(artifact, shard.parts[0], np.concatenate(docs) if docs else np.empty(0, "<i4"))
        write_table(artifact, shard.parts[1], pl.DataFrame(table, QUERIES), QUERIES)


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

    def run(self, engine: Scratch, store: Store, stage: Stage, shard: Shard) -> None:
        operator = DENSE_OPERATORS[stage.params["operator"]]
        rows = slice(shard.start, shard.stop)
        given: dict[str, np.ndarray] = {}
        for source in {"query", *operator.texts}:
            text_stage = stage.inputs[source]
            vectors = engine.get(text_stage.key.digest, lambda text_stage=text_stage: text_vectors(store, text_stage))
            given[source] = vectors[rows, 0] if source == "query" else vectors[rows, : stage.params["texts"]]
        expanded, diagnostics = operator.function(given, **_options(stage))
        angles = diagnostics.get("angle_deg")
        fell_back = np.array(fallbacks(engine, store, stage)[rows], bool)
        expanded[fell_back] = given["query"][fell_back]
        own = own_documents(engine, store, stage)
        ranked: list[RankedQuery] = []
        for first, scores in self._score(engine, store, stage, expanded):
            order = complete_order(scores)
            for offset in range(len(order)):
                local = first + offset
                docs = order[offset]
                if (shard.start + local) in own:
                    docs = docs[docs != own[shard.start + local]]
                top = [*(float(scores[offset, number]) for number in docs[:2]), None, None]
                angle = None if angles is None or fell_back[local] else float(angles[local])
                ranked.append(RankedQuery(docs, (top[0], top[1]), angle))
        self.write(store, stage, shard, ranked)

    def _score(self, engine: Scratch, store: Store, stage: Stage, queries: np.ndarray):
        """Yields (first row, float32 scores [rows, N]) in blocks of queries within the memory budget."""
        vectors = stage.inputs["vectors"]
        shards = vectors.work.shards(stored_layout(store, vectors))
        total = shards[-1].stop
        rows = max(1, int(self.memory_gb * 2**30 / max(1, total) / 16))
        exact = stage.params["scoring"] == "int26"
        prepared = quantise(queries) if exact else queries
        score: Callable[..., np.ndarray] = exact_scores if exact else float32_scores
        small = total * queries.shape[1] * 8 <= self.memory_gb * 2**29
        for first in range(0, len(queries), rows):
            block = prepared[first : first + rows]
            scores = np.empty((len(block), total), np.float32)
            for part in shards:
                documents = self._documents(engine, store, vectors, part, exact, keep=small)
                scores[:, part.start : part.stop] = score(block, documents)
            yield first, scores

    @staticmethod
    def _documents(scratch: Scratch, store: Store, vectors: Stage, part: Shard, exact: bool, keep: bool) -> np.ndarray:
        """A shard's vectors, quantised where scoring is exact; a small corpus is prepared once a worker."""
        kept = scratch.get(f"vectors {vectors.key.digest} {exact}", dict) if keep else {}
        if part.number not in kept:
            documents = corpus_shard(store, vectors, part)
            kept[part.number] = quantise(documents) if exact else documents
        return kept[part.number]


@dataclass(frozen=True)
class SparseRankingWork(_RankingWork):
    """BM25 lists of each text source, operator, complete order.

    Inputs: `postings`, one terms stage a text source under its name, `queries`.
    """

    def run(self, engine: Scratch, store: Store, stage: Stage, shard: Shard) -> None:
        operator = SPARSE_OPERATORS[stage.params["operator"]]
        k1, b = stage.params["k1"], stage.params["b"]
        postings = stage.inputs["postings"]
        scorer = engine.get(
            f"bm25 {postings.key.digest} {k1} {b}", lambda: BM25(read_postings(store, postings), k1=k1, b=b)
        )
        terms = {
            source: engine.get(
                stage.inputs[source].key.digest, lambda source=source: read_terms(store, stage.inputs[source])
            )
            for source in {"query", *operator.texts}
        }
        fell_back = fallbacks(engine, store, stage)
        own = own_documents(engine, store, stage)
        original, options = SPARSE_OPERATORS["original"], _options(stage)
        ranked: list[RankedQuery] = []
        for row in range(shard.start, shard.stop):
            used, numbers = (original, {}) if fell_back[row] else (operator, options)
            hits = {source: Scored(*scorer.scores(terms[source][row])) for source in used.texts}
            scored = used.function(hits, **numbers)
            docs, values = scored.docs, scored.scores
            if row in own:
                docs, values = docs[docs != own[row]], values[docs != own[row]]
            order = sparse_order(docs, values)
            best = [*np.sort(values)[::-1][:2].astype(float).tolist(), None, None]
            ranked.append(RankedQuery(order, (best[0], best[1])))
        self.write(store, stage, shard, ranked)


@dataclass
class Rankings:
    """Reads a ranking stage row by row; parts are opened when first used."""

    store: Store
    stage: Stage
    _open: dict[int, tuple[np.ndarray, np.ndarray, pl.DataFrame]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shards: list[Shard] = list(self.stage.work.shards(stored_layout(self.store, self.stage)))
        self.starts = np.array([shard.start for shard in self.shards])

    def _part(self, row: int) -> tuple[Shard, np.ndarray, np.ndarray, pl.DataFrame]:
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        shard = self.shards[number]
        if number not in self._open:
            artifact = self.stage.artifact(self.store)
            table = read_table(artifact, shard.parts[1], QUERIES)
            edges = np.concatenate([[0], np.cumsum(table["length"].to_numpy())])
            self._open[number] = (read_array(artifact, shard.parts[0]), edges, table)
        return shard, *self._open[number]

    def docs(self, row: int) -> np.ndarray:
        """The ranking of a query: document numbers int32, best first."""
        shard, docs, edges, _ = self._part(row)
        return docs[edges[row - shard.start] : edges[row - shard.start + 1]]

    def info(self, row: int) -> dict[str, Any]:
        """The query's row of the `queries` table."""
        shard, _, _, table = self._part(row)
        return table.row(row - shard.start, named=True)


def dense_ranking_bytes(documents: int, queries: int) -> int:
    """The least a worker holds to rank `queries` queries in one shard: for every document one query's scores and sort,
    and the shard's orders twice, as they are and joined to the part that is written.
    """
    return documents * (16 + 8 * queries)


def sparse_ranking_bytes(documents: int, sources: int) -> int:
    """The least a worker holds to rank one query by BM25: sums, hits, and a list (numbers, scores) a text source."""
    return documents * (9 + 8 * sources)
