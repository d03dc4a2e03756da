"""Finished rows of a generation shard that is not done: kept in the store, so that the next worker
generates only what is missing.

They are parts `rows-SHARD-NUMBER.parquet` beside those of the shards, written every few seconds and
when the shard fails, and withdrawn once the stage is whole. Rows of one query are written once
unless two runs generate the same shard; the first that is read counts.
"""

import re
import time
from collections.abc import Mapping
from typing import Any

import polars as pl

from desa_ray.engines.generation import GENERATION_SCHEMA, generation_frame
from desa_ray.engines.live_generator import GeneratedRow
from desa_ray.errors import DesaError
from desa_ray.pipeline.stage import Shard
from desa_ray.store.artifact import Artifact
from desa_ray.store.content import rows_content
from desa_ray.store.makers import Maker
from desa_ray.store.tables import read_table, write_table

KEEP_EVERY_S = 10.0
PART = re.compile(r"rows-\d{5,}-\d{4,}\.parquet")


class FinishedRows:
    """The rows of one shard: those that were kept, and those that are added.

    Args:
        made: who makes the rows, and `cpus` and `gpus` of the worker.

    Attributes:
        kept: schema `GENERATION_SCHEMA`, each query once.
        makers: who made the rows so far.
    """

    def __init__(self, artifact: Artifact, shard: Shard, made: Mapping[str, Any]):
        self.artifact, self.shard, self._made = artifact, shard, made
        self.makers: list[Maker] = []
        self._number = 0
        self._new: list[GeneratedRow] = []
        self._began = self._kept_at = time.perf_counter()
        frames = [pl.DataFrame(schema=GENERATION_SCHEMA)]
        while (info := artifact.part(self._name())) is not None:
            try:
                frames.append(read_table(artifact, info.name, GENERATION_SCHEMA))
                self.makers += info.made or ()
            except DesaError:  # damaged, or withdrawn meanwhile: generated again
                pass
            self._number += 1
        self.kept = pl.concat(frames).unique("query_id", keep="first", maintain_order=True)

    def add(self, row: GeneratedRow) -> None:
        """Take a row in; it is in the store within `KEEP_EVERY_S` seconds of more rows."""
        self._new.append(row)
        if time.perf_counter() - self._kept_at > KEEP_EVERY_S:
            self.keep()

    def keep(self) -> None:
        """Store the rows that are not yet."""
        if not self._new:
            return
        frame, maker = self._taken()
        while True:
            info = write_table(self.artifact, self._name(), frame, GENERATION_SCHEMA, [maker])
            self._number += 1
            if info.content == rows_content(frame):  # else another run's, which has that number
                return

    def all(self) -> pl.DataFrame:
        """Every row of the shard, by query id."""
        if self._new:
            self._taken()
        return self.kept.sort("query_id")

    def _taken(self) -> tuple[pl.DataFrame, Maker]:
        """The new rows, which count as kept from now on, and who made them."""
        now = time.perf_counter()
        known = [row.seconds for row in self._new if row.seconds is not None]
        whole = len(known) == len(self._new)
        maker = {**self._made, "seconds": sum(known) if whole else now - self._began}
        frame = generation_frame([row.fields for row in self._new])
        self.kept = pl.concat([self.kept, frame])
        self.makers.append(maker)
        self._new, self._began, self._kept_at = [], now, now
        return frame, maker

    def _name(self) -> str:
        return f"rows-{self.shard.number:05d}-{self._number:04d}.parquet"


def withdraw_rows(artifact: Artifact) -> None:
    """Remove the rows that were kept of shards; all of them are stored by now."""
    for name in artifact.parts():
        if PART.fullmatch(name):
            artifact.withdraw_part(name)
