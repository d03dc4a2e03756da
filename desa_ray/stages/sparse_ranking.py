"""Sparse rankings: hits of each text source by BM25 or learned impacts, the operator's scores,
complete order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from desa_ray.core.adjusted import adjusted_sources
from desa_ray.core.feedback import FEEDBACK
from desa_ray.core.operators import SPARSE_OPERATORS, SparseHits, SparseOperator
from desa_ray.core.ranking import sparse_order
from desa_ray.engines.impact_postings import check_exact
from desa_ray.pipeline.stage import Shard, Stage
from desa_ray.stages.feedback import read_feedback
from desa_ray.stages.impacts import impacts_of
from desa_ray.stages.plugged import operator_of
from desa_ray.stages.postings import bm25_of
from desa_ray.stages.query_weights import read_query_weights
from desa_ray.stages.ranking import (
    RankedQuery,
    RankingWork,
    fell_back,
    options,
    own_documents,
    write_ranked,
)
from desa_ray.stages.terms import read_terms
from desa_ray.stages.worker_cache import WorkerCache


@dataclass(frozen=True)
class SparseRankingWork(RankingWork):
    """BM25 lists of each text source, operator, complete order.

    Inputs: `postings`, one terms or feedback stage per text source under its name, `queries`.
    """

    def documents(self, stage: Stage) -> int:
        return corpus_size(stage)

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        own = own_documents(engine, stage)
        ranked: list[RankedQuery] = []
        for row in range(shard.start, shard.stop):
            scored = sparse_hits(engine, stage, row)
            docs, values = without(scored, own.get(row))
            order = sparse_order(docs, values)
            best = [*np.sort(values)[::-1][:2].astype(float).tolist(), None, None]
            ranked.append(RankedQuery(order, order.size, (best[0], best[1])))
        write_ranked(stage.artifact, shard.parts, ranked)


def without(hits: SparseHits, document: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Documents and scores of a hit list without one document."""
    if document is None:
        return hits.docs, hits.scores
    kept = hits.docs != document
    return hits.docs[kept], hits.scores[kept]


def corpus_size(stage: Stage) -> int:
    return stage.inputs["postings"].artifact.manifest()["counts"]["documents"]


def by_range(stage: Stage) -> bool:
    """Whether what a document scores depends on its own hits alone, so that lists can be taken
    range by range.
    """
    adjusts = stage.params.get("scores") == "adjusted"
    return _operator(stage).local and not adjusts


def _operator(stage: Stage) -> SparseOperator:
    found = operator_of("sparse", stage.params["operator"], stage.params.get("plugin"))
    assert isinstance(found, SparseOperator)
    return found


def sparse_hits(
    engine: WorkerCache, stage: Stage, row: int, start: int = 0, stop: int | None = None
) -> SparseHits:
    """The channel's hits of a query among the documents start..stop, scored; a fallback is the
    original query's.
    """
    if not by_range(stage):
        assert (start, stop) in ((0, None), (0, corpus_size(stage))), "needs whole lists"
    return _operated(engine, stage, row, lambda scorer, terms: scorer.scores(terms, start, stop))


def sparse_hits_of(engine: WorkerCache, stage: Stage, row: int, docs: np.ndarray) -> SparseHits:
    """Those of the documents `docs` (int32, ascending) that the channel's list of a query holds,
    scored as `sparse_hits` does.
    """
    assert by_range(stage), "needs whole lists"
    return _operated(engine, stage, row, lambda scorer, terms: scorer.scores_of(terms, docs))


def _operated(
    engine: WorkerCache,
    stage: Stage,
    row: int,
    score: Callable[[Any, Any], tuple[np.ndarray, np.ndarray]],
) -> SparseHits:
    """The operator's list from lists of its sources. Learned scores are whole numbers below 2^53,
    which float64 holds exactly; a product that is not is refused.
    """
    operator, learned = _operator(stage), "learned" in stage.params
    scorer = impacts_of(engine, stage) if learned else bm25_of(engine, stage)
    used, numbers = operator, options(stage)
    if fell_back(engine, stage, [row])[0]:
        used, numbers = SPARSE_OPERATORS["original"], {}
    hits = {}
    for source in used.texts:
        texts = stage.inputs[source]
        read = read_feedback if source in FEEDBACK else read_terms
        if learned:
            read = read_query_weights
        terms = engine.get(texts.key.digest, partial(read, texts))
        docs, scores = score(scorer, terms[row])
        hits[source] = SparseHits(docs, scores.astype(np.float64) if learned else scores)
    if stage.params.get("scores") == "adjusted":
        hits = adjusted_sources(hits)
    found = used.function(hits, **numbers)
    if learned:
        check_exact(found.scores)
    return found
