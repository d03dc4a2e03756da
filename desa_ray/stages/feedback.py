"""Feedback: terms and weights that the best documents of a query's first ranking give it, one row
per query.

The first ranking is BM25 of the query. What its best documents hold is read out of the postings, in
one pass over them per shard of queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.feedback import FEEDBACK, FeedbackDocument
from desa_ray.core.ranking import sparse_order
from desa_ray.engines.ranged_postings import RangedPostings
from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Finished, Shard, Stage, shards_of
from desa_ray.stages.postings import bm25_of
from desa_ray.stages.query_shards import QueryShards
from desa_ray.stages.ranking import options, own_documents
from desa_ray.stages.terms import read_terms
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.content import RowHasher
from desa_ray.store.tables import read_table, write_table

WEIGHTS = pl.Schema({"terms": pl.List(pl.String), "weights": pl.List(pl.Float32)})
FEEDBACK_INPUTS = ("queries", "query", "postings", "corpus")
BLOCK = 1 << 22  # entries of postings that are looked at together


@dataclass(frozen=True)
class FeedbackWork(QueryShards):
    """BM25 of the query, terms of its best documents, weights.

    Inputs: `queries`, `query` (the query's terms), `postings`, and `corpus` where a query's own
    document is left out.
    """

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.parquet")

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        numbers = options(stage)
        scorer, terms = bm25_of(engine, stage), read_terms(stage.inputs["query"])
        own = own_documents(engine, stage)
        best: list[tuple[np.ndarray, np.ndarray]] = []
        for row in range(shard.start, shard.stop):
            docs, scores = scorer.scores(terms[row])
            kept = docs != own.get(row, -1)
            docs, scores = docs[kept], scores[kept]
            first = sparse_order(docs, scores)[: int(numbers["fb_docs"])]
            best.append((first, scores[np.searchsorted(docs, first)]))
        held = terms_of(scorer.postings, np.concatenate([docs for docs, _ in best]))
        shares = _shares(scorer.postings, held)
        weigh, found = FEEDBACK[stage.params["model"]], []
        for row, (docs, scores) in zip(range(shard.start, shard.stop), best, strict=True):
            pairs = zip(docs.tolist(), scores, strict=True)
            documents = [FeedbackDocument(held[doc], score) for doc, score in pairs]
            found.append(weigh(terms[row], documents, shares, **numbers))
        table = {
            "terms": [list(weights) for weights in found],
            "weights": [list(map(float, weights.values())) for weights in found],
        }
        write_table(stage.artifact, shard.parts[0], pl.DataFrame(table, WEIGHTS), WEIGHTS)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        hasher = RowHasher(WEIGHTS)
        for shard in self.shards(layout):
            hasher.update(read_table(stage.artifact, shard.parts[0], WEIGHTS))
        return Finished(hasher.hexdigest(), {"rows": layout["bounds"][-1]})

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        pairs = rows["queries"] * rows["postings"]
        return Size(rows["queries"], pairs, rows["queries"])

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        return (params.get("model"),)


def terms_of(postings: RangedPostings, docs: np.ndarray) -> dict[int, dict[str, int]]:
    """What each of the documents `docs` (int32, repeats allowed) holds: term -> frequency, terms
    in byte order.
    """
    held: dict[int, dict[str, int]] = {int(doc): {} for doc in np.unique(docs)}
    for start, stop in pairwise(postings.edges):
        asked = np.array([doc - start for doc in held if start <= doc < stop], np.int64)
        if not asked.size:
            continue
        ((first, own),) = postings.between(start, stop)
        wanted = np.zeros(own.n_documents, np.bool_)
        wanted[asked] = True
        for low in range(0, own.docs.size, BLOCK):
            found = low + np.flatnonzero(wanted[own.docs[low : low + BLOCK]])
            places = np.searchsorted(own.indptr, found, side="right") - 1
            for at, place in zip(found.tolist(), places.tolist(), strict=True):
                term = own.term(place).decode()
                held[first + int(own.docs[at])][term] = int(own.freqs[at])
    return held


def _shares(postings: RangedPostings, held: Mapping[int, Mapping[str, int]]) -> dict[str, float]:
    """Of every term of the documents, the share of the documents with text that hold it."""
    statistics = postings.statistics
    terms = sorted({term for own in held.values() for term in own})
    return {term: statistics.documents_with(term) / statistics.doc_count for term in terms}


def feedback_stage(
    model: str,
    options: Mapping[str, str],
    scored: Mapping[str, Any],
    inputs: Mapping[str, Stage],
    work: FeedbackWork,
) -> Stage:
    """Weighted terms of a feedback model.

    Args:
        model: a name in `core.feedback.FEEDBACK`.
        options: numbers of the model, and `fb_docs`, how many documents it takes.
        scored: what decides the first ranking: `k1`, `b` and `exclude_self`.
        inputs: as `FeedbackWork`.
    """
    params = {"model": model, "options": dict(options), **scored}
    return Stage(inputs["queries"].store, "feedback", 1, params, work, inputs, model)


def read_feedback(stage: Stage) -> list[dict[str, np.float32]]:
    """Weighted terms, one dict per query."""
    tables = [read_table(stage.artifact, s.parts[0], WEIGHTS) for s in stage.stored_shards()]
    rows: list[dict[str, np.float32]] = []
    for table in tables:
        columns: Sequence[list[Any]] = (table["terms"].to_list(), table["weights"].to_list())
        for terms, weights in zip(*columns, strict=True):
            rows.append(dict(zip(terms, map(np.float32, weights), strict=True)))
    return rows
