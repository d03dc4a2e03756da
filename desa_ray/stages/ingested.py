"""The record and the tables of a collection from its ingest, instead of from its source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.config import DatasetConfig
from desa_ray.data import fingerprint
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work, shards_of
from desa_ray.stages.collection import DOCUMENTS, PART, QRELS, CollectionWork, changed_source
from desa_ray.stages.ingest import BESIDE, EDGES, Reading, dropped, part_bounds, runs_of
from desa_ray.stages.sorted_texts import between
from desa_ray.store.tables import read_table, write_table
from desa_ray.types import RowsDigest, canonical_json, text_json


@dataclass(frozen=True)
class IngestedTableWork(Work):
    """Writes one table of an ingested collection: the corpus from the sorted runs, a range of ids
    per task, and the others as they were found.
    """

    table: str
    ingest: Stage
    pool: Pool | None

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        if self.table == "corpus":
            own = self._edges()
            return {"bounds": part_bounds(own["rows"], own["size"])}
        frame = read_table(self.ingest.artifact, f"{self.table}.parquet", BESIDE[self.table])
        size = int(frame["text"].str.len_bytes().sum()) if "text" in frame.columns else 0
        return {"bounds": part_bounds(frame.height, size)}

    def _edges(self) -> dict[str, Any]:
        return json.loads(self.ingest.artifact.read_part(EDGES).read_bytes())

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, PART)

    def run(self, engine: Reading | None, stage: Stage, shard: Shard) -> None:
        if self.table != "corpus":
            schema = BESIDE[self.table]
            frame = read_table(self.ingest.artifact, f"{self.table}.parquet", schema)
            rows = frame[shard.start : shard.stop]
        else:
            schema, edges = DOCUMENTS, [None, *self._edges()["edges"], None]
            runs = runs_of(self.ingest, self.ingest.stored_shards())
            found = between(runs, edges[shard.number], edges[shard.number + 1])
            columns = {"id": [key for key, _ in found], "text": [text for _, text in found]}
            rows = pl.DataFrame(columns, DOCUMENTS)
        assert rows.height == shard.stop - shard.start, (str(stage), shard, rows.height)
        write_table(stage.artifact, shard.parts[0], rows, schema)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        content = self._content(stage)
        if content != stage.params["content"]:
            for own in (stage, self.ingest):
                dropped(own)
            raise changed_source(self._config)
        return Finished(content, {"rows": layout["bounds"][-1]})

    def _content(self, stage: Stage) -> str:
        """The hash of the rows that are written, one part of them held at a time."""
        schema, digest = BESIDE.get(self.table, DOCUMENTS), RowsDigest()
        as_json = canonical_json if schema is QRELS else _text_json
        for shard in stage.stored_shards():
            rows = read_table(stage.artifact, shard.parts[0], schema).iter_rows()
            digest.update(map(as_json, rows))
        return digest.hexdigest()

    @property
    def _config(self) -> DatasetConfig:
        work: Any = self.ingest.work
        return work.config


def _text_json(row: tuple[Any, ...]) -> str:
    return text_json(*row)


@dataclass(frozen=True)
class IngestedRecordWork(CollectionWork):
    """Remembers what an ingest found."""

    ingest: Stage = field(kw_only=True)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        if fingerprint(self.config, data_home=Path(self.data_home)) != stage.params["source"]:
            raise changed_source(self.config)
        found = self.ingest.artifact.manifest()
        return Finished(stage.key.digest, found["counts"], {"tables": found["meta"]["tables"]})


def ingested_record(record: Stage, ingest: Stage) -> Stage:
    """The record of a collection, taken from its ingest."""
    own: Any = record.work
    return replace(record, work=IngestedRecordWork(own.config, own.data_home, ingest=ingest))


def ingested_table(table: Stage, ingest: Stage) -> Stage:
    """The stage of a table, written from an ingest instead of its source.

    Raises:
        DesaError: the ingest, which is dropped, found another table.
    """
    work: Any = ingest.work
    if ingest.artifact.manifest()["meta"]["tables"][table.name] != table.params["content"]:
        dropped(ingest)
        raise changed_source(work.config)
    pool = work.pool if table.name == "corpus" else None
    return replace(table, work=IngestedTableWork(table.name, ingest, pool))
