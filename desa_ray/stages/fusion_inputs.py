"""What a fusion stage reads: rankings, texts, ids and judgments, each once per worker; and one
query's weights.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from desa_ray.core.evaluation import positive_grades
from desa_ray.core.fusion.weights import confidence_weights, margin
from desa_ray.pipeline.stage import Stage
from desa_ray.stages.collection import read_rows
from desa_ray.stages.columns import edges, list_column
from desa_ray.stages.generation import read_generations
from desa_ray.stages.ranking import opened
from desa_ray.stages.top_scores import TopScores, opened_scores
from desa_ray.stages.worker_cache import WorkerCache

Numbers = NDArray[np.int32]


class Inputs:
    """What a fusion stage reads; whole tables are read once per worker."""

    def __init__(self, cache: WorkerCache, stage: Stage):
        self.cache, self.params = cache, stage.params
        corpus, queries, qrels = (stage.inputs[role] for role in ("corpus", "queries", "qrels"))
        self.ids: pl.Series = cache.get(f"ids {corpus.key.digest}", lambda: read_rows(corpus)["id"])
        self.queries: list[str] = cache.get(
            f"ids {queries.key.digest}", lambda: list(read_rows(queries)["id"])
        )
        self.qrels: pl.DataFrame = cache.get(f"qrels {qrels.key.digest}", lambda: read_rows(qrels))
        self.grades: Mapping[str, dict[str, int]] = cache.get(
            f"grades {qrels.key.digest} {queries.key.digest}",
            lambda: positive_grades(self.qrels, self.queries),
        )
        self.relevant = relevant_documents(cache, corpus, qrels)
        channels = [
            stage.inputs[f"channel:{channel['name']}"] for channel in stage.params["channels"]
        ]
        self.channels = channels
        self.rankings = [opened(cache, channel) for channel in channels]
        scores = [
            stage.inputs.get(f"scores:{channel['name']}") for channel in stage.params["channels"]
        ]
        self.scores: list[TopScores] = [opened_scores(cache, own) for own in scores if own]
        original = stage.inputs.get("original_sparse")
        self.counts = {role: s for role, s in stage.inputs.items() if role.startswith("counts")}
        self.original_sparse = opened(cache, original) if original is not None else None
        texts = [source for role, source in stage.inputs.items() if role.startswith("generation:")]
        records = [
            cache.get(f"text {t.key.digest}", lambda t=t: read_generations(t).records)
            for t in texts
        ]
        self.fallbacks: list[list[bool]] = [table["fallback"].to_list() for table in records]
        self.text_hashes: list[list[str]] = [table["text_hash"].to_list() for table in records]

    def names(self, numbers: Sequence[Numbers]) -> list[list[str]]:
        """The ids behind arrays of document numbers."""
        flat = self.ids.gather(np.concatenate(numbers)).to_list() if numbers else []
        starts = edges([own.size for own in numbers]).tolist()
        return [flat[first:last] for first, last in pairwise(starts)]

    def listed(self, numbers: Sequence[Numbers]) -> pl.Series:
        """`names` as a column of lists, for many ids."""
        flat = self.ids.gather(np.concatenate([np.empty(0, np.int32), *numbers]))
        return list_column(flat, edges([own.size for own in numbers]))


def relevant_documents(cache: WorkerCache, corpus: Stage, qrels: Stage) -> Mapping[str, Numbers]:
    """Query -> numbers of its relevant documents; read once per worker."""
    return cache.get(
        f"relevant {qrels.key.digest} {corpus.key.digest}",
        lambda: _relevant(read_rows(qrels), read_rows(corpus)["id"]),
    )


def _relevant(qrels: pl.DataFrame, ids: pl.Series) -> dict[str, Numbers]:
    """Query -> numbers of its relevant documents."""
    numbers = pl.DataFrame({"doc_id": ids}).with_row_index("number")
    found = qrels.filter(pl.col("grade") > 0).join(numbers, on="doc_id", how="inner")
    grouped = found.group_by("query_id").agg("number")
    return {query: np.array(own, np.int32) for query, own in grouped.iter_rows()}


class Weighed:
    """The channels of one query with their exact weights; channels of weight 0 are left out of the
    fusion.

    Attributes:
        infos: what the ranking stages say about the query, one per channel.
        lengths: how long the channels' rankings are; `cut_lengths`, how much of them a method's
            `prefix` leaves.
        all_weights: one per channel; `weights`, those above 0.
    """

    def __init__(self, inputs: Inputs, row: int):
        params = inputs.params
        self.kinds = [channel["kind"] for channel in params["channels"]]
        self.infos = [ranking.info(row) for ranking in inputs.rankings]
        self.lengths = [info["length"] for info in self.infos]
        self.cut_lengths = [min(own, params["prefix"] or own) for own in self.lengths]
        if params["weighting"] == "confidence":
            self.all_weights = confidence_weights(
                [margin(scores.best(row)[1]) for scores in inputs.scores],
                rounded=params.get("replay") != "release",
            )
        else:
            self.all_weights = [Fraction(channel["weight"]) for channel in params["channels"]]
        self.places = [c for c, weight in enumerate(self.all_weights) if weight > 0]
        self.weights = self.used(self.all_weights)

    def used(self, own: Sequence[Any]) -> list[Any]:
        """Those of one thing per channel whose channel has a weight above 0."""
        return [own[c] for c in self.places]
