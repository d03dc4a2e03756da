"""Stored vectors of documents as scorers read them, shard by shard: those of a corpus, or those of
a snapshot, chosen by its bit set from the vectors of the whole.
"""

from itertools import pairwise

import numpy as np

from desa_ray.pipeline.stage import Shard, Stage
from desa_ray.stages.document_vectors import corpus_shard
from desa_ray.store.tables import read_array

CHOSEN = "documents.npy"  # of a view: one bit for every document of the whole, first bit first


def is_view(stage: Stage) -> bool:
    """Whether a stored stage holds a choice of other vectors instead of its own."""
    return "sources" in stage.stored_layout()


def vector_shards(stage: Stage) -> list[Shard]:
    """Where vectors are read from, in the order of the stage's own rows; the shards of a view are
    the rows that one shard of the whole has of it.
    """
    layout = stage.stored_layout()
    if "sources" not in layout:
        return list(stage.work.shards(layout))
    sources = stage.inputs["vectors"].stored_shards()
    edges = zip(layout["sources"], pairwise(layout["bounds"]), strict=True)
    return [Shard(n, a, b, sources[n].parts) for n, (a, b) in edges]


def read_vectors(stage: Stage, shard: Shard) -> np.ndarray:
    """float32 [stop - start, D]: the vectors of one of `vector_shards`."""
    if not is_view(stage):
        return corpus_shard(stage, shard)
    whole = stage.inputs["vectors"]
    source = whole.stored_shards()[shard.number]
    rows = chosen_rows(stage, source)
    assert len(rows) == shard.stop - shard.start, (shard, len(rows))
    return corpus_shard(whole, source)[rows]


def chosen_rows(view: Stage, source: Shard) -> np.ndarray:
    """int64: the rows of a shard of the whole that a view has, counted from the shard's first."""
    bits = read_array(view.artifact, CHOSEN)
    first, last = source.start // 8, -(-source.stop // 8)
    own = np.unpackbits(bits[first:last])[source.start - 8 * first :]
    return np.flatnonzero(own[: source.stop - source.start])
