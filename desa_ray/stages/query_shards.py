"""Code shared by stages that have one row per query and are cut into shards of queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from desa_ray.core.query_text import TEXT_OPTIONS
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


def text_inputs(
    queries: Stage, generation: Stage | None, template: str
) -> tuple[dict[str, Stage], str]:
    """The inputs of a stage that reads what `template` makes of the queries and their generated
    texts; and its label.
    """
    if generation is None:
        return {"queries": queries}, template
    return {"queries": queries, "generation": generation}, f"{template} {generation.label}"


def text_params(template: str, used: int, options: Mapping[str, str]) -> dict[str, Any]:
    """The parameters that say what text is read.

    Args:
        used: how many of the generated texts, the first ones.
        options: those of the operator; the template takes the ones it knows.
    """
    own = {name: options[name] for name in TEXT_OPTIONS.get(template, ()) if name in options}
    params: dict[str, Any] = {"template": template, "texts": used}
    return {**params, "options": own} if own else params
