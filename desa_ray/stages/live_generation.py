"""Live generation as a stage: shards of queries over a pool of engines, each shard stored as soon
as it is done, and its finished rows before that (finished_rows.py).

A stored shard is final: a resumed run reads it and never generates it again, even if another run
(on a GPU without batch-invariant mode) would give other words. Records that are stored for other
sets of queries are reused (generation_reuse.py); the shards cover the queries that are left.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from desa_ray.engines.chat import ChatEngine
from desa_ray.engines.generation import GENERATION_SCHEMA
from desa_ray.engines.live_generator import decoding, generated_rows
from desa_ray.engines.prompts import Prompt
from desa_ray.errors import DesaError
from desa_ray.pipeline.provenance import maker
from desa_ray.pipeline.sizes import Rows
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, bounds
from desa_ray.stages.collection import read_rows
from desa_ray.stages.finished_rows import FinishedRows, withdraw_rows
from desa_ray.stages.generation import (
    KEPT,
    GenerationWork,
    generation_shards,
    makers_of,
    records_of,
)
from desa_ray.stages.generation_reuse import known_records
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_table, write_table


@dataclass(frozen=True)
class LiveWork(GenerationWork):
    """Generates one draw of a prompt. Parameters: `generator` (identity), `dataset`, `prompt`,
    `draw`, `count`. The prompt itself travels here: workers need no file of it.
    """

    pool: Pool
    shard_queries: int
    generator: str
    prompt: Prompt

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        artifact = stage.artifact
        if stored := artifact.stored_layout():
            return stored
        rows = stage.inputs["queries"].rows
        known, makers = known_records(stage)
        if not known.height:
            return {"bounds": bounds(rows, self.shard_queries)}
        write_table(artifact, KEPT, known, GENERATION_SCHEMA, makers or None)
        # Another run's, where it was first
        kept = read_table(artifact, KEPT, GENERATION_SCHEMA).height
        return {"bounds": bounds(rows - kept, self.shard_queries), "kept": kept}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return generation_shards(layout)

    def run(self, engine: ChatEngine, stage: Stage, shard: Shard) -> None:
        queries = read_rows(stage.inputs["queries"])
        if stage.stored_layout().get("kept"):
            kept = read_table(stage.artifact, KEPT, GENERATION_SCHEMA)["query_id"]
            queries = queries.filter(~pl.col("id").is_in(kept.implode()))
        queries = queries[shard.start : shard.stop]
        made = {**maker(), "cpus": self.pool.cpus, "gpus": self.pool.gpus}
        rows = FinishedRows(stage.artifact, shard, made)
        queries = queries.filter(~pl.col("id").is_in(rows.kept["query_id"].implode()))
        try:
            for row in generated_rows(
                engine,
                self.prompt,
                generator=self.generator,
                dataset=stage.params["dataset"],
                draw=stage.params["draw"],
                query_ids=queries["id"].to_list(),
                query_texts=queries["text"].to_list(),
            ):
                rows.add(row)
        except DesaError:
            rows.keep()
            raise
        write_table(stage.artifact, shard.parts[0], rows.all(), GENERATION_SCHEMA, rows.makers)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        withdraw_rows(stage.artifact)
        records = records_of(stage.artifact, layout)
        totals = records.select(pl.col("retries", "prompt_tokens", "completion_tokens").sum()).row(
            0, named=True
        )
        counts = {"rows": records.height, "fallbacks": int(records["fallback"].sum())}
        counts["reused"] = layout.get("kept", 0)
        counts |= {name: int(total or 0) for name, total in totals.items()}
        made = (
            records.select("model", "revision").unique().row(0, named=True)
            if records.height
            else {}
        )
        meta = {"decoding": decoding(self.prompt), "recording": {}, **made}
        meta["makers"] = makers_of(stage.artifact)
        return Finished(rows_content(records), counts, meta)

    def shard_rows(self, rows: Rows) -> int:
        return self.shard_queries
