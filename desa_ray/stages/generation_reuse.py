"""Generated text that the store already has for another set of queries, such as a sample or a
superset.

A record depends on its own request alone (generator, data set, prompt, draw, query), and a stored
record is never generated again (method.md section 2). So before an engine starts, a generation
stage takes over what other artifacts of the same request hold for queries of the same id and text.
"""

from typing import Any

import polars as pl

from desa_ray.engines.generation import GENERATION_SCHEMA
from desa_ray.pipeline.stage import Stage
from desa_ray.stages.collection import DOCUMENTS, read_rows
from desa_ray.stages.generation import makers_of, records_of
from desa_ray.store.artifacts import Store
from desa_ray.store.catalog import manifests
from desa_ray.store.keys import Key
from desa_ray.store.makers import distinct
from desa_ray.store.tables import read_table


def known_records(stage: Stage) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Records (schema `GENERATION_SCHEMA`, by query id) of the stage's queries in other artifacts
    of its request, and who made those artifacts.
    """
    wanted = read_rows(stage.inputs["queries"])
    found = pl.DataFrame(schema=GENERATION_SCHEMA)
    makers: list[dict[str, Any]] = []
    for manifest in manifests(stage.store.files, stage.name):
        key = Key(**manifest["key"])
        if (key.version, key.params) != (stage.version, stage.key.params) or key == stage.key:
            continue
        missing = wanted.filter(~pl.col("id").is_in(found["query_id"].implode()))
        same = _queries(stage.store, key.inputs["queries"]).join(
            missing, on=["id", "text"], how="semi"
        )["id"]
        if same.len():
            artifact = stage.store.artifact(key)
            records = records_of(artifact, manifest["layout"])
            makers += makers_of(artifact)
            found = pl.concat([found, records.filter(pl.col("query_id").is_in(same.implode()))])
    return found.sort("query_id"), distinct(makers)


def unknown_queries(stage: Stage) -> int:
    """How many of the stage's queries no other artifact has text for."""
    return stage.inputs["queries"].rows - known_records(stage)[0].height


def _queries(store: Store, digest: str) -> pl.DataFrame:
    """The queries behind a key; none where their table is gone, as it is unknown then what was
    asked.
    """
    found = store.find("queries", digest)
    if found is None or found.key is None:
        return pl.DataFrame(schema=DOCUMENTS)
    artifact = store.artifact(found.key)
    return pl.concat(read_table(artifact, name, DOCUMENTS) for name in artifact.parts())
