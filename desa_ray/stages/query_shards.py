"""Code shared by stages that have one row per query and are cut into shards of queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from desa_ray.pipeline.sizes import Rows
from desa_ray.pipeline.stage import Pool, Stage, Work, bounds


@dataclass(frozen=True)
class QueryShards(Work):
    """Shards of at most `shard_queries` queries; the rows are those of the input `queries`."""

    pool: Pool
    shard_queries: int
    unit = "queries"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(stage.inputs["queries"].rows, self.shard_queries)}

    def shard_rows(self, rows: Rows) -> int:
        return self.shard_queries

    def plan_group(self, stage: Stage) -> str:
        return ""
