"""How scores are cut into tasks: groups of documents, blocks of queries, and ranges of a group.

A group is a run of consecutive shards of vectors, or of ranges of postings; whoever takes a group
and a block of queries keeps or counts what the block needs of it, and `finish` puts the groups
together.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from desa_ray.pipeline.sizes import Rows
from desa_ray.pipeline.stage import Pool, Shard, Stage, bounds
from desa_ray.stages.ranking import ChannelWork, queries_in
from desa_ray.stages.sparse_ranking import by_range, corpus_size

GROUP_DOCUMENTS = 1 << 16  # documents a group, or as many as make 64 groups of the whole
BLOCK_QUERIES = 512  # queries whose dense scores are selected from together
RANGE_DOCUMENTS = 1 << 20  # documents whose BM25 scores are held at once


def groups_and_blocks(stage: Stage) -> dict[str, list[int]]:
    """The layout of dense scores: edges of groups of documents, and of blocks of queries."""
    groups = document_groups(stage.inputs["vectors"])
    return {"groups": groups, "bounds": bounds(queries_in(stage), BLOCK_QUERIES)}


def group_shards(
    layout: Mapping[str, Any], parts: Callable[[int, int], Sequence[str]]
) -> list[Shard]:
    """One shard per group of documents and block of queries; its rows are the documents.

    Args:
        parts: the names of the parts of a group and block.
    """
    blocks = len(layout["bounds"]) - 1
    found: list[Shard] = []
    for group, (start, stop) in enumerate(pairwise(layout["groups"])):
        for block in range(blocks):
            number = group * blocks + block
            found.append(Shard(number, start, stop, tuple(parts(group, block))))
    return found


def document_groups(scored: Stage) -> list[int]:
    """Where the groups of documents begin that are scored together, and where the last one ends:
    edges of shards of vectors, or of ranges of postings.
    """
    shards = scored.stored_layout()["bounds"]
    size = max(GROUP_DOCUMENTS, -(-shards[-1] // 64))
    groups = [shards[0]]
    for edge, following in pairwise(shards[1:]):
        if following - groups[-1] > size:
            groups.append(edge)
    return [*groups, shards[-1]]


@dataclass(frozen=True)
class SparseShards(ChannelWork):
    """How BM25 scores are cut: into blocks of queries, and groups of ranges of documents where
    there are more than one and the operator can take them one by one.
    """

    pool: Pool
    shard_queries: int

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        layout = {"bounds": bounds(queries_in(stage), self.shard_queries)}
        groups = document_groups(stage.inputs["postings"])
        if by_range(stage) and len(groups) > 2:
            layout["groups"] = groups
        return layout

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        if "groups" not in layout:
            return self.ranked_shards(layout)
        return group_shards(layout, lambda group, block: [self.group_part(group, block)])

    @abstractmethod
    def ranked_shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        """The parts by query, merged where there are groups."""

    @staticmethod
    @abstractmethod
    def group_part(group: int, block: int) -> str:
        """The name of the part of a group and block."""

    def shard_rows(self, rows: Rows) -> int:
        return self.shard_queries


def block_of(blocks: Sequence[Shard], shard: Shard) -> Shard:
    """The block of queries of a shard of `group_shards`."""
    return blocks[shard.number % len(blocks)]


def document_ranges(stage: Stage, span: tuple[int, int] | None = None) -> list[tuple[int, int]]:
    """The ranges of documents that are scored one after another, of all documents or of a span; one
    where the operator looks at whole lists.
    """
    start, stop = span or (0, corpus_size(stage))
    size = RANGE_DOCUMENTS if by_range(stage) else max(1, stop - start)
    return [(start + a, start + b) for a, b in pairwise(bounds(stop - start, size))]
