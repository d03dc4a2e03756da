"""Complete dense rankings of many documents: each task sorts the scores of one group of documents
for a block of queries, and `finish` merges these runs by rank.

So no process holds the scores of all documents for a query, and vectors are read once for a block
of queries. What is stored of the rankings is what tasks that hold all scores store.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from desa_ray.core.sorted_runs import merged, run_of
from desa_ray.core.topk import Keys, documents_of, scores_of
from desa_ray.pipeline.stage import Finished, Shard, Stage, bounds
from desa_ray.stages.collection import documents_behind
from desa_ray.stages.dense_ranking import DenseRankingWork, dense_queries, dense_scores
from desa_ray.stages.ranking import (
    BYTES_A_DOCUMENT,
    RankedQuery,
    finish_ranked,
    own_documents,
    queries_in,
    write_heads,
)
from desa_ray.stages.score_layout import (
    BLOCK_QUERIES,
    GROUP_DOCUMENTS,
    block_of,
    document_groups,
    group_shards,
)
from desa_ray.stages.worker_cache import WorkerCache
from desa_ray.store.tables import read_array, write_array
from desa_ray.temporary import OwnFolder

FEWEST_QUERIES = 8  # whose scores of all documents a task must be able to hold
RUN, ANGLES = "keys-{:05d}-{:05d}.npy", "angles-{:05d}.npy"


@dataclass(frozen=True)
class CompleteDenseWork(DenseRankingWork):
    """As `DenseRankingWork`; where few queries fit into memory so, tasks are groups of documents.

    Parts of a group and block: `keys-*.npy`, uint64 [queries, documents] (`desa_ray.core.topk`),
    and with the first group `angles-*.npy`; merged by `finish`, those of `DenseRankingWork`.
    """

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return self._cut_by_documents(stage) or super().layout(stage)

    def _cut_by_documents(self, stage: Stage) -> dict[str, Any] | None:
        """Edges of groups of documents and of blocks of queries; None where the scores of all
        documents fit for enough queries, or all documents are one group.
        """
        queries, held = queries_in(stage), int(self.memory_gb * 2**30 / BYTES_A_DOCUMENT)
        if held >= self.documents(stage) * min(FEWEST_QUERIES, self.shard_queries, queries):
            return None
        groups = document_groups(stage.inputs["vectors"])
        if len(groups) == 2:
            return None
        block = held // int(np.diff(groups).max())
        return {"groups": groups, "bounds": bounds(queries, max(1, min(BLOCK_QUERIES, block)))}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        if "groups" not in layout:
            return self.ranked_shards(layout)

        def parts(group: int, block: int) -> list[str]:
            angles = [ANGLES.format(block)] if group == 0 else []
            return [RUN.format(group, block), *angles]

        return group_shards(layout, parts)

    def ranked_shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        """The parts by query, merged where tasks are groups of documents."""
        return super().shards(layout)

    def run(self, engine: WorkerCache, stage: Stage, shard: Shard) -> None:
        layout = stage.stored_layout()
        if "groups" not in layout:
            super().run(engine, stage, shard)
            return
        block = block_of(self.ranked_shards(layout), shard)
        rows = range(block.start, block.stop)
        queries, angles = dense_queries(engine, stage, rows)
        scores = np.empty((len(rows), shard.stop - shard.start), np.float32)
        span = shard.start, shard.stop
        for first, part in dense_scores(engine, stage, queries, self.memory_gb, *span):
            scores[:, first - shard.start : first - shard.start + part.shape[1]] = part
        keys = np.empty(scores.shape, np.uint64)
        for row, own in enumerate(scores):
            keys[row] = run_of(own, shard.start)
        write_array(stage.artifact, shard.parts[0], keys)
        for part in shard.parts[1:]:
            told = np.array([np.nan if a is None else a for a in angles])
            write_array(stage.artifact, part, told)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        blocks = self.ranked_shards(layout)
        if "groups" in layout:
            merge_runs(stage, layout, blocks)
        return finish_ranked(stage.artifact, blocks)

    def worker_bytes(self, stage: Stage, queries: int) -> int | None:
        whole, documents = super().worker_bytes(stage, queries), documents_behind(stage)
        if whole is None or documents is None or whole <= self.memory_gb * 2**30:
            return whole
        group = min(documents, max(GROUP_DOCUMENTS, -(-documents // 64)))
        return group * queries * BYTES_A_DOCUMENT


def merge_runs(stage: Stage, layout: Mapping[str, Any], blocks: Sequence[Shard]) -> None:
    """Writes the rankings of all blocks, one query and one piece of it at a time."""
    artifact, own = stage.artifact, own_documents(WorkerCache(), stage)
    groups = len(layout["groups"]) - 1
    for number, block in enumerate(blocks):
        if all(map(artifact.has_part, block.parts)):
            continue
        parts = [read_array(artifact, RUN.format(group, number)) for group in range(groups)]
        angles = read_array(artifact, ANGLES.format(number))
        ranked: list[RankedQuery] = []
        hashes: list[str] = []
        with OwnFolder("desa-merge-") as folder, (folder / "docs").open("wb") as out:
            for offset, row in enumerate(range(block.start, block.stop)):
                angle = None if np.isnan(angles[offset]) else float(angles[offset])
                query, digest = _merged([part[offset] for part in parts], own.get(row), angle, out)
                ranked.append(query)
                hashes.append(digest)
            out.flush()
            write_array(artifact, block.parts[0], _mapped(folder / "docs"))
        write_heads(artifact, block.parts[1], ranked, hashes)


def _merged(
    runs: Sequence[Keys], own: int | None, angle: float | None, out: Any
) -> tuple[RankedQuery, str]:
    """Appends a query's documents to `out`; its entry without them, and their hash."""
    digest, top, length = hashlib.sha256(), list[float](), 0
    for keys in merged(runs):
        docs = documents_of(keys)
        kept = np.ones(docs.size, bool) if own is None else docs != own
        if len(top) < 2:
            top += scores_of(keys[kept][:2]).astype(float).tolist()
        data = np.ascontiguousarray(docs[kept], "<i4").tobytes()
        length += len(data) // 4
        digest.update(data)
        out.write(data)
    best = [*top[:2], None, None]
    nothing = np.empty(0, np.int32)
    return RankedQuery(nothing, length, (best[0], best[1]), angle), digest.hexdigest()


def _mapped(path: Path) -> np.ndarray:
    return np.memmap(path, "<i4", "r") if path.stat().st_size else np.empty(0, "<i4")
