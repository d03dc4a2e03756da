"""Complete rankings: one artifact per channel (operator and inputs), one row per query.

Parts of a shard: `docs-*.npy` (document numbers int32, best first, queries one after another) and
`queries-*.parquet` (length, ranking hash, dense angle, the two best scores). A ranking does not
depend on kappa or weights, so a sweep over those reuses it.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from desa_ray.pipeline.sizes import Params, Rows, Size
from desa_ray.pipeline.stage import Finished, Pool, Shard, Stage, Work, bounds, shards_of
from desa_ray.stages.collection import documents_behind, read_rows
from desa_ray.stages.generation import read_generations
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.artifact import Artifact
from desa_ray.store.content import RowHasher
from desa_ray.store.tables import read_array, read_table, write_array, write_table

QUERIES = pl.Schema(
    {
        "length": pl.Int64,
        "hash": pl.String,
        "angle_deg": pl.Float64,
        "score_1": pl.Float64,
        "score_2": pl.Float64,
    }
)
BYTES_A_DOCUMENT = (
    16  # of a ranking in the making: score, order, what is written, and as much again in between
)


@dataclass(frozen=True)
class RankedQuery:
    """One ranking, or its beginning.

    Attributes:
        docs: int32, best first.
        length: how long the ranking is; more than `docs` holds for a prefix.
        top: its two best scores.
        angle_deg: the angle of the dense operator.
    """

    docs: np.ndarray
    length: int
    top: tuple[float | None, float | None]
    angle_deg: float | None = None


def write_ranked(artifact: Artifact, parts: Sequence[str], ranked: Sequence[RankedQuery]) -> None:
    """Writes rankings, or prefixes, of consecutive queries: `parts` name their documents and their
    table.
    """
    docs = [np.ascontiguousarray(query.docs, "<i4") for query in ranked]
    hashes = [hashlib.sha256(d.tobytes()).hexdigest() for d in docs]
    write_array(artifact, parts[0], np.concatenate(docs) if docs else np.empty(0, "<i4"))
    write_heads(artifact, parts[1], ranked, hashes)


def write_heads(
    artifact: Artifact, part: str, ranked: Sequence[RankedQuery], hashes: Sequence[str]
) -> None:
    """Writes all but the documents of rankings, whose hashes are given."""
    table = {
        "length": [query.length for query in ranked],
        "hash": hashes,
        "angle_deg": [query.angle_deg for query in ranked],
        "score_1": [query.top[0] for query in ranked],
        "score_2": [query.top[1] for query in ranked],
    }
    write_table(artifact, part, pl.DataFrame(table, QUERIES), QUERIES)


def finish_ranked(artifact: Artifact, shards: Sequence[Shard]) -> Finished:
    """Content and counts of what `write_ranked` wrote, by query, however the queries were cut."""
    hasher = RowHasher(QUERIES)
    items = 0
    for shard in shards:
        table = read_table(artifact, shard.parts[1], QUERIES)
        hasher.update(table)
        items += int(table["length"].sum())
    return Finished(hasher.hexdigest(), {"rows": shards[-1].stop, "items": items})


def ranking_size(params: Params, rows: Rows) -> Size:
    """Every pair of a query and a document is scored."""
    pairs = rows["queries"] * rows["vectors" if params["kind"] == "dense" else "postings"]
    return Size(rows["queries"], pairs, pairs)


def queries_in(stage: Stage) -> int:
    return stage.inputs["queries"].rows


class ChannelWork(Work):
    """What plans need to know of stages with one row per query of a channel."""

    unit = "queries"

    @classmethod
    def size(cls, params: Params, rows: Rows, distinct: int | None) -> Size:
        whole = ranking_size(params, rows)
        volume = whole.volume
        if "depth" in params:  # only so many documents per query are kept
            volume = min(volume, whole.items * params["depth"])
        return Size(whole.items, whole.work, volume)

    @classmethod
    def comparable_key(cls, params: Params, rows: Rows) -> Any:
        return params["kind"]

    @classmethod
    def similarity(cls, params: Params) -> tuple[Any, ...]:
        return params.get("scoring"), params.get("operator")

    def plan_group(self, stage: Stage) -> str:
        return stage.params["kind"]


@dataclass(frozen=True)
class RankingWork(ChannelWork):
    """What both channels' rankings share: shards of queries, cut to the memory budget."""

    pool: Pool
    shard_queries: int
    memory_gb: float
    smaller = "ranking=counted"

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        # One shard's scores, orders and what is written of them fit into the budget together.
        fitting = int(self.memory_gb * 2**30 / BYTES_A_DOCUMENT / max(1, self.documents(stage)))
        return {"bounds": bounds(queries_in(stage), max(1, min(self.shard_queries, fitting)))}

    @abstractmethod
    def documents(self, stage: Stage) -> int:
        """How many documents a complete ranking may hold."""

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "docs-{}.npy", "queries-{}.parquet")

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        return finish_ranked(stage.artifact, self.shards(layout))

    def shard_rows(self, rows: Rows) -> int:
        return self.shard_queries

    def worker_bytes(self, stage: Stage, queries: int) -> int | None:
        """What a worker holds for a shard; shards are cut to fit `memory_gb`, down to one query."""
        documents = documents_behind(stage)
        return documents * queries * BYTES_A_DOCUMENT if documents else None


def ranking_stage(
    params: Mapping[str, Any], inputs: Mapping[str, Stage], work: RankingWork, label: str
) -> Stage:
    """The complete ranking of a channel.

    Args:
        params: `kind` (dense or sparse), `operator` and its `options`, `texts` used,
            `exclude_self`, and how scores are made (`scoring`, or `k1` and `b`).
        inputs: `queries`, one stage per text source of the operator, `vectors` or `postings`, and
            `generation` where the operator uses generated text.
    """
    return Stage(inputs["queries"].store, "ranking", 1, params, work, inputs, label)


def own_documents(cache: WorkerCache, stage: Stage) -> dict[int, int]:
    """Query row -> number of the document that is the query (equal id and equal text), for
    `exclude_self`.
    """
    if not stage.params["exclude_self"]:
        return {}

    def read() -> dict[int, int]:
        queries = read_rows(stage.inputs["queries"]).with_row_index("query")
        documents = read_rows(stage.inputs["corpus"]).with_row_index("document")
        same = queries.join(documents, on=["id", "text"], how="inner")
        return dict(zip(same["query"].to_list(), same["document"].to_list(), strict=True))

    return cache.get(
        f"own {stage.inputs['queries'].key.digest} {stage.inputs['corpus'].key.digest}", read
    )


def fell_back(cache: WorkerCache, stage: Stage, rows: Sequence[int]) -> list[bool]:
    """Per query row, whether its generated text fell back: the channel is then the Original
    channel.
    """
    generation = stage.inputs.get("generation")
    if generation is None:
        return [False] * len(rows)
    found = cache.get(
        f"fallback {generation.key.digest}", lambda: read_generations(generation).fallback
    )
    return [found[row] for row in rows]


def options(stage: Stage) -> dict[str, Fraction]:
    """The numbers that the operator takes."""
    return {name: Fraction(value) for name, value in stage.params.get("options", {}).items()}


@dataclass
class Rankings:
    """Reads a ranking or prefix stage row by row; parts are opened when first used, and
    stay open.
    """

    stage: Stage
    _open: dict[int, tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        work: Any = self.stage.work
        read = getattr(work, "ranked_shards", work.shards)
        self.shards: list[Shard] = list(read(self.stage.stored_layout()))
        self.starts = np.array([shard.start for shard in self.shards])

    def _part(self, row: int) -> tuple[Shard, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        shard = self.shards[number]
        if number not in self._open:
            artifact = self.stage.artifact
            table = read_table(artifact, shard.parts[1], QUERIES)
            held = table["length"].clip(upper_bound=self.stage.params.get("depth"))
            edges = np.concatenate([[0], np.cumsum(held.to_numpy())])
            # A plain view of the mapped file: slices of a memmap cost several times as much.
            docs = np.asarray(read_array(artifact, shard.parts[0]))
            self._open[number] = (docs, edges, table.to_dicts())
        return shard, *self._open[number]

    def docs(self, row: int) -> np.ndarray:
        """The ranking of a query, or its prefix: document numbers int32, best first."""
        shard, docs, edges, _ = self._part(row)
        return docs[edges[row - shard.start] : edges[row - shard.start + 1]]

    def info(self, row: int) -> dict[str, Any]:
        """The query's row of the `queries` table."""
        shard, _, _, infos = self._part(row)
        return infos[row - shard.start]


def opened(cache: WorkerCache, stage: Stage) -> Rankings:
    """The stage's rankings, opened once per worker for all that read them (those of a sweep over
    kappa are the same).
    """
    content = stage.artifact.manifest()["content"]
    return cache.get_mapped(f"rankings {stage.key.digest} {content}", lambda: Rankings(stage))
