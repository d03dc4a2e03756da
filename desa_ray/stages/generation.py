"""Generated texts in the store: one artifact per (queries, prompt, generator, draw), rows in query
order.

A stored output is the record: whatever made it (a recording, an engine), later stages read it here
and nothing is ever generated twice. Draws are separate artifacts, so that a run with more draws
keeps those it has.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.engines.generation import GENERATION_SCHEMA
from desa_ray.engines.prompts import Prompt
from desa_ray.engines.recorded_generator import RecordedGenerations, read_recorded
from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Count, Finished, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import read_rows
from desa_ray.store.artifact import Artifact
from desa_ray.store.content import rows_content
from desa_ray.store.makers import distinct
from desa_ray.store.tables import read_table, write_table

PART, KEPT = "part-{}.parquet", "kept.parquet"  # KEPT: records that were in the store already


@lru_cache(maxsize=4)
def recorded(
    folder: str,
    content: str,
    prompt: Prompt,
    dataset: str,
    ids: tuple[str, ...],
    texts: tuple[str, ...],
    draws: int,
    strict: bool,
) -> RecordedGenerations:
    """The validated rows of a recording. `content`, the file's hash, only keeps the
    cache honest.
    """
    del content
    return read_recorded(
        Path(folder),
        prompt,
        query_ids=ids,
        query_texts=texts,
        dataset=dataset,
        draws=range(draws),
        strict=strict,
    )


class GenerationWork(Work):
    """What recorded and live generation share: how large they are, and what their records amount
    to.
    """

    unit = "queries"

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        texts = rows["queries"] * params["count"]
        return Size(rows["queries"], texts, texts)

    @classmethod
    def comparable_key(cls, params: Params, rows: Rows) -> Any:
        """What a generator is, below its model: engines differ in speed by orders of magnitude."""
        generator = params["generator"]
        return generator if isinstance(generator, str) else generator["kind"]

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        return params.get("generator"), params.get("prompt")

    def plan_group(self, stage: Stage) -> str:
        return re.sub(r" draw \d+$", "", stage.label)

    def metrics(self, stage: Stage, parts: Sequence[str]) -> Iterator[Count]:
        """Records, requests, retries and tokens of the stored parts, by generator."""
        for part in parts:
            records = read_table(stage.artifact, part, GENERATION_SCHEMA)
            generator = (records["generator"].drop_nulls().to_list() or ["unknown"])[0]
            labels = {"generator": generator}
            fallbacks, retries = int(records["fallback"].sum()), int(records["retries"].sum())
            yield Count("generations", records.height - fallbacks, {**labels, "outcome": "valid"})
            yield Count("generations", fallbacks, {**labels, "outcome": "fallback"})
            requests = int(records["raw"].list.len().sum()) + retries
            yield Count("generation_requests", requests, labels)
            yield Count("generation_retries", retries, labels)
            for kind in ("prompt", "completion"):
                yield Count(
                    "tokens", int(records[f"{kind}_tokens"].sum()), {**labels, "kind": kind}
                )


@dataclass(frozen=True)
class RecordedWork(GenerationWork):
    """Takes one draw of a recording into the store. `draws` only says how many to validate in one
    reading.
    """

    folder: str
    dataset: str
    draws: int
    prompt: Prompt
    pool: None = None

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(stage.inputs["queries"].rows, 1 << 20)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, PART)

    def read(self, stage: Stage) -> RecordedGenerations:
        """The recording, checked for all `draws`; raises what is wrong with it."""
        queries = read_rows(stage.inputs["queries"])
        params = stage.params
        return recorded(
            self.folder,
            params["recording"],
            self.prompt,
            self.dataset,
            tuple(queries["id"]),
            tuple(queries["text"]),
            self.draws,
            params["strict"],
        )

    def drawn(self, stage: Stage) -> pl.DataFrame:
        """The rows of the stage's draw, in query order."""
        rows = self.read(stage).records.filter(pl.col("draw") == stage.params["draw"])
        order = pl.DataFrame({"query_id": read_rows(stage.inputs["queries"])["id"]})
        return order.join(rows, on="query_id", how="left", maintain_order="left").select(
            GENERATION_SCHEMA.names()
        )

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        rows = self.drawn(stage)
        write_table(
            stage.artifact, shard.parts[0], rows[shard.start : shard.stop], GENERATION_SCHEMA
        )

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        found = read_generations(stage)
        counts = {"rows": found.records.height, "fallbacks": sum(found.fallback)}
        return Finished(
            rows_content(found.records), counts, {"recording": dict(self.read(stage).counts)}
        )


@dataclass(frozen=True)
class Generations:
    """One draw: `records` has a row per query (schema `GENERATION_SCHEMA`)."""

    records: pl.DataFrame
    count: int

    @property
    def fallback(self) -> list[bool]:
        """Per query: the text was invalid, every channel built from it is the Original channel."""
        return self.records["fallback"].to_list()

    def texts_or(self, queries: Sequence[str]) -> list[list[str]]:
        """The texts of each query; a fallback row is filled with the query text, on which no result
        depends.
        """
        texts = self.records["texts"].to_list()
        return [
            [query] * self.count if fallback else list(own)
            for query, own, fallback in zip(queries, texts, self.fallback, strict=True)
        ]


def generation_shards(layout: Mapping[str, Any]) -> list[Shard]:
    """The shards to generate; none where every record was in the store already."""
    return [
        shard
        for shard in shards_of(layout, PART)
        if shard.stop > shard.start or not layout.get("kept")
    ]


def records_of(artifact: Artifact, layout: Mapping[str, Any]) -> pl.DataFrame:
    """All records of a generation artifact, in query order."""
    frames = [
        read_table(artifact, shard.parts[0], GENERATION_SCHEMA)
        for shard in generation_shards(layout)
    ]
    if layout.get("kept"):
        return pl.concat([*frames, read_table(artifact, KEPT, GENERATION_SCHEMA)]).sort("query_id")
    return pl.concat(frames)


def makers_of(artifact: Artifact) -> list[dict[str, Any]]:
    """Who made the records of a generation artifact, each process once; parts of earlier versions
    do not say.
    """
    made = [maker for part in artifact.parts().values() for maker in part.made or ()]
    return distinct(made)


def read_generations(stage: Stage) -> Generations:
    """All rows of a generation stage, in query order."""
    return Generations(records_of(stage.artifact, stage.stored_layout()), stage.params["count"])


def generation_stage(
    queries: Stage,
    prompt: Prompt,
    draw: int,
    source: Mapping[str, Any],
    work: GenerationWork,
    label: str,
) -> Stage:
    """One draw of a prompt for the queries; `source` says where its texts come from (recording or
    engine).
    """
    params = {
        **source,
        "prompt": prompt.name,
        "prompt_hash": prompt.hash,
        "count": prompt.text_count,
        "draw": draw,
    }
    return Stage(queries.store, "generation", 2, params, work, {"queries": queries}, label)
