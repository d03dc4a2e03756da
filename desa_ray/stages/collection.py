"""The collection in the store: three artifacts addressed by their own content, and readers for
workers.

Whatever a collection came from (folder, zip, hub, demo), its corpus, queries and judgments are
keyed by the hash of their rows. Thus a corpus keeps its vectors if only its judgments change, and
a zip and its folder are one corpus.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from desa_ray.config import DatasetConfig
from desa_ray.data import fingerprint, load_collection
from desa_ray.errors import DesaError
from desa_ray.pipeline.stage import Finished, Shard, Stage, Work, bounds, shards_of
from desa_ray.store.artifacts import Store
from desa_ray.store.tables import read_table, write_table
from desa_ray.types import Collection

DOCUMENTS = pl.Schema({"id": pl.String, "text": pl.String})
QRELS = pl.Schema({"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int32})
ROWS_A_PART = 65_536
BYTES_A_PART = 256 << 20  # of text, about: a worker that reads a corpus holds one part
PART = "part-{}.parquet"
# stage -> attribute of a `Collection`
TABLES = {
    "corpus": "documents",
    "queries": "queries",
    "qrels": "qrels",
}


@lru_cache(maxsize=2)
def _loaded(config: DatasetConfig, data_home: str) -> Collection:
    return load_collection(config, data_home=Path(data_home))


def changed_source(config: DatasetConfig) -> DesaError:
    """The error of a source that changed while it was read."""
    hint = "rerun when nothing writes to it any more"
    return DesaError(
        "its files changed while they were read", where=f"dataset {config.name}", hint=hint
    )


@dataclass(frozen=True)
class TableWork(Work):
    """Writes one table of a collection (`documents`, `queries` or `qrels`) from its source."""

    table: str
    config: DatasetConfig
    data_home: str
    pool: None = None

    def _frame(self, stage: Stage) -> pl.DataFrame:
        """The table whose content the stage is named after; refused where the source has another
        one by now.
        """
        name = {attribute: f"{stage}_hash" for stage, attribute in TABLES.items()}[self.table]
        found = _loaded(self.config, self.data_home)
        if getattr(found, name) != stage.params["content"]:  # kept from before the source changed
            _loaded.cache_clear()
            found = _loaded(self.config, self.data_home)
        if getattr(found, name) != stage.params["content"]:
            raise changed_source(self.config)
        return getattr(found, self.table)

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        frame, rows = self._frame(stage), ROWS_A_PART
        if "text" in frame.columns:
            size = int(frame["text"].str.len_bytes().sum())
            rows = max(1, min(rows, BYTES_A_PART * frame.height // max(1, size)))
        return {"bounds": bounds(frame.height, rows)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, PART)

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        rows = self._frame(stage)[shard.start : shard.stop]
        write_table(
            stage.artifact, shard.parts[0], rows, QRELS if self.table == "qrels" else DOCUMENTS
        )

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return Finished(stage.params["content"], {"rows": layout["bounds"][-1]})


@dataclass(frozen=True)
class CollectionWork(Work):
    """Remembers what a source contained, so that an unchanged source is not parsed and validated
    again.
    """

    config: DatasetConfig
    data_home: str
    pool: None = None

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": [0, 0]}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return []

    def run(self, engine: None, stage: Stage, shard: Shard) -> None:
        raise AssertionError("a collection record has no shards")

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        _loaded.cache_clear()  # of what the source was before
        found = _loaded(self.config, self.data_home)
        reread = self.config.kind == "ir_datasets"  # its fingerprint takes reading all of it
        if (
            not reread
            and fingerprint(self.config, data_home=Path(self.data_home)) != stage.params["source"]
        ):
            raise changed_source(self.config)
        sizes, hashes = tables_record(found)
        return Finished(stage.key.digest, {**sizes, **found.counts}, {"tables": hashes})


def tables_record(found: Collection) -> tuple[dict[str, int], dict[str, str]]:
    """What a record keeps of a collection: the sizes of its tables, and their hashes by stage."""
    sizes = {attribute: getattr(found, attribute).height for attribute in TABLES.values()}
    return sizes, {
        "corpus": found.corpus_hash,
        "queries": found.queries_hash,
        "qrels": found.qrels_hash,
    }


@dataclass(frozen=True)
class CollectionStages:
    """A collection as the graph sees it.

    Attributes:
        documents, queries, qrels: the stages that hold the tables.
        counts: table sizes and what validation noticed.
        whole: the documents that a snapshot was drawn from; None where these are all.
        whole_queries: likewise of queries.
    """

    name: str
    documents: Stage
    queries: Stage
    qrels: Stage
    counts: Mapping[str, int]
    whole: Stage | None = None
    whole_queries: Stage | None = None

    @property
    def tables(self) -> tuple[Stage, Stage, Stage]:
        return self.documents, self.queries, self.qrels


def record_stage(store: Store, config: DatasetConfig, data_home: Path) -> Stage:
    """The stage whose manifest says what the source of `config` contains."""
    print_ = fingerprint(config, data_home=data_home)
    params = {"source": print_, "missing_relevant": config.missing_relevant, "split": config.split}
    work = CollectionWork(config, str(data_home))
    return Stage(store, "collection", 1, params, work, label=config.name)


def collection_stages(
    store: Store, config: DatasetConfig, record: Mapping[str, Any], data_home: Path
) -> CollectionStages:
    """The table stages behind a stored collection record (its manifest)."""

    def table(stage: str) -> Stage:
        work = TableWork(TABLES[stage], config, str(data_home))
        params = {"content": record["meta"]["tables"][stage]}
        return Stage(store, stage, 1, params, work, label=config.name)

    return CollectionStages(
        config.name, table("corpus"), table("queries"), table("qrels"), record["counts"]
    )


def documents_behind(stage: Stage) -> int | None:
    """Documents of the corpus that a stage works on, found along its inputs; None where it is not
    stored.
    """
    waiting = [stage]
    while waiting:
        found = waiting.pop(0)
        if found.name == "corpus":
            return found.rows if found.artifact.exists() else None
        waiting += found.inputs.values()
    return None


def read_ids(stage: Stage) -> pl.Series:
    """The ids of a table of texts, in order; no text is held."""
    parts = [PART.format(f"{n:05d}") for n in range(len(stage.stored_layout()["bounds"]) - 1)]
    ids = [read_table(stage.artifact, part, DOCUMENTS)["id"] for part in parts]
    return pl.concat(ids) if ids else pl.Series("id", [], pl.String)


def read_rows(stage: Stage, start: int = 0, stop: int | None = None) -> pl.DataFrame:
    """Rows `start:stop` of a table stage; touches only the parts that hold them."""
    artifact = stage.artifact
    edges = stage.stored_layout()["bounds"]
    stop = edges[-1] if stop is None else stop
    schema = QRELS if stage.name == "qrels" else DOCUMENTS
    frames = [pl.DataFrame(schema=schema)]
    for number, (first, last) in enumerate(pairwise(edges)):
        if first < stop and last > start:
            frame = read_table(artifact, PART.format(f"{number:05d}"), schema)
            frames.append(frame[max(start - first, 0) : stop - first])
    return pl.concat(frames)
