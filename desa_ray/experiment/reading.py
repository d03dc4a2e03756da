"""Stores collections: small ones are read by the driver, large ones in pieces by processes of this
machine.

A source need be visible to the driver alone, so pieces are read on its machine, also where the run
is computed on a cluster elsewhere.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from desa_ray.config import ClusterConfig, DatasetConfig
from desa_ray.pipeline.backend import Backend, LostCluster
from desa_ray.pipeline.execute import Quiet, present, run_stage
from desa_ray.pipeline.processes import MachinePlacement, ProcessTransport
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Pool, Stage, Task
from desa_ray.pipeline.supervisor import Supervisor
from desa_ray.stages.collection import CollectionStages, collection_stages, record_stage
from desa_ray.stages.ingest import Reading, ingest_stage, large
from desa_ray.stages.ingested import ingested_record, ingested_table
from desa_ray.stages.selection import selected, selection_stage
from desa_ray.store.artifacts import Store

ONE_READER = Pool("reader", Reading, light=True)


class ReadingBackend:
    """Child processes that read collections, started when there is a large one."""

    max_parallel_stages = 1

    def __init__(self, config: ClusterConfig) -> None:
        self.config = replace(config, kind="local") if config.kind == "existing" else config
        self._backend: Backend | None = None

    def compute(
        self,
        pool: Pool,
        tasks: Sequence[Task],
        on_start: Callable[[], None],
        on_done: Callable[[Task], None],
    ) -> int:
        if self._backend is None:
            if self.config.kind == "serial":
                self._backend = SerialBackend(self.config.max_failures)
            else:
                placement = MachinePlacement(self.config)
                self._backend = Supervisor(
                    ProcessTransport(), placement, self.config, max_parallel_stages=1
                )
        return self._backend.compute(pool, tasks, on_start, on_done)

    def expect(self, pools: frozenset[str]) -> None: ...

    def stop(self) -> None: ...

    def recover(self, loss: LostCluster) -> None:
        raise loss

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()


@contextmanager
def readers(config: ClusterConfig) -> Generator[Backend]:
    """A backend for `store_collection`, for as long as collections are stored."""
    backend = ReadingBackend(config)
    try:
        yield backend
    finally:
        backend.close()


def store_collection(
    config: DatasetConfig,
    store: Store,
    data_home: Path,
    pool: Pool | None = None,
    backend: Backend | None = None,
) -> CollectionStages:
    """The tables of a data set, computed and stored where they are missing.

    Args:
        pool: workers that read large collections, on the backend or in this process; one where left
            out.
    """
    whole = replace(config, size="all", sample="all")
    record = record_stage(store, whole, data_home)
    in_pieces = large(whole, data_home)
    ingest = ingest_stage(record, whole, data_home, pool or ONE_READER)

    def kept(stage: Stage, as_ingested: Callable[[Stage, Stage], Stage]) -> Mapping[str, Any]:
        if not in_pieces or present(stage):
            return stored(stage)
        _drop_changed(ingest)
        stored(ingest, backend)
        return stored(as_ingested(stage, ingest), backend)

    collection = collection_stages(store, whole, kept(record, ingested_record), data_home)
    for stage in collection.tables:
        kept(stage, ingested_table)
    if config == whole:
        return collection
    selection = selection_stage(config, collection)
    part = selected(collection, selection, stored(selection))
    for stage in part.tables:
        stored(stage)
    return part


def _drop_changed(ingest: Stage) -> None:
    """Removes what is stored of an ingest that is not complete, where the files that it was cut
    for have changed, or are packed otherwise.
    """
    work: Any = ingest.work
    if ingest.artifact.exists():
        return
    with ingest.store.exclusive(ingest.key):
        artifact = ingest.artifact
        if artifact.exists():
            return
        layout = artifact.stored_layout()
        if layout is not None and layout["files"] != work.corpus().states():
            artifact.discard()


def stored(stage: Stage, backend: Backend | None = None) -> Mapping[str, Any]:
    """The manifest of a stage, computed where it is missing, in this process unless a backend is
    given.
    """
    if not present(stage):
        run_stage(stage, backend or SerialBackend(), Quiet())
    return stage.artifact.manifest()
