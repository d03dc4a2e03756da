"""Top scores: the best 1,000 documents of each query in a channel, with their scores.

Rankings keep the order and two scores. Confidence weights and score fusion need more of them
(method.md section 5); only the methods that use those have this stage. It scores again, from the
inputs of the channel's ranking, and is the same for complete and for lazy rankings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from desa_ray.core.fusion.weights import TOP_SCORES
from desa_ray.pipeline.stage import Finished, Shard, Stage, shards_of
from desa_ray.stages.columns import edges, list_column
from desa_ray.stages.prefix import dense_best, sparse_best
from desa_ray.stages.query_shards import QueryShards
from desa_ray.stages.ranking import ChannelWork
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.content import rows_content
from desa_ray.store.tables import read_table, write_table

SCORES = pl.Schema({"docs": pl.List(pl.Int32), "scores": pl.List(pl.Float64)})
Best = tuple[np.ndarray, np.ndarray]  # documents int32 and their scores float64, best first


@dataclass(frozen=True)
class TopScoresWork(ChannelWork, QueryShards):
    """Operator, scores, selection; one row per query."""

    memory_gb: float

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "scores-{}.parquet")

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        rows = range(shard.start, shard.stop)
        depth = stage.params["depth"]
        if stage.params["kind"] == "dense":
            best = dense_best(engine, stage, rows, depth, self.memory_gb)
        else:
            best = [sparse_best(engine, stage, row, depth)[:2] for row in rows]
        starts = edges([docs.size for docs, _ in best])
        docs = np.concatenate([np.empty(0, np.int32), *(docs for docs, _ in best)])
        scores = np.concatenate([np.empty(0), *(scores.astype(np.float64) for _, scores in best)])
        table = pl.DataFrame(
            {
                "docs": list_column(pl.Series(docs), starts),
                "scores": list_column(pl.Series(scores), starts),
            },
            SCORES,
        )
        write_table(stage.artifact, shard.parts[0], table, SCORES)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        table = pl.concat(
            [read_table(stage.artifact, shard.parts[0], SCORES) for shard in self.shards(layout)]
        )
        return Finished(rows_content(table), {"rows": table.height})


def top_scores_stage(
    params: Mapping[str, Any], inputs: Mapping[str, Stage], work: TopScoresWork, label: str
) -> Stage:
    """The top scores of a channel; parameters and inputs are those of its ranking."""
    store = inputs["queries"].store
    params = {**params, "depth": TOP_SCORES}
    return Stage(store, "top_scores", 1, params, work, inputs, f"{label} scores")


@dataclass
class TopScores:
    """Reads a stage of top scores row by row; a part is opened when it is first used."""

    stage: Stage
    _open: dict[int, pl.DataFrame] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shards: Sequence[Shard] = self.stage.stored_shards()
        self.starts = np.array([shard.start for shard in self.shards])

    def best(self, row: int) -> Best:
        """Documents and scores of a query, best first."""
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        if number not in self._open:
            part = self.shards[number].parts[0]
            self._open[number] = read_table(self.stage.artifact, part, SCORES)
        table, offset = self._open[number], row - self.shards[number].start
        return table["docs"][offset].to_numpy(), table["scores"][offset].to_numpy()


def opened_scores(cache: WorkerCache, stage: Stage) -> TopScores:
    """The stage's scores, opened once per worker."""
    content = stage.artifact.manifest()["content"]
    return cache.get_mapped(f"scores {stage.key.digest} {content}", lambda: TopScores(stage))
