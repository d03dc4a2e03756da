"""What a piece of work amounted to, read off the parts it stored: numbers for whoever watches a run."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from desa_ray.engines.generation import GENERATION_SCHEMA
from desa_ray.pipeline.stage import Stage
from desa_ray.store.artifacts import Store
from desa_ray.store.tables import read_table

# What a row of these stages is to people.
ROWS = {"vectors": "documents_encoded", "fusion": "queries_replayed"}


class Count(NamedTuple):
    """`value` more of `name`, of the kind that `labels` say."""

    name: str
    value: int
    labels: dict[str, str]


def part_counts(store: Store, stage: Stage, parts: Sequence[str]) -> Iterator[Count]:
    """Rows and bytes of the stored parts of one shard; of generations also tokens, requests, retries and validity."""
    artifact = stage.artifact(store)
    infos = [info for name in parts if (info := artifact.part(name)) is not None]
    rows = max((info.rows for info in infos), default=0)  # the parts of a shard hold the same rows
    of_stage = {"stage": stage.name}
    yield Count("rows", rows, of_stage)
    yield Count("bytes_written", sum(info.bytes for info in infos), of_stage)
    if stage.name in ROWS:
        yield Count(ROWS[stage.name], rows, {})
    if stage.name == "generation":
        for name in parts:
            yield from _generation_counts(store, stage, name)


def _generation_counts(store: Store, stage: Stage, part: str) -> Iterator[Count]:
    records = read_table(stage.artifact(store), part, GENERATION_SCHEMA)
    of_generator = {"generator": (records["generator"].drop_nulls().to_list() or ["unknown"])[0]}
    fallbacks, retries = int(records["fallback"].sum()), int(records["retries"].sum())
    yield Count("generations", records.height - fallbacks, {**of_generator, "outcome": "valid"})
    yield Count("generations", fallbacks, {**of_generator, "outcome": "fallback"})
    yield Count("generation_requests", int(records["raw"].list.len().sum()) + retries, of_generator)
    yield Count("generation_retries", retries, of_generator)
    for kind in ("prompt", "completion"):
        yield Count("tokens", int(records[f"{kind}_tokens"].sum()), {**of_generator, "kind": kind})
