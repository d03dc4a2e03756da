"""Query weights: the terms of queries and their references with learned weights, one row per query.

Each text is weighed alone, weights are quantised, and what becomes of a query and its references is
made of these whole numbers (method.md section 4.3).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import polars as pl

from desa_ray.core.impacts import (
    COMBINED,
    copies_of_query,
    largest,
    least_repeats,
    quantised,
)
from desa_ray.core.query_text import SPARSE_TEXTS
from desa_ray.engines.learned_sparse import TermWeigher
from desa_ray.errors import DesaError
from desa_ray.pipeline.stage import Finished, Shard, Stage
from desa_ray.stages.collection import read_rows
from desa_ray.stages.impacts import read_query_vectors
from desa_ray.stages.query_shards import text_inputs, text_params
from desa_ray.stages.terms import TermsWork, texts_of
from desa_ray.store.content import RowHasher
from desa_ray.store.tables import read_table, write_table

QUERY_WEIGHTS = pl.Schema({"terms": pl.List(pl.String), "weights": pl.List(pl.Int64)})


@dataclass(frozen=True)
class QueryWeightsWork(TermsWork):
    """Weighs the texts of a source and combines their weights; one row per query. Queries that a
    file weighs, the input `vectors`, are not weighed again.
    """

    def run(self, engine: TermWeigher, stage: Stage, shard: Shard) -> None:
        queries = read_rows(stage.inputs["queries"])
        texts = texts_of(stage, queries["text"].to_list())
        rows = range(shard.start, shard.stop)
        vectors = read_query_vectors(stage.inputs["vectors"]) if "vectors" in stage.inputs else None
        given: list[str] = []
        for row in rows:
            asked = _asked(stage, queries["text"][row], texts[row])
            given += asked if vectors is None else asked[1:]
        weighed = _quantised(engine.weigh(given), stage.params["weights"]["scale"])
        found: list[dict[str, int]] = []
        for row in rows:
            own = next(weighed) if vectors is None else vectors[row]
            found.append(_row(stage, own, weighed, (queries["text"][row], texts[row])))
        table = {
            "terms": [list(bag) for bag in found],
            "weights": [list(bag.values()) for bag in found],
        }
        frame = pl.DataFrame(table, QUERY_WEIGHTS)
        write_table(stage.artifact, shard.parts[0], frame, QUERY_WEIGHTS)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        hasher, terms = RowHasher(QUERY_WEIGHTS), 0
        for shard in self.shards(layout):
            table = read_table(stage.artifact, shard.parts[0], QUERY_WEIGHTS)
            hasher.update(table)
            terms += int(table["terms"].list.len().sum())
        counts = {"rows": layout["bounds"][-1], "terms": terms, **self.without_copy(stage)}
        return Finished(hasher.hexdigest(), counts)


def _asked(stage: Stage, query: str, texts: Sequence[str]) -> list[str]:
    """The texts that are weighed for a row: the query, then its references or one text of all."""
    template = stage.params["template"]
    if template == "query":
        return [query]
    if stage.params["weights"]["combine"] != "joint":
        return [query, *texts]
    options = {name: int(value) for name, value in stage.params.get("options", {}).items()}
    return [query, SPARSE_TEXTS[template](query, texts, **options)]


def _quantised(weighed: Sequence[Mapping[str, float]], scale: float) -> Iterator[dict[str, int]]:
    for weights in weighed:
        try:
            yield quantised(weights, scale)
        except DesaError as error:
            hint = "lower sparse.query_scale, or correct the weights"
            raise DesaError(error.what, where="sparse query weights", hint=hint) from None


def _row(
    stage: Stage,
    own: dict[str, int],
    weighed: Iterator[dict[str, int]],
    about: tuple[str, Sequence[str]],
) -> dict[str, int]:
    """The weights of a row, from those of its query and of its other texts; `about`: these."""
    template, combine = stage.params["template"], stage.params["weights"]["combine"]
    query, texts = about
    if template == "query":
        return own
    copies = copies_of_query(template, query, texts, least_repeats(stage.params.get("options", {})))
    if combine != "joint":
        return COMBINED[combine](copies, own, list(islice(weighed, len(texts))))
    # The query's terms keep their own weight at least: its support is part of the expansion's.
    return largest(min(copies, 1), own, [next(weighed)])


def query_weights_stage(
    queries: Stage,
    generation: Stage | None,
    template: str,
    used: int,
    options: Mapping[str, str],
    identity: Mapping[str, Any],
    work: QueryWeightsWork,
    vectors: Stage | None = None,
) -> Stage:
    """The weights of what `template` takes of queries and their first `used` generated texts.

    Args:
        vectors: those of the queries, of a file.
        options: those of the operator; the template takes the ones it knows.
        identity: what decides the weights of a text, `scale` and `combine`.
    """
    inputs, label = text_inputs(queries, generation, template)
    inputs |= {"vectors": vectors} if vectors else {}
    params = {**text_params(template, used, options), "weights": dict(identity)}
    return Stage(queries.store, "query_weights", 1, params, work, inputs, label)


def read_query_weights(stage: Stage) -> list[dict[str, int]]:
    """Weights of at least 1, one bag per query."""
    found: list[dict[str, int]] = []
    for shard in stage.stored_shards():
        table = read_table(stage.artifact, shard.parts[0], QUERY_WEIGHTS)
        pairs = zip(table["terms"].to_list(), table["weights"].to_list(), strict=True)
        found += [dict(zip(*pair, strict=True)) for pair in pairs]
    return found
