"""Calibration: the alpha of AnchorQE for one draw, from the scores of a few queries.

The queries that it looks at are left out of the records of methods that use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.calibration import BEST, CALIBRATION_QUERIES, plain_mean, top_and_ten
from desa_ray.core.topk import TopK
from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work, shards_of
from desa_ray.stages.calibrated import SCORES
from desa_ray.stages.dense_ranking import corpus_size, dense_scores
from desa_ray.stages.generation import read_generations
from desa_ray.stages.prefix import kept
from desa_ray.stages.ranking import own_documents
from desa_ray.stages.text_vectors import text_vectors
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_table, write_table


@dataclass(frozen=True)
class CalibrationWork(Work):
    """Scores of the calibration queries and of their references' means; one row per query.

    Inputs: `queries`, `query` and `rewrite` (vectors of the queries and of their references),
    `vectors` of the documents, `generation`.
    """

    pool: Pool
    memory_gb: float
    unit = "queries"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": [0, stage.params["queries"]]}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "scores-{}.parquet")

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        fell_back = read_generations(stage.inputs["generation"]).fallback
        rows = [row for row, bad in enumerate(fell_back) if not bad][: stage.params["queries"]]
        own = own_documents(engine, stage)
        queries = text_vectors(stage.inputs["query"])[rows, 0]
        texts = text_vectors(stage.inputs["rewrite"])[rows, : stage.params["texts"]]
        both = np.concatenate([queries, plain_mean(texts)])
        total = corpus_size(stage.inputs["vectors"])
        chosen = TopK(len(both), BEST + 1, total)
        for first, scores in dense_scores(engine, stage, both, self.memory_gb):
            chosen.add(scores, first)
        values: list[tuple[int | float, ...]] = []
        for place, row in enumerate(rows):
            best = [
                top_and_ten(kept(chosen.keys(at), BEST, own.get(row))[1])
                for at in (place, len(rows) + place)
            ]
            values.append((row, *best[0], *best[1]))
        table = pl.DataFrame(values, SCORES, orient="row")
        write_table(stage.artifact, shard.parts[0], table, SCORES)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        table = read_table(stage.artifact, self.shards(layout)[0].parts[0], SCORES)
        return Finished(rows_content(table), {"rows": table.height})

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        pairs = 2 * params["queries"] * rows["vectors"]
        return Size(params["queries"], pairs, params["queries"])


def calibration_stage(
    params: Mapping[str, Any], inputs: Mapping[str, Stage], work: CalibrationWork, label: str
) -> Stage:
    """The calibration of a channel, whose parameters and inputs these are."""
    params = {
        "queries": CALIBRATION_QUERIES,
        "texts": params["texts"],
        "scoring": params["scoring"],
        "exclude_self": params["exclude_self"],
    }
    store = inputs["queries"].store
    return Stage(store, "calibration", 1, params, work, inputs, f"{label} calibration")
