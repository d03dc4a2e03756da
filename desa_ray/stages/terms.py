"""Terms: query-side texts as Lucene analyses them, one list of terms per query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import polars as pl

from desa_ray.core.query_text import SPARSE_TEXTS, mugi_repeats
from desa_ray.core.reweighting import SPARSE_TERMS
from desa_ray.engines.lucene import Lucene
from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Finished, Shard, Stage, shards_of
from desa_ray.stages.collection import read_rows
from desa_ray.stages.generation import read_generations
from desa_ray.stages.query_shards import QueryShards, text_inputs, text_params
from desa_ray.store.content import RowHasher
from desa_ray.store.tables import read_table, write_table

TERMS = pl.Schema({"terms": pl.List(pl.String)})


@dataclass(frozen=True)
class TermsWork(QueryShards):
    """Analyses the string that a template makes of a query and its texts, or weighs their terms;
    one row per query.
    """

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.parquet")

    def run(self, engine: Lucene, stage: Stage, shard: Shard) -> None:
        queries = read_rows(stage.inputs["queries"])["text"].to_list()
        texts = texts_of(stage, queries)
        name, rows = stage.params["template"], range(shard.start, shard.stop)
        analyzer = stage.params["analyzer"]
        if name in SPARSE_TERMS:
            weigh = SPARSE_TERMS[name]
            found = iter(
                engine.analyse(
                    [text for row in rows for text in (queries[row], *texts[row])], analyzer
                )
            )
            terms = []
            for row in rows:
                query = next(found)
                terms.append(weigh(query, list(islice(found, len(texts[row])))))
        else:
            numbers = {
                option: int(value) for option, value in stage.params.get("options", {}).items()
            }
            terms = engine.analyse(
                [SPARSE_TEXTS[name](queries[row], texts[row], **numbers) for row in rows], analyzer
            )
        write_table(stage.artifact, shard.parts[0], pl.DataFrame({"terms": terms}, TERMS), TERMS)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        artifact = stage.artifact
        hasher = RowHasher(TERMS)
        for shard in self.shards(layout):
            hasher.update(read_table(artifact, shard.parts[0], TERMS))
        counts = {"rows": layout["bounds"][-1], **self.without_copy(stage)}
        return Finished(hasher.hexdigest(), counts)

    @staticmethod
    def without_copy(stage: Stage) -> dict[str, int]:
        """How many queries MuGI's formula gives no copy at all, as long ones may get."""
        if stage.params["template"] != "mugi":
            return {}
        queries = read_rows(stage.inputs["queries"])["text"].to_list()
        pairs = zip(queries, texts_of(stage, queries), strict=True)
        return {"queries_without_copy": sum(mugi_repeats(*pair) == 0 for pair in pairs)}

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        texts = rows["queries"] * (1 + params["texts"])
        return Size(rows["queries"], texts, texts)

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        return (params.get("template"),)


def texts_of(stage: Stage, queries: Sequence[str]) -> list[list[str]]:
    """The texts used of each query."""
    if "generation" not in stage.inputs:
        return [[] for _ in queries]
    texts = read_generations(stage.inputs["generation"]).texts_or(queries)
    return [own[: stage.params["texts"]] for own in texts]


def terms_stage(
    queries: Stage,
    generation: Stage | None,
    template: str,
    used: int,
    options: Mapping[str, str],
    analysis: Mapping[str, str],
    work: TermsWork,
) -> Stage:
    """The terms of what `template` makes of the queries and their first `used` generated texts.

    Args:
        options: those of the operator; the template takes the ones it knows.
        analysis: analyzer and Lucene version.
    """
    inputs, label = text_inputs(queries, generation, template)
    params = {**text_params(template, used, options), **analysis}
    return Stage(queries.store, "terms", 1, params, work, inputs, label)


def read_terms(stage: Stage) -> list[list[str]]:
    """Analysed terms, one list per query."""
    artifact = stage.artifact
    shards = stage.stored_shards()
    return [
        terms
        for s in shards
        for terms in read_table(artifact, s.parts[0], TERMS)["terms"].to_list()
    ]
