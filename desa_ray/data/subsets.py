"""Nested corpus snapshots and query samples, drawn by the SHA-256 of ids (method.md section 11).

Membership depends on ids, judgments and the wanted number only: the same on every machine, and a
smaller choice is part of every larger one.
"""

import hashlib
from collections.abc import Collection, Sequence
from itertools import islice

from desa_ray.errors import DesaError


def hash_order(ids: Sequence[str]) -> list[int]:
    """Positions in `ids` by the digest bytes of the SHA-256 of the UTF-8 id, then by the id."""
    keys = [(hashlib.sha256(key.encode()).digest(), key) for key in ids]
    return sorted(range(len(ids)), key=keys.__getitem__)


def snapshot(ids: Sequence[str], relevant: Collection[str], size: int) -> list[int]:
    """A snapshot of a corpus: every relevant document, then the others in hash order.

    Args:
        ids: the whole corpus.
        relevant: ids of all documents that are relevant to any query.
        size: documents of the snapshot.

    Returns:
        Ascending positions in `ids`.

    Raises:
        DesaError: `size` is below the number of relevant documents, or not below that of the whole
            corpus.
    """
    kept = [place for place, key in enumerate(ids) if key in relevant]
    if size < len(kept):
        what = f"a snapshot of {size} documents cannot hold all {len(kept)} relevant ones"
        raise DesaError(
            what, where="dataset.size", hint=f"use {len(kept)} or more, below {len(ids)}"
        )
    if size >= len(ids):
        what = f"a snapshot of {size} documents is not a proper subset of a corpus of {len(ids)}"
        raise DesaError(
            what,
            where="dataset.size",
            hint="use a smaller size, or dataset.size=all for the whole corpus",
        )
    others = (place for place in hash_order(ids) if ids[place] not in relevant)
    return sorted([*kept, *islice(others, size - len(kept))])


def sample(ids: Sequence[str], judged: Collection[str], count: int) -> list[int]:
    """Ascending positions of the first `count` judged queries in hash order; of all of them where
    there are fewer.
    """
    return sorted([place for place in hash_order(ids) if ids[place] in judged][:count])
